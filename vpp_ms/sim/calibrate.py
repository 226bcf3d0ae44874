"""`calibrate`: a cost model fitted to what a run's ranks really took.

Least squares over the prefill actions of one or more traces, in the terms of `CostModel`: a
layer's launch, token, pair and (latent attention) prefix token; and where the data can tell them
apart a token of each layer kind by itself (else they are in the ratio of their FLOPs), the head,
what a stage costs besides its layers and for its messages (stages with different numbers of layers
tell), and the embedding. Misfits are relative, so that long chunks do not drown the
short ones, and outliers weigh less (Huber).

Shapes: N samples (one action of one trace), K figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import VppError
from vpp_ms.plan.cost import CostModel, PartCost, features_F, messages_of
from vpp_ms.plan.flops import layer_flops
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.plan import fingerprint
from vpp_ms.plan.stages import StageSpec
from vpp_ms.sim.costs import LOGIT_BYTES, Costs, LinkCosts
from vpp_ms.trace.events import COMPUTE, RECV, SEND, Trace
from vpp_ms.trace.meta import read_meta

MIN_SAMPLES = 12
MAX_CONDITION = 1e4  # of the scaled design matrix
MAX_RESIDUAL = 0.15  # root mean square of the relative misfit, outliers weighing less
MAX_UNCERTAINTY = 0.5  # standard error of a figure over the figure
HINT = "chunks of several sizes (chunking.method: tail), longer prompts, a quiet machine"
HUBER = 1.5  # misfits beyond so many standard deviations weigh less
WILD = 0.4  # relative misfits beyond this do not count in the mean
BESIDES = ("embedding", "message")  # parts that may be lost in the noise
Figure = tuple[str, str]  # (part, figure), such as ("layer", "pair")
TOKEN, PAIR = ("layer", "token"), ("layer", "pair")
LAUNCH, PREFIX_TOKEN = ("layer", "launch"), ("layer", "prefix_token")
OPTIONAL = (
    ("head", "sample"),
    ("message", "token"),
    ("stage", "launch"),
    ("embedding", "token"),
)


class CalibrationError(VppError):
    """Traces that cannot carry a cost model."""


@dataclass(frozen=True)
class Calibration:
    """`figures` in seconds, by part; `uncertainty` is each one's relative standard error, and
    `residual` the relative misfit."""

    costs: Costs
    figures: Mapping[Figure, float]
    num_samples: int
    residual: float
    condition: float
    uncertainty: Mapping[Figure, float]


def calibrate(traces: Mapping[str, Trace], spec: ModelSpec, footprint: Footprint) -> Calibration:
    """Costs of `spec` from traces by name (a path), all of that model.

    Raises CalibrationError for traces of another model, and with a reason when the data cannot
    carry a model: too few actions, all alike, too much scatter, growth lost in the noise.
    """
    if not traces:
        raise CalibrationError("calibrate", "no trace", allowed="one or more trace.json")
    samples = [sample for name, trace in traces.items() for sample in _samples(name, trace, spec)]
    if len(samples) < MIN_SAMPLES:
        raise CalibrationError(
            ", ".join(traces),
            f"{len(samples)} prefill actions",
            allowed=f"at least {MIN_SAMPLES}",
            hint="a longer prompt or smaller chunks",
        )
    fit = _fit(_Table.of(samples, spec))
    if fit.flaw is not None:
        raise CalibrationError(", ".join(traces), fit.flaw, hint=HINT)
    model = _cost_model(fit.figures, spec)
    origin = f"calibrated from {len(samples)} actions of {len(traces)} traces"
    costs = Costs(model, _link(traces, spec, footprint), origin.replace(" 1 traces", " 1 trace"))
    return Calibration(
        costs, fit.figures, len(samples), fit.residual, fit.condition, fit.uncertainty
    )


@dataclass(frozen=True)
class _Sample:
    """One action: layers of each kind, features of its micro-batch, seconds."""

    layers: Mapping[str, int]
    stage: StageSpec
    num_messages: int
    features_F: np.ndarray
    time_s: float


def _samples(name: str, trace: Trace, spec: ModelSpec) -> Iterator[_Sample]:
    meta = read_meta(trace, name)
    if meta.model != fingerprint(spec):
        raise CalibrationError(
            name,
            f"a trace of model {meta.model}",
            allowed=f"{fingerprint(spec)}, the model of the configuration",
        )
    num_messages = messages_of(meta.stages)
    features = [features_F(segments) for segments in meta.cargo.segments]
    for event in trace.of(COMPUTE):
        is_prefill = event.micro_batch not in meta.cargo.decode
        if is_prefill and event.micro_batch < len(features) and event.duration_s > 0.0:
            stage, segments = meta.stages[event.stage], meta.cargo.segments[event.micro_batch]
            yield _Sample(
                Counter(map(spec.layer_kind, stage.layers_of(segments[0].request))),
                stage,
                num_messages[event.stage],
                features[event.micro_batch],
                event.duration_s,
            )


@dataclass(frozen=True)
class _Table:
    """The design matrix, each row divided by its time: a perfect fit gives ones."""

    columns: Mapping[Figure, np.ndarray]
    kinds: tuple[str, ...]
    is_latent: bool

    @classmethod
    def of(cls, samples: Sequence[_Sample], spec: ModelSpec) -> _Table:
        flops = _token_flops(spec)
        x_NF = np.array([sample.features_F for sample in samples])
        x_NF /= np.array([sample.time_s for sample in samples])[:, None]
        launch_N, token_N, pair_N, prefix_N, sample_N = x_NF.T
        layers_N = np.array([sum(sample.layers.values()) for sample in samples], float)
        messages_N = np.array([sample.num_messages for sample in samples], float)
        first_N = np.array([sample.stage.is_first for sample in samples], float)
        last_N = np.array([sample.stage.is_last for sample in samples], float)
        columns: dict[Figure, np.ndarray] = {
            LAUNCH: layers_N * launch_N,
            PAIR: layers_N * pair_N,
            PREFIX_TOKEN: layers_N * prefix_N,
            TOKEN: np.zeros(len(samples)),
            ("head", "sample"): last_N * sample_N,
            ("stage", "launch"): launch_N,
            ("message", "token"): messages_N * token_N,
            ("embedding", "token"): first_N * token_N,
        }
        for kind, share in flops.items():
            count_N = np.array([sample.layers.get(kind, 0) for sample in samples], float)
            columns[kind, "token"] = count_N * token_N
            columns[TOKEN] += share * count_N * token_N
        return cls(columns, tuple(flops), spec.mla is not None)

    def design_NK(self, figures: Sequence[Figure]) -> np.ndarray:
        return np.stack([self.columns[figure] for figure in figures], axis=1)

    def condition(self, figures: Sequence[Figure]) -> float:
        design_NK = self.design_NK(figures)
        norm_K = np.linalg.norm(design_NK, axis=0)
        if not norm_K.all():
            return float("inf")
        return float(np.linalg.cond(design_NK / norm_K))


@dataclass(frozen=True)
class _Fit:
    figures: Mapping[Figure, float]
    residual: float
    condition: float
    uncertainty: Mapping[Figure, float]
    flaw: str | None = None


def _fit(table: _Table) -> _Fit:
    """What must be known of a layer, and each other figure that the data can tell from it."""
    chosen = [TOKEN, PAIR, LAUNCH] + ([PREFIX_TOKEN] if table.is_latent else [])
    condition = table.condition(chosen)
    if not condition < MAX_CONDITION:
        flaw = f"all actions are too alike to tell costs apart (condition {condition:.1e})"
        return _Fit({}, np.nan, condition, {}, flaw)
    apart = [(kind, "token") for kind in table.kinds]
    if len(apart) > 1 and _is_clear(table, [*apart, *chosen[1:]], len(apart)):
        chosen = [*apart, *chosen[1:]]
    for figure in OPTIONAL:
        if _is_clear(table, [figure, *chosen], 1):
            chosen.append(figure)
    value_K, error_K, residual = _solve(table.design_NK(chosen))
    while (value_K < 0.0).any():  # noise around nothing
        chosen.pop(int(np.argmin(value_K / error_K)))
        value_K, error_K, residual = _solve(table.design_NK(chosen))
    figures = dict(zip(chosen, value_K.tolist(), strict=True))
    uncertainty = dict(zip(chosen, (error_K / value_K).tolist(), strict=True))
    why = _flaw(figures, uncertainty, residual)
    return _Fit(figures, residual, table.condition(chosen), uncertainty, why)


def _is_clear(table: _Table, figures: Sequence[Figure], count: int) -> bool:
    """The first `count` figures are told apart from the others, and from nothing."""
    if not table.condition(figures) < MAX_CONDITION / 10:
        return False
    value_K, error_K, _ = _solve(table.design_NK(figures))
    return bool((error_K[:count] < MAX_UNCERTAINTY * value_K[:count]).all())


def _flaw(
    figures: Mapping[Figure, float], uncertainty: Mapping[Figure, float], residual: float
) -> str | None:
    if residual > MAX_RESIDUAL:
        return f"times scatter by {residual:.0%} around the best fit"
    if PAIR not in figures:
        return "times do not grow with the prefix"
    if not any(figure == "token" and part not in BESIDES for part, figure in figures):
        return "times do not grow with the chunk"
    for (part, what), error in uncertainty.items():
        if what in ("token", "pair") and part not in BESIDES and error > MAX_UNCERTAINTY:
            return f"what a {what} costs is lost in the noise (+- {error:.0%})"
    return None


def _solve(design_NK: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Figures, their standard errors, and the (weighed) root mean square misfit.

    An action is often slower than usual and never faster than possible, so what fits most of them
    is too little for their sum: figures are raised until they fit the mean, wild ones left out.
    """
    num_samples, num_figures = design_NK.shape
    scale_K = np.linalg.norm(design_NK, axis=0)
    scaled_NK = design_NK / scale_K
    weight_N = np.ones(num_samples)
    for _ in range(4):
        weighted_NK = scaled_NK * weight_N[:, None]
        value_K = np.linalg.lstsq(weighted_NK, weight_N, rcond=None)[0]
        misfit_N = np.abs(scaled_NK @ value_K - 1.0)
        spread = max(1.4826 * float(np.median(misfit_N)), 1e-9)
        weight_N = np.sqrt(np.minimum(1.0, HUBER * spread / np.maximum(misfit_N, 1e-12)))
    near_N = misfit_N <= WILD
    value_K = value_K * float(np.mean(1.0 / (scaled_NK[near_N] @ value_K)))
    freedom = max(num_samples - num_figures, 1)
    variance = float(np.sum((weight_N * misfit_N) ** 2)) / freedom
    covariance_KK = variance * np.linalg.pinv(weighted_NK.T @ weighted_NK)
    error_K = np.sqrt(np.diag(covariance_KK))
    residual = float(np.sqrt(np.mean((weight_N * misfit_N) ** 2)))
    return value_K / scale_K, error_K / scale_K, residual


