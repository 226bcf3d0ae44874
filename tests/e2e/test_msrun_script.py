"""scripts/msrun_prefill.sh: the same run for people who start ranks with msrun themselves."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/msrun_prefill.sh"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=150,
    )


@pytest.mark.slow
def test_ranks_started_by_hand_write_the_result_and_end_in_good_order(workbench):
    config = workbench.config([{"id": "a", "token_ids": [3] * 150, "max_new_tokens": 2}])
    log_dir = workbench.directory / "log"
    done = run(config, 2, random.randrange(20_000, 32_000, 2), log_dir)
    logs = {path.name: path.read_text() for path in log_dir.iterdir()}
    assert done.returncode == 0, logs["scheduler.log"][-2000:] + logs["worker_0.log"][-2000:]
    assert {"scheduler.log", "worker_0.log", "worker_1.log"} <= logs.keys()
    (request,) = workbench.result()["requests"]
    assert len(request["output_token_ids"]) == 2
    assert workbench.result()["num_ranks"] == 2


@pytest.mark.slow
def test_a_users_mistake_is_one_line_in_the_logs(workbench):
    config = workbench.config([{"id": "a", "token_ids": []}])
    log_dir = workbench.directory / "log"
    done = run(config, 2, random.randrange(20_000, 32_000, 2), log_dir)
    assert done.returncode != 0
    logs = "".join(path.read_text() for path in log_dir.glob("worker_*.log"))
    assert "Traceback" not in logs
    assert "token_ids" in logs


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "CONFIG [WORKER_NUM]"),
        (("missing.yaml",), "no file 'missing.yaml'"),
        (("README.md", "two"), "WORKER_NUM: 'two' is not a number"),
        (("README.md", 2, 80), "MASTER_PORT: 80; allowed: 1024 to 65534"),
        (("README.md", 2, 8118, "log", "yes"), "JOIN: 'yes'; allowed: True, False"),
        (("README.md", 2, 3, "127.0.0.1", 8118, 0, "log"), "LOCAL_WORKER: 3 of 2"),
        (("README.md", 2, 1, "127.0.0.1", 8118, "first", "log"), "NODE_RANK: 'first'"),
        (tuple("abcdefghij"), "CONFIG [WORKER_NUM]"),
    ],
)
def test_bad_arguments(arguments, says):
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stdout + done.stderr


@pytest.mark.parametrize("offset", [0, 1])
def test_a_taken_port(offset):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run("README.md", 2, port - offset)
    assert done.returncode == 2
    assert f"127.0.0.1:{port} is taken" in done.stderr
