"""What stands behind a rank's stages: the model on this device, or an emulation of another."""

from __future__ import annotations

from collections.abc import Callable

from vpp_ms.engine.job import Job
from vpp_ms.executor.compute import StageCompute
from vpp_ms.executor.emulated import EmulatedStage
from vpp_ms.model.bank import LayerBank
from vpp_ms.model.checkpoint import CheckpointReader
from vpp_ms.model.stage import Stage
from vpp_ms.plan.plan import Plan, StageSpec
from vpp_ms.sim.defaults import costs_of

StageMaker = Callable[[Plan, StageSpec], StageCompute]


def stage_maker(job: Job) -> StageMaker:
    """Makes the stages of one process; what they share is loaded once."""
    return _emulated_stages(job) if job.config.is_emulated else _real_stages(job)


def _real_stages(job: Job) -> StageMaker:
    """Layers already loaded for another plan are shared, not read again."""
    bank = LayerBank(job.spec, CheckpointReader(job.config.pretrained_model_dir, job.spec))

    def make(plan: Plan, spec: StageSpec) -> StageCompute:
        return Stage(
            job.spec,
            stage=spec.index,
            first_layer=spec.first_layer,
            end_layer=spec.end_layer,
            is_first=spec.is_first,
            is_last=spec.is_last,
            weights=bank,
            num_blocks=plan.num_blocks,
            block_size=plan.block_size,
            turns=spec.turns,
        )

    return make


def _emulated_stages(job: Job) -> StageMaker:
    emulation = job.config.emulation
    model = costs_of(job.config, job.spec).model

    def make(plan: Plan, spec: StageSpec) -> StageCompute:
        return EmulatedStage(
            spec.index,
            spec.is_last,
            model.for_stages(plan.stages),
            time_scale=emulation.time_scale,
            width=emulation.message_width or job.spec.hidden_size,
            vocab_size=job.spec.vocab_size,
        )

    return make