def _token_flops(spec: ModelSpec) -> dict[str, float]:
    """Each kind's FLOPs per token, as a multiple of the first kind's."""
    kinds = dict.fromkeys(spec.layer_kind(layer) for layer in range(spec.num_layers))
    flops = {kind: layer_flops(spec, kind).token for kind in kinds}
    return {kind: value / next(iter(flops.values())) for kind, value in flops.items()}


def _cost_model(figures: Mapping[Figure, float], spec: ModelSpec) -> CostModel:
    layers = {
        kind: PartCost(
            launch_s=figures.get(LAUNCH, 0.0),
            token_s=figures.get((kind, "token"), share * figures.get(TOKEN, 0.0)),
            pair_s=figures[PAIR],
            prefix_token_s=figures.get(PREFIX_TOKEN, 0.0),
        )
        for kind, share in _token_flops(spec).items()
    }
    return CostModel(
        layers=layers,
        layer_kinds=tuple(spec.layer_kind(layer) for layer in range(spec.num_layers)),
        embedding=PartCost(token_s=figures.get(("embedding", "token"), 0.0)),
        head=PartCost(sample_s=figures.get(("head", "sample"), 0.0)),
        stage=PartCost(launch_s=figures.get(("stage", "launch"), 0.0)),
        message=PartCost(token_s=figures.get(("message", "token"), 0.0)),
    )


def _link(traces: Mapping[str, Trace], spec: ModelSpec, footprint: Footprint) -> LinkCosts:
    """Medians from the hand-over to the landing: per byte (Theil-Sen), and the rest."""
    points: list[tuple[float, float]] = []
    for trace in traces.values():
        sent_s = {(e.stage, e.micro_batch): e.start_s for e in trace.of(SEND)}
        for event in trace.of(RECV):
            key = (event.stage, event.micro_batch)
            if key in sent_s:
                points.append((event.num_bytes, max(event.end_s - sent_s[key], 0.0)))
    token_bytes = spec.hidden_size * footprint.item_bytes
    row_bytes = spec.vocab_size * LOGIT_BYTES
    if not points:
        return LinkCosts(0.0, 0.0, token_bytes, row_bytes)
    points = sorted(points)[:: max(len(points) // 100, 1)]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for i, a in enumerate(points)
        for b in points[i + 1 :]
        if b[0] > 1.5 * a[0]
    ]
    byte_s = max(median(slopes), 0.0) if slopes else 0.0
    latency_s = max(median(delay_s - byte_s * size for size, delay_s in points), 0.0)
    return LinkCosts(latency_s, byte_s, token_bytes, row_bytes)
