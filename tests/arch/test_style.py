"""Laws of the code that a parser can check."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from source_tree import Module, modules

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_EXPORTS = 400, 80, 10

# Larger than the limit, and why: "file" or "file::function" -> reason.
LARGER: dict[str, str] = {}

# Files outside config/ that touch the environment, and why.
ENVIRONMENT_FILES: dict[str, str] = {
    "vpp_ms/engine/launch.py": "hands the ranks their environment",
}

MODULES = list(modules().values())


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.file)
def test_file_is_short(module: Module) -> None:
    lines = len(module.path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES or module.file in LARGER, f"{lines} lines"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.file)
def test_functions_are_short(module: Module) -> None:
    for function in _functions(module.tree):
        lines = (function.end_lineno or 0) - function.lineno + 1
        key = f"{module.file}::{function.name}"
        assert lines <= MAX_FUNCTION_LINES or key in LARGER, f"{key}: {lines} lines"


@pytest.mark.parametrize("module", [m for m in MODULES if m.room != "cli"], ids=lambda m: m.file)
def test_prints_only_in_the_command_line(module: Module) -> None:
    lines = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not lines, f"print in {module.file}, lines {lines}"


@pytest.mark.parametrize("module", [m for m in MODULES if m.room != "config"], ids=lambda m: m.file)
def test_environment_is_read_in_config_only(module: Module) -> None:
    lines = [node.lineno for node in ast.walk(module.tree) if _is_environment(node)]
    assert not lines or module.file in ENVIRONMENT_FILES, f"{module.file}, lines {lines}"


@pytest.mark.parametrize("module", [m for m in MODULES if m.is_package], ids=lambda m: m.file)
def test_door_plates(module: Module) -> None:
    plate = ast.get_docstring(module.tree) or ""
    assert len(plate.split()) >= 5 and "TODO" not in plate, "a paragraph says what the room is for"
    exports = _exports(module.tree)
    assert len(exports) <= MAX_EXPORTS, f"{len(exports)} names: {exports}"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.file)
def test_every_module_says_what_it_is(module: Module) -> None:
    assert ast.get_docstring(module.tree), "a module docstring"
    if len(module.tree.body) > 1 and not module.is_package:
        assert any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__"
            for node in module.tree.body
        ), "from __future__ import annotations"


def test_the_lists_of_exceptions_hold_no_leftovers() -> None:
    files = {module.file for module in MODULES}
    for key in (*LARGER, *ENVIRONMENT_FILES):
        assert key.split("::")[0] in files, f"{key} is gone: take it out of the list"


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def _is_environment(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in {"environ", "getenv", "putenv"}
    ) or (
        isinstance(node, ast.ImportFrom)
        and node.module == "os"
        and any(alias.name in {"environ", "getenv"} for alias in node.names)
    )


def _exports(tree: ast.Module) -> list[str]:
    """`__all__` where there is one, else every public name the file binds."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if "__all__" in targets:
                return list(ast.literal_eval(node.value))
            names += targets
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
    return [name for name in names if not name.startswith("_")]
