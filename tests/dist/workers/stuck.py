"""Ranks of which the last never comes to MindSpore's init(): the others hold their lock there.

Usage: stuck.py TAG
"""

from __future__ import annotations

import os
import sys
import time

from vpp_ms.config.environ import RankEnv
from vpp_ms.transport.mindspore_p2p import P2PChannel, serve_scheduler
from vpp_ms.transport.rendezvous import Member


def main() -> int:
    env = RankEnv.read()
    if env.is_scheduler:
        serve_scheduler(env)
        return 0
    member = Member.join(env)
    member.report({"kind": "phase", "phase": "init", "pid": os.getpid()})
    print("in init", flush=True)
    if env.rank == env.num_ranks - 1:
        time.sleep(120)
    P2PChannel(member, env)
    return 1


if __name__ == "__main__":
    sys.exit(main())
