"""What a process of the run reads about itself from the environment."""

from __future__ import annotations

import pytest

from vpp_ms.config.environ import RankEnv, hub_environment, inherited
from vpp_ms.errors import ConfigError

MSRUN = {
    "MS_ROLE": "MS_WORKER",
    "MS_WORKER_NUM": "4",
    "MS_NODE_ID": "2",
    "MS_SCHED_HOST": "10.0.0.1",
    "MS_SCHED_PORT": "8118",
}


def test_under_plain_msrun_rank_0_hosts_the_hub_beside_the_master_port():
    env = RankEnv.read(MSRUN)
    assert (env.rank, env.num_ranks, env.hub_host, env.hub_port) == (2, 4, "10.0.0.1", 8119)
    assert not env.hosts_hub
    assert RankEnv.read(MSRUN | {"MS_NODE_ID": "0"}).hosts_hub
    assert RankEnv.read(MSRUN).run_key == RankEnv.read(MSRUN | {"MS_NODE_ID": "0"}).run_key
    assert RankEnv.read(MSRUN).run_key != RankEnv.read(MSRUN | {"MS_SCHED_PORT": "9000"}).run_key


def test_a_launcher_hosts_the_hub_where_it_says():
    variables = MSRUN | {"MS_NODE_ID": "0"} | hub_environment("127.0.0.1", 20_001, "k")
    env = RankEnv.read(variables)
    assert (env.hub_host, env.hub_port, env.run_key, env.hosts_hub) == (
        "127.0.0.1",
        20_001,
        "k",
        False,
    )


def test_the_scheduler_has_no_rank():
    variables = {k: v for k, v in MSRUN.items() if k != "MS_NODE_ID"} | {"MS_ROLE": "MS_SCHED"}
    assert RankEnv.read(variables).is_scheduler
    assert not RankEnv.read(variables).hosts_hub


@pytest.mark.parametrize("missing", sorted(MSRUN))
def test_outside_msrun_the_missing_variable_is_named(missing):
    variables = {k: v for k, v in MSRUN.items() if k != missing}
    wanted = "--node_rank" if missing == "MS_NODE_ID" else missing
    with pytest.raises(ConfigError, match=wanted):
        RankEnv.read(variables)


def test_a_value_that_is_no_number_is_named():
    with pytest.raises(ConfigError, match="MS_WORKER_NUM: 'four'"):
        RankEnv.read(MSRUN | {"MS_WORKER_NUM": "four"})


def test_a_child_inherits_with_the_given_directory_first(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("KEPT", "1")
    child = inherited(tmp_path, ADDED="2")
    assert child["PATH"].split(":") == [str(tmp_path), "/usr/bin"]
    assert (child["KEPT"], child["ADDED"]) == ("1", "2")


def test_ranks_get_huge_pages_unless_the_user_has_tuned_the_allocator(monkeypatch, tmp_path):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert inherited(tmp_path)["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
    assert inherited(tmp_path)["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=1"
