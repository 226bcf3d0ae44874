"""`DeviceCard`: what one device can do, each figure with its origin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from vpp_ms.config.schema import Section
from vpp_ms.errors import ConfigError, nearest
from vpp_ms.sim.forms import read_form

CARDS = Path(__file__).with_name("cards")


class Figure(Section):
    """A number and where it comes from."""

    value: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    origin: Literal["measured", "vendor", "assumed"]
    note: str = ""


class Rate(Figure):
    """Per second; never 0."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Share(Figure):
    """Of a peak rate, above 0 and up to 1."""

    value: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class DeviceCard(Section):
    """One device of a rank. Times of parts follow from it, see `derive`."""

    about: str
    gemm_flops_per_s: Rate = Field(description="peak of large matrix products")
    gemm_efficiency: Share = Field(description="share of it that projections and experts reach")
    attention_efficiency: Share = Field(description="share of it that attention reaches")
    memory_bytes: Rate | None = Field(None, description="for weights, KV and activations")
    memory_bytes_per_s: Rate = Field(description="weights are read once per micro-batch")
    layer_launch_s: Figure = Field(description="to start one layer, whatever its size")
    stage_launch_s: Figure = Field(description="to start one stage, on top of its layers")
    message_bytes_per_s: Rate = Field(
        description="of its share of a message: what packing or taking it in costs its own time"
    )
    link_latency_s: Figure = Field(description="of a message between two ranks")
    link_bytes_per_s: Rate = Field(description="of each device's share of a message")
    collective_latency_s: Figure = Field(description="of one all-reduce inside a rank")
    collective_bytes_per_s: Rate = Field(description="that each device of a rank sends in it")

    @property
    def origins(self) -> dict[str, str]:
        """Figure -> where it comes from."""
        figures = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: figure.origin for name, figure in figures if isinstance(figure, Figure)}


def load_card(name: str) -> DeviceCard:
    """A card that ships with the package, by its name, or a file. Raises ConfigError."""
    known = sorted(path.stem for path in CARDS.glob("*.yaml"))
    if name in known:
        return read_form(CARDS / f"{name}.yaml", DeviceCard)
    if Path(name).suffix in (".yaml", ".yml"):
        return read_form(Path(name), DeviceCard)
    raise ConfigError(
        "device",
        repr(name),
        allowed=", ".join(known) + " or a .yaml file",
        hint=nearest(name, known),
    )
