"""A toy decoder in numpy: exact integers, a KV cache in paged blocks, the interface of a stage.

Every stage adds to each token the sum of all it has cached of that request up to the token, so
a lost, repeated, reordered or misplaced token changes every later number.
"""

from __future__ import annotations

import threading

import numpy as np

from vpp_ms.engine.engine import Engine
from vpp_ms.engine.progress import Progress
from vpp_ms.engine.prompts import Prompt
from vpp_ms.engine.request import Request
from vpp_ms.engine.sampler import Sampler
from vpp_ms.executor.rank import Executor
from vpp_ms.executor.recorder import Recorder
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.plan import Plan
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.transport.inproc import InProcessNetwork

VOCAB, MODULUS = 31, 2_147_483_629


class ToyStage:
    """One stage of `num_stages`; `slots` is its paged cache."""

    def __init__(self, stage: int, num_stages: int, num_blocks: int, block_size: int) -> None:
        self.stage, self.is_last = stage, stage == num_stages - 1
        self._block_size = block_size
        self.slots = np.full(num_blocks * block_size, -1, np.int64)

    def run(self, micro_batch: MicroBatch, payload: np.ndarray) -> np.ndarray | None:
        x_T = np.asarray(payload, np.int64)
        out_T, logits, begin = np.empty_like(x_T), [], 0
        for segment in micro_batch.segments:
            end = begin + segment.length
            table = np.asarray(segment.blocks)
            positions = np.arange(segment.start + segment.length)
            slots = table[positions // self._block_size] * self._block_size
            slots += positions % self._block_size
            self.slots[slots[segment.start :]] = x_T[begin:end]
            sums = np.cumsum(self.slots[slots]) % MODULUS
            out_T[begin:end] = (3 * x_T[begin:end] + sums[segment.start :] + self.stage) % MODULUS
            if segment.sample:
                logits.append(toy_logits(out_T[end - 1]))
            begin = end
        if not self.is_last:
            return out_T
        return np.stack(logits) if logits else None

    def example_payload(self, num_tokens: int) -> np.ndarray:
        return np.zeros(num_tokens, np.int64)

    def warm_up(self) -> None:
        """Nothing to compile."""


def toy_logits(value: int) -> np.ndarray:
    return ((np.arange(1, VOCAB + 1) * (value % 1009 + 1)) % 1013).astype(np.float32)


def toy_answer(prompt: Prompt, num_stages: int) -> list[int]:
    """Greedy tokens, one unchunked forward per token, no pipeline."""
    tokens = list(prompt.token_ids)
    for _ in range(prompt.max_new_tokens):
        x_T = np.asarray(tokens, np.int64)
        for stage in range(num_stages):
            x_T = (3 * x_T + np.cumsum(x_T) % MODULUS + stage) % MODULUS
        tokens.append(int(np.argmax(toy_logits(x_T[-1]))))
    return tokens[len(prompt.token_ids) :]


def serve(
    plan: Plan, prompts: list[Prompt], eos: frozenset[int] = frozenset(), **network: object
) -> tuple[list[Request], list[Recorder], Engine]:
    """Serve on real executors and engine, one thread per rank. Re-raises a rank's error."""
    placement = plan.placement
    net = InProcessNetwork(placement.num_ranks, **network)  # type: ignore[arg-type]
    recorders = [Recorder(rank) for rank in range(placement.num_ranks)]
    costs = CostModel(
        {"toy": PartCost(launch_s=1e-3, token_s=1e-3, pair_s=1e-4)},
        ("toy",) * plan.stages[-1].end_layer,
    ).for_stages(plan.stages)
    found: list[Engine] = []
    answers: list[list[Request]] = []
    errors: list[BaseException] = []

    def rank_main(rank: int) -> None:
        try:
            stages = {
                s: ToyStage(s, placement.num_stages, plan.num_blocks, plan.block_size)
                for s in placement.stages_of(rank)
            }
            channel = net.channel(rank)
            executor = Executor(placement, stages, channel, recorders[rank])
            if rank == 0:
                progress = Progress(0, recorders[0], lambda event: None)
                engine = Engine(plan, costs, executor, recorders[0], Sampler(), eos, progress)
                found.append(engine)
                answers.append(engine.run(prompts))
            else:
                while not executor.drained:
                    executor.step(timeout_s=1.0)
            channel.close()
        except BaseException as error:
            errors.append(error)

    ranks = range(placement.num_ranks)
    threads = [threading.Thread(target=rank_main, args=(r,), daemon=True) for r in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert errors or not thread.is_alive(), "a rank hangs"
    if errors:
        raise errors[0]
    return answers[0], recorders, found[0]
