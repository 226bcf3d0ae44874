"""One rank's process, started by `msrun`: `python -m vpp_ms.engine.worker --job FILE`.

With `--config CONFIG.yaml` instead every rank reads configuration and prompts itself; that is
how `scripts/msrun_prefill.sh` starts ranks on many hosts.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from vpp_ms.config.environ import RankEnv
from vpp_ms.config.load import load_config
from vpp_ms.engine.job import Job, load_job, prepare_job
from vpp_ms.errors import VppError
from vpp_ms.log import get_logger, log_to_stderr
from vpp_ms.transport.rendezvous import Member

log = get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 a user's mistake, 1 anything else; see transport for lost peers."""
    args = _parse(argv)
    env = RankEnv.read()
    log_to_stderr(f"rank {env.rank}")
    if env.is_scheduler:
        return _lead(env)
    try:
        member = Member.join(env)
    except VppError as error:
        log.error("%s", error)
        return 2
    try:
        job = load_job(args.job) if args.job else _own_job(args.config, args.set)
        _serve(job, env, member)
    except VppError as error:
        member.report_error(str(error), user_error=True)
        return 2
    except Exception as error:
        traceback.print_exc()
        member.report_error(f"{type(error).__name__}: {error}")
        return 1
    member.leave()
    return 0


def _lead(env: RankEnv) -> int:
    """msrun's scheduler process: it holds no stage."""
    from vpp_ms.transport.mindspore_p2p import serve_scheduler

    serve_scheduler(env)
    return 0


def _serve(job: Job, env: RankEnv, member: Member) -> None:
    from vpp_ms.engine.results import Gathering
    from vpp_ms.engine.session import Session
    from vpp_ms.model.context import set_up
    from vpp_ms.transport.mindspore_p2p import P2PChannel

    set_up("CPU" if job.config.is_emulated else job.config.context.device_target)
    channel = P2PChannel(member, env)
    session = Session(job, member, channel)
    plans = {name: session.plan(name) for name in job.variants}
    gathering = Gathering(job)
    for round_index in range(job.rounds):
        for name, plan in plans.items():
            run = session.run(plan, f"{name}/{round_index}")
            if run is not None:
                gathering.add(name, run)
    channel.close()
    if env.rank == 0:
        member.report({"kind": "result", "result": gathering.write()})


def _own_job(config_file: str, overrides: Sequence[str]) -> Job:
    config = load_config(config_file, overrides)
    return prepare_job({config.vpp.method: config})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vpp_ms.engine.worker", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--job", help="a job file written by the launcher")
    source.add_argument("--config", help="a YAML configuration")
    parser.add_argument("--set", action="append", default=[], help="key.path=value")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
