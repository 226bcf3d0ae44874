"""The process environment of a rank: the one place of the house that reads it.

`msrun` sets MS_ROLE, MS_WORKER_NUM, MS_NODE_ID, MS_SCHED_HOST and MS_SCHED_PORT. A launcher that
hosts the hub itself adds the variables named here, see `hub_environment`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vpp_ms.errors import ConfigError

HUB_ADDRESS = "VPP_MS_HUB_ADDRESS"
RUN_KEY = "VPP_MS_RUN_KEY"
HUB_PORT_OFFSET = 1  # without a launcher, rank 0 hosts the hub at MASTER_PORT + 1


@dataclass(frozen=True)
class RankEnv:
    """What one process of the run was told about itself.

    `rank` is -1 in msrun's scheduler process. `run_key` tells runs apart: the hub refuses a
    process with another one. `launcher_hosts_hub`: else rank 0 has to host it.
    """

    rank: int
    num_ranks: int
    hub_host: str
    hub_port: int
    run_key: str
    launcher_hosts_hub: bool

    @property
    def is_scheduler(self) -> bool:
        return self.rank < 0

    @property
    def hosts_hub(self) -> bool:
        return self.rank == 0 and not self.launcher_hosts_hub

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> RankEnv:
        """Raises ConfigError outside `msrun`, and when msrun was not told the node's rank."""
        variables = os.environ if environ is None else environ
        num_ranks = _integer(variables, "MS_WORKER_NUM")
        host = _text(variables, "MS_SCHED_HOST")
        port = _integer(variables, "MS_SCHED_PORT")
        rank = -1
        if _text(variables, "MS_ROLE") != "MS_SCHED":
            if "MS_NODE_ID" not in variables:
                raise ConfigError("msrun --node_rank", "not given", hint="0 on the first host")
            rank = _integer(variables, "MS_NODE_ID")
        run_key = variables.get(RUN_KEY, f"{host}:{port}/{num_ranks}")
        address = variables.get(HUB_ADDRESS)
        if address is None:
            return cls(rank, num_ranks, host, port + HUB_PORT_OFFSET, run_key, False)
        hub_host, _, hub_port = address.rpartition(":")
        return cls(rank, num_ranks, hub_host, int(hub_port), run_key, True)


def hub_environment(host: str, port: int, run_key: str) -> dict[str, str]:
    """The variables by which a launcher tells its ranks where the hub is."""
    return {HUB_ADDRESS: f"{host}:{port}", RUN_KEY: run_key}


# What ranks get unless the user has set it: large tensors in huge pages, 2 to 10 % faster.
RANK_DEFAULTS = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def inherited(first_in_path: Path, **changes: str) -> dict[str, str]:
    """This process's environment for ranks, with `first_in_path` before all else in PATH."""
    path = os.pathsep.join([str(first_in_path), os.environ.get("PATH", os.defpath)])
    return {**RANK_DEFAULTS, **os.environ, "PATH": path, **changes}


def _text(variables: Mapping[str, str], name: str) -> str:
    if name not in variables:
        raise ConfigError(
            name, "not set", hint="start ranks with vpp-ms run or scripts/msrun_prefill.sh"
        )
    return variables[name]


def _integer(variables: Mapping[str, str], name: str) -> int:
    text = _text(variables, name)
    if not text.isdecimal():
        raise ConfigError(name, repr(text), allowed="a number >= 0")
    return int(text)
