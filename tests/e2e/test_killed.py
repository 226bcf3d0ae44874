"""kill -9 of any rank at any time: the command ends soon, names the rank, leaves nothing."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

END_S = 15.0

pytestmark = pytest.mark.slow


def rank_process(workbench, rank: int) -> psutil.Process:
    """The worker that msrun gave this rank, by what msrun wrote into its environment."""
    for process in workbench.processes():
        variables = process.environ()
        is_worker = variables.get("MS_ROLE") == "MS_WORKER"
        if is_worker and variables.get("MS_NODE_ID") == str(rank):
            return process
    raise AssertionError(f"rank {rank} is not running")


@pytest.mark.parametrize(("phase", "rank"), [("load", 1), ("prefill", 0), ("prefill", 1),
                                             ("decode", 1)])  # fmt: skip
def test_killed(workbench, long_prompt, phase: str, rank: int) -> None:
    """Long enough for the kill to come in time: thousands of chunks, or of tokens."""
    num_tokens = 200 if phase == "decode" else 30_000
    config = workbench.config(
        long_prompt(num_tokens),
        chunking={"chunk_tokens": 16 if phase != "decode" else 64},
    )
    process = workbench.start("run", config, "--set", "input.max_new_tokens=2000")
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.strip() == phase:
            break
    else:
        pytest.fail(f"{phase} was never reached: {''.join(seen)}")
    os.kill(rank_process(workbench, rank).pid, signal.SIGKILL)
    killed_s = time.monotonic()
    _, err = process.communicate(timeout=END_S)
    assert time.monotonic() - killed_s < END_S
    assert process.returncode == 3
    assert f"rank {rank}" in err and "Traceback" not in err
    assert workbench.left_over(within_s=5.0) == []
