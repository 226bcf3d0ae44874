"""`Costs`: what a simulation needs to know of time, and its derivation from a device card.

Derived times of a layer, for one of `tensor_parallel` devices d that share the rank's work:

    token         matrix FLOPs / (d * gemm rate * efficiency) + two all-reduces of hidden states
    pair          attention FLOPs / (d * gemm rate * efficiency)
    prefix token  MLA's up-projection of cached latents, at the gemm rate
    launch        layer launch + its weights read once + latencies of the two all-reduces

and of a stage besides its layers its launch, and for each message the hidden states at the rate at
which the device itself packs or takes them in.

That weights are read on top of the products, and not behind them, is the pessimistic reading.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import VppError
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.flops import head_flops, layer_flops
from vpp_ms.plan.memory import Footprint, layer_parameters
from vpp_ms.plan.placement import Link
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.walk import Hop
from vpp_ms.sim.device import DeviceCard

LOGIT_BYTES = 4  # logits travel in float32


@dataclass(frozen=True)
class LinkCosts:
    """A message occupies its link for bytes * `byte_s` and lands `latency_s` later."""

    latency_s: float = 0.0
    byte_s: float = 0.0
    token_bytes: int = 0
    row_bytes: int = 0

    def hop(self, link: Link, micro_batch: MicroBatch, last_stage: int) -> Hop:
        """Hidden states of all tokens, or behind the last stage the logits of sampled rows."""
        if link.source_stage == last_stage:
            num_bytes = self.row_bytes * micro_batch.num_samples
        else:
            num_bytes = self.token_bytes * micro_batch.num_tokens
        return Hop(num_bytes * self.byte_s, self.latency_s, num_bytes)

    @property
    def is_free(self) -> bool:
        return self.latency_s == 0.0 and self.byte_s == 0.0 and self.token_bytes == 0


@dataclass(frozen=True)
class Costs:
    """`origin` says in words where the figures come from; every output repeats it."""

    model: CostModel
    link: LinkCosts
    origin: str

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Costs:
        """What `save` wrote. Raises VppError for anything else."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(_cost_model(data["model"]), LinkCosts(**data["link"]), data["origin"])
        except OSError as error:
            raise VppError(str(path), (error.strerror or "cannot be read").lower()) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise VppError(
                str(path), "not a cost file", allowed="what vpp-ms calibrate writes"
            ) from error

    def check_model(self, spec: ModelSpec, where: str) -> None:
        """Raises VppError when these are costs of a model with other layers."""
        kinds = tuple(spec.layer_kind(layer) for layer in range(spec.num_layers))
        if kinds != self.model.layer_kinds:
            raise VppError(
                where,
                f"costs of a model with {_counted(self.model.layer_kinds)}",
                allowed=f"costs of this model with {_counted(kinds)}",
            )


def derive(spec: ModelSpec, card: DeviceCard, footprint: Footprint, name: str = "card") -> Costs:
    """Costs of a model on a device, by the formulas at the head of this file."""
    devices = footprint.tensor_parallel
    gemm_s = 1.0 / (devices * card.gemm_flops_per_s.value * card.gemm_efficiency.value)
    attention_s = 1.0 / (devices * card.gemm_flops_per_s.value * card.attention_efficiency.value)
    read_s = 1.0 / (devices * card.memory_bytes_per_s.value)
    hidden_bytes = spec.hidden_size * footprint.item_bytes
    reduced_s = 4.0 * (devices - 1) / devices * hidden_bytes / card.collective_bytes_per_s.value
    waits_s = 2.0 * card.collective_latency_s.value if devices > 1 else 0.0
    kinds = tuple(spec.layer_kind(layer) for layer in range(spec.num_layers))
    layers = {}
    for kind in dict.fromkeys(kinds):
        flops = layer_flops(spec, kind)
        weights = layer_parameters(spec, kinds.index(kind)) * footprint.weight_item_bytes
        layers[kind] = PartCost(
            launch_s=card.layer_launch_s.value + weights * read_s + waits_s,
            token_s=flops.token * gemm_s + reduced_s,
            pair_s=flops.pair * attention_s,
            prefix_token_s=flops.prefix_token * gemm_s,
        )
    table = spec.vocab_size * spec.hidden_size * footprint.weight_item_bytes
    model = CostModel(
        layers=layers,
        layer_kinds=kinds,
        embedding=PartCost(token_s=2.0 * hidden_bytes / card.memory_bytes_per_s.value),
        head=PartCost(sample_s=head_flops(spec) * gemm_s + table * read_s),
        stage=PartCost(launch_s=card.stage_launch_s.value),
        message=PartCost(token_s=hidden_bytes / (devices * card.message_bytes_per_s.value)),
    )
    gathered_s = (devices - 1) / devices / card.collective_bytes_per_s.value
    link = LinkCosts(
        latency_s=card.link_latency_s.value,
        byte_s=1.0 / (devices * card.link_bytes_per_s.value) + gathered_s,
        token_bytes=hidden_bytes,
        row_bytes=spec.vocab_size * LOGIT_BYTES,
    )
    return Costs(model, link, f"derived from device card {name}")


def _cost_model(data: dict[str, Any]) -> CostModel:
    return CostModel(
        layers={kind: PartCost(**part) for kind, part in data["layers"].items()},
        layer_kinds=tuple(data["layer_kinds"]),
        embedding=PartCost(**data["embedding"]),
        head=PartCost(**data["head"]),
        stage=PartCost(**data["stage"]),
        message=PartCost(**data["message"]),
    )


def _counted(kinds: tuple[str, ...]) -> str:
    return " and ".join(f"{kinds.count(kind)} {kind} layers" for kind in dict.fromkeys(kinds))
