"""Commands: every mistake is one line on stderr and exit code 2, without a stack trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vpp_ms import __version__
from vpp_ms.cli.main import BAD_INPUT, DONE, RANK_LOST, app, run_cli
from vpp_ms.errors import RankError

Capture = pytest.CaptureFixture[str]


def refused(arguments: list[str], capture: Capture) -> str:
    assert run_cli(arguments) == BAD_INPUT
    captured = capture.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vpp-ms: ") and captured.err.count("\n") == 1
    return captured.err


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(f"pretrained_model_dir: {tmp_path / 'no_model'}\n")
    return str(path)


def test_version(capsys: Capture) -> None:
    assert run_cli(["--version"]) == DONE
    assert capsys.readouterr().out == f"vpp-ms {__version__}\n"


def test_help_names_the_commands(capsys: Capture) -> None:
    assert run_cli([]) == DONE
    bare = capsys.readouterr().out
    assert run_cli(["--help"]) == DONE
    assert capsys.readouterr().out == bare
    for command in ("run", "plan", "compare", "prepare-demo"):
        assert f"  {command} " in bare


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["runn"], "'runn'"),
        (["run"], "Missing argument"),
        (["run", "--sett", "x=1", "a.yaml"], "--sett"),
        (["compare", "a.yaml", "--rounds", "0"], "--rounds"),
        (["compare", "a.yaml", "--rounds", "many"], "--rounds"),
        (["plan", "a.yaml", "--tokens", "0"], "--tokens"),
    ],
)
def test_wrong_usage(arguments: list[str], part: str, capsys: Capture) -> None:
    message = refused(arguments, capsys)
    assert part in message and "--help" in message


@pytest.mark.parametrize("command", ["run", "plan", "compare"])
def test_no_such_file(command: str, capsys: Capture) -> None:
    assert "nowhere.yaml: no such file" in refused([command, "nowhere.yaml"], capsys)


@pytest.mark.parametrize("command", ["run", "plan", "compare"])
def test_mistyped_override(command: str, config: str, capsys: Capture) -> None:
    message = refused([command, config, "--set", "vpp.virtual_stagse=2"], capsys)
    assert "--set vpp.virtual_stagse: unknown key" in message
    assert "try: vpp.virtual_stages" in message


@pytest.mark.parametrize("command", ["run", "plan", "compare"])
def test_no_such_model(command: str, config: str, capsys: Capture) -> None:
    message = refused([command, config], capsys)
    assert "no_model: no such directory" in message and "prepare-demo" in message


@pytest.mark.parametrize(
    ("methods", "part"),
    [("cpp,vp", "try: vpp"), ("", "allowed: cpp, dcpp, vpp, auto"), ("cpp,cpp", "once")],
)
def test_methods_of_a_comparison(methods: str, part: str, config: str, capsys: Capture) -> None:
    assert part in refused(["compare", config, "--methods", methods], capsys)


def test_a_demo_is_not_written_over_something_else(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "precious").write_text("")
    assert str(tmp_path) in refused(["prepare-demo", "--target", str(tmp_path)], capsys)


def test_a_lost_rank_has_its_own_exit_code(capsys: Capture) -> None:
    @app.command("lose-a-rank")
    def lose() -> None:
        raise RankError("rank 1", "killed by signal 9", hint="see\nits log")

    try:
        assert run_cli(["lose-a-rank"]) == RANK_LOST
    finally:
        app.registered_commands.pop()
    assert capsys.readouterr().err == "vpp-ms: rank 1: killed by signal 9; try: see its log\n"


def test_the_installed_command_shows_no_stack_trace(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from vpp_ms.cli.main import main; main()", "run", "gone.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == BAD_INPUT
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_a_directory_that_cannot_be_made_is_one_line(config: str, capsys: Capture) -> None:
    target = "/proc/no_such/place"
    message = refused(["prepare-demo", "--target", target], capsys)
    assert "/proc/no_such" in message


def test_a_reader_that_has_seen_enough_causes_no_stack_trace() -> None:
    command = f"{sys.executable} -c 'from vpp_ms.cli.main import main; main()' --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
