"""The package read as source: modules, what they import, and where they live."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = {"vpp_ms": ROOT / "vpp_ms", "vpp_ms.model_zoo": ROOT / "model_zoo"}


@dataclass(frozen=True)
class Module:
    """`name` is dotted; a package is named without `__init__`."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        """The part behind `vpp_ms.`: a room, or a free module such as `errors`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @property
    def file(self) -> str:
        """Path below the checkout, with forward slashes."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@cache
def modules() -> dict[str, Module]:
    found = {}
    for prefix, folder in TREES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((prefix, *parts)).removesuffix(".__init__")
            found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of everything imported, at top level or inside functions.

    `from package import name` counts as the sub-module where there is one.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            for alias in node.names:
                below = f"{base}.{alias.name}"
                yield (below if below in modules() else base), node.lineno


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join((*parts[:keep], *([node.module] if node.module else [])))
