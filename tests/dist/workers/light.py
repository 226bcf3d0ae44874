"""A rank without MindSpore, so that it starts in a moment: for tests of launch and supervision.

Usage: light.py TAG [--until PHASE] [--how HOW] [--rank N]. Ranks go through the phases load,
prefill and decode, a barrier in front of each, and report their pid. In phase PHASE rank N does
HOW: raise, user, exit, unjoined (ends before it joins), or all ranks hang.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from vpp_ms.config.environ import RankEnv
from vpp_ms.transport.rendezvous import Member


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("tag")
    parser.add_argument("--until")
    parser.add_argument("--how")
    parser.add_argument("--rank", type=int, default=1)
    args = parser.parse_args()
    env = RankEnv.read()
    if env.is_scheduler:
        return 0
    if args.how == "unjoined" and env.rank == args.rank:
        raise RuntimeError("boom before the hub")
    member = Member.join(env)
    for phase in ("load", "prefill", "decode"):
        member.all_gather(phase)
        member.report(
            {
                "kind": "phase",
                "phase": phase,
                "pid": os.getpid(),
                "cores": sorted(os.sched_getaffinity(0)),
                "omp": os.environ.get("OMP_NUM_THREADS"),
                "python": sys.executable,
                "port": os.environ.get("MS_SCHED_PORT"),
            }
        )
        print(f"in {phase}", flush=True)
        if phase == args.until:
            return misbehave(member, args.how if env.rank == args.rank else "hang")
    member.leave()
    return 0


def misbehave(member: Member, how: str | None) -> int:
    match how:
        case "user":
            member.report_error("vpp.window: 0; allowed: >= 1", user_error=True)
            return 2
        case "raise":
            member.report_error("ValueError: boom")
            raise ValueError("boom")
        case "exit":
            return 0
    time.sleep(120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
