"""One import direction, no cycle, and MindSpore only where it belongs."""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatch

from source_tree import ROOT, Module, imports, modules

FREE = {"errors", "log", ""}  # "" is vpp_ms itself, which only holds the version

# Room -> rooms it may import. A room imports only rooms above it.
ALLOWED: dict[str, set[str]] = {
    "config": set(),
    "plan": {"config"},
    "schedule": {"config", "plan"},
    "trace": {"config", "plan", "schedule"},
    "sim": {"config", "plan", "schedule", "trace"},
    "transport": {"config"},
    "kv": {"config", "plan"},
    "model": {"config", "plan", "schedule", "kv"},
    "model_zoo": {"config", "model"},
    "executor": {"config", "plan", "schedule", "trace", "transport", "kv", "model"},
    "engine": {
        "config",
        "plan",
        "schedule",
        "trace",
        "sim",
        "transport",
        "kv",
        "model",
        "executor",
    },
    "serve": {"config", "plan", "schedule", "trace", "engine", "sim"},
    "integrations": {"config", "plan", "schedule", "trace", "kv", "model", "engine", "sim"},
    "cli": {
        "config",
        "plan",
        "schedule",
        "trace",
        "model",
        "engine",
        "sim",
        "integrations",
        "serve",
    },
}

MINDSPORE_FILES = (
    "vpp_ms/transport/mindspore_p2p.py",
    "vpp_ms/kv/store*.py",
    "vpp_ms/model/*.py",
    "vpp_ms/executor/*.py",
    "vpp_ms/integrations/*.py",
)


def _room_of(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "vpp_ms":
        return None
    return parts[1] if len(parts) > 1 else ""


def test_every_room_is_in_the_table() -> None:
    rooms = {module.room for module in modules().values()} - FREE
    assert rooms <= set(ALLOWED), f"rooms without a rule: {sorted(rooms - set(ALLOWED))}"


def test_the_table_has_one_direction() -> None:
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {room for room, above in ALLOWED.items() if room not in done and above <= done}
        assert ready, f"rooms that import one another: {sorted(set(ALLOWED) - done)}"
        done |= ready


def test_rooms_import_only_rooms_above() -> None:
    wrong = [
        f"{module.file}:{line} imports {name}"
        for module in modules().values()
        for name, line in imports(module)
        if (room := _room_of(name)) is not None
        and room not in FREE | {module.room}
        and room not in ALLOWED.get(module.room, set())
    ]
    assert not wrong, "\n".join(wrong)


def test_no_cycle_among_modules() -> None:
    edges = {
        name: sorted({target for target, _ in imports(module) if target in modules()} - {name})
        for name, module in modules().items()
    }
    cycle = find_cycle(edges)
    assert cycle is None, " -> ".join(cycle or ())


def find_cycle(edges: dict[str, list[str]]) -> list[str] | None:
    """One cycle as a path that ends where it began, or None."""
    finished: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in finished:
            return None
        for below in edges.get(node, ()):
            found = visit(below, [*path, node])
            if found:
                return found
        finished.add(node)
        return None

    return next((found for node in edges if (found := visit(node, []))), None)


def test_the_cycle_finder_finds_cycles() -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["c"], "c": []}) is None


def _imports_mindspore(module: Module) -> list[int]:
    return [line for name, line in imports(module) if name.split(".")[0] == "mindspore"]


def test_mindspore_only_where_it_belongs() -> None:
    wrong = [
        f"{module.file}:{line} imports mindspore"
        for module in modules().values()
        for line in _imports_mindspore(module)
        if not any(fnmatch(module.file, pattern) for pattern in MINDSPORE_FILES)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_transport_touches_mindspore_in_one_file() -> None:
    files = [m.file for m in modules().values() if m.room == "transport" and _imports_mindspore(m)]
    assert len(files) <= 1, files


def test_simulator_and_executor_never_meet() -> None:
    assert "executor" not in ALLOWED["sim"] and "sim" not in ALLOWED["executor"]


def test_the_command_line_starts_without_mindspore() -> None:
    pure = [
        name
        for name, module in modules().items()
        if module.room in {"cli", "config", "plan", "schedule", "trace", "sim"}
    ]
    code = f"""
import importlib, sys
for name in {pure!r}:
    importlib.import_module(name)
heavy = sorted({{"mindspore", "torch", "transformers"}} & set(sys.modules))
sys.exit(", ".join(heavy) + " was imported" if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
