"""`vpp-ms` as a person calls it: a process of its own, on a tiny checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from benchmarks.synthetic import prompt_ids, write_checkpoint

ROOT = Path(__file__).parents[2]


class Workbench:
    """A model, a prompts file and a configuration in one directory."""

    def __init__(self, directory: Path, model_dir: Path) -> None:
        self.directory, self.output = directory, directory / "output"
        self.prompts = directory / "prompts.jsonl"
        self._model_dir = model_dir
        self._spawned: list[subprocess.Popen] = []

    def config(self, prompts: list[dict], **sections: object) -> Path:
        self.prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        config = {
            "pretrained_model_dir": str(self._model_dir),
            "output_dir": str(self.output),
            "chunking": {"chunk_tokens": 64},
            "input": {"prompts": str(self.prompts), "ignore_eos": True},
        }
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(config | sections))
        return path

    def start(self, *arguments: object) -> subprocess.Popen:
        command = [str(Path(sys.executable).parent / "vpp-ms"), *map(str, arguments)]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._spawned.append(process)
        return process

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    def result(self) -> dict:
        return json.loads((self.output / "result.json").read_text())

    def left_over(self, within_s: float = 0.0) -> list[str]:
        """Processes of this run that are still there, after `within_s` at most."""
        deadline_s = time.monotonic() + within_s
        while True:
            found = self.processes()
            if not found or time.monotonic() > deadline_s:
                return [" ".join(process.cmdline()) for process in found]
            time.sleep(0.1)

    def processes(self) -> list[psutil.Process]:
        """Every process but pytest's own whose command line names this directory."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = str(self.directory) in " ".join(process.cmdline())
            except psutil.Error:
                continue
            if mine and process.pid != os.getpid():
                found.append(process)
        return found

    def close(self) -> None:
        for process in self._spawned:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(
        tmp_path_factory.mktemp("model"),
        hidden_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        vocab_size=997,
        num_hidden_layers=5,
    )


@pytest.fixture
def workbench(tmp_path: Path, small_model: Path) -> Iterator[Workbench]:
    bench = Workbench(tmp_path, small_model)
    yield bench
    bench.close()


@pytest.fixture
def long_prompt() -> Callable[[int], list[dict]]:
    def make(num_tokens: int) -> list[dict]:
        ids = [token % 997 for token in prompt_ids(num_tokens)]
        return [{"id": "long", "token_ids": ids}]

    return make
