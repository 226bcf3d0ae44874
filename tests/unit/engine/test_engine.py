"""Engine and executors under random layouts, chunks, pools and delays: exact answers, no leak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyStage, serve, toy_answer

from vpp_ms.engine.prompts import Prompt
from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.plan import Plan, StageSpec, WindowSpec
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.trace.events import COMPUTE

BLOCK = 4


def plan_for(placement: Placement, chunk: int, num_blocks: int, window: int = 8) -> Plan:
    last = placement.num_stages - 1
    stages = tuple(
        StageSpec(s, placement.rank_of(s), s, s + 1, s == 0, s == last) for s in range(last + 1)
    )
    return Plan(
        method="vpp",
        placement=placement,
        stages=stages,
        chunking=ChunkRule("fixed", chunk),
        order="best",
        window=WindowSpec(window),
        block_size=BLOCK,
        num_blocks=num_blocks,
        limits=(("test", 10_000),),
        dtype="float32",
        model="toy",
        memory=(),
    )


def prompts_of(lengths: list[int], max_new_tokens: int = 3) -> list[Prompt]:
    return [
        Prompt(f"r{i}", tuple((7 * i + 3 * t) % 29 for t in range(length)), max_new_tokens)
        for i, length in enumerate(lengths)
    ]


placements = st.one_of(
    st.builds(Placement, st.just("plain"), st.integers(1, 4)),
    st.builds(Placement, st.sampled_from(["loop", "v"]), st.integers(1, 4), st.integers(1, 4)),
)


@settings(max_examples=60)
@given(
    placements,
    st.integers(1, 20),
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.integers(16, 60),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_answers_are_exact(placement, chunk, lengths, num_blocks, window, new_tokens):
    prompts = prompts_of(lengths, new_tokens)
    plan = plan_for(placement, chunk, num_blocks, window)
    requests, _, engine = serve(plan, prompts, max_delay_s=0.002)
    for request, prompt in zip(requests, prompts, strict=True):
        assert request.output_token_ids == toy_answer(prompt, placement.num_stages)
        assert request.finish_reason == "length"
        assert sum(request.chunks) == len(prompt.token_ids)
    assert engine.free_blocks == num_blocks
    assert [mb.index for mb in engine.prefill] == sorted({mb.index for mb in engine.prefill})


@pytest.mark.parametrize("slow_rank", range(4))
def test_a_slow_rank_changes_nothing(slow_rank: int) -> None:
    prompts = prompts_of([61, 5, 17, 33])
    plan = plan_for(Placement("v", 4, 2), 8, 64)
    requests, _, _ = serve(plan, prompts, max_delay_s=0.001, delays_s={slow_rank: 0.02})
    assert [r.output_token_ids for r in requests] == [toy_answer(p, 8) for p in prompts]


def test_each_rank_runs_each_action_once_in_fifo_order_per_stage() -> None:
    plan = plan_for(Placement("v", 3, 2), 4, 64)
    _, recorders, engine = serve(plan, prompts_of([33, 9], 0), max_delay_s=0.002)
    for rank, recorder in enumerate(recorders):
        done = [(e.stage, e.micro_batch) for e in recorder.events if e.kind == COMPUTE]
        for stage in plan.placement.stages_of(rank):
            assert [m for s, m in done if s == stage] == list(range(len(engine.prefill)))


def test_first_rank_does_not_wait_for_chunks_that_yield_no_token() -> None:
    plan = plan_for(Placement("plain", 4), 4, 64)
    _, recorders, _ = serve(plan, prompts_of([32], 1), max_delay_s=0.003)
    computed = {
        (e.rank, e.micro_batch): e for r in recorders for e in r.events if e.kind == COMPUTE
    }
    assert all(computed[0, i + 1].start_s < computed[3, i].end_s for i in range(7))


def test_a_request_larger_than_the_pool_fails_alone() -> None:
    prompts = prompts_of([60, 9])
    requests, _, engine = serve(plan_for(Placement("v", 2, 2), 16, 8), prompts)
    assert requests[0].finish_reason == "error"
    assert "8 blocks of 4" in (requests[0].error or "")
    assert requests[1].output_token_ids == toy_answer(prompts[1], 4)
    assert engine.free_blocks == 8


def test_only_a_sampled_end_token_stops() -> None:
    prompt = prompts_of([21], 6)[0]
    answer = toy_answer(prompt, 4)
    eos = answer[2]
    inside = replace(prompt, token_ids=(*prompt.token_ids[:15], eos, *prompt.token_ids[16:]))
    for asked in (prompt, inside):
        expected = toy_answer(asked, 4)
        cut = expected.index(eos) if eos in expected else len(expected)
        requests, _, _ = serve(plan_for(Placement("v", 2, 2), 16, 32), [asked], frozenset([eos]))
        assert requests[0].output_token_ids == expected[:cut]
        assert requests[0].finish_reason == ("stop" if eos in expected else "length")


def test_end_token_first_gives_an_empty_answer() -> None:
    prompt = prompts_of([21], 6)[0]
    eos = frozenset(toy_answer(prompt, 2)[:1])
    requests, _, _ = serve(plan_for(Placement("plain", 2), 16, 32), [prompt], eos)
    assert (requests[0].output_token_ids, requests[0].finish_reason) == ([], "stop")
    assert requests[0].ttft_s is not None


def test_an_exception_on_a_rank_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ToyStage, micro_batch: object, payload: object) -> None:
        raise RuntimeError("stage is broken")

    monkeypatch.setattr(ToyStage, "run", broken)
    with pytest.raises(RuntimeError, match="stage is broken"):
        serve(plan_for(Placement("plain", 1), 16, 32), prompts_of([5]))


def test_logits_that_are_not_finite_fail_their_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    healthy = ToyStage.run

    def run(self: ToyStage, micro_batch: MicroBatch, payload: object) -> object:
        result = healthy(self, micro_batch, payload)
        if self.is_last and result is not None and micro_batch.segments[0].request == 0:
            result[0, 3] = np.inf
        return result

    monkeypatch.setattr(ToyStage, "run", run)
    prompts = prompts_of([17, 30])
    requests, _, engine = serve(plan_for(Placement("v", 2, 2), 16, 32), prompts)
    assert requests[0].finish_reason == "error" and "not finite" in (requests[0].error or "")
    assert requests[0].output_token_ids == []
    assert requests[1].output_token_ids == toy_answer(prompts[1], 4)
    assert engine.free_blocks == 32


def test_time_to_first_token_counts_to_the_first_committed_token() -> None:
    plan = plan_for(Placement("plain", 2), 4, 64)
    requests, recorders, _ = serve(plan, prompts_of([16], 4), max_delay_s=0.003)
    computed = [e for e in recorders[1].events if e.kind == COMPUTE]
    last_chunk = next(e for e in computed if e.micro_batch == 3)
    ttft_s = requests[0].ttft_s
    assert ttft_s is not None and last_chunk.end_s - 0.05 < ttft_s < last_chunk.end_s + 0.5
