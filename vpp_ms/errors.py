"""The one family of errors that a user can cause; everything else is a bug."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class VppError(ValueError):
    """Where it is wrong, what was got, what is allowed and what to try, on one line."""

    def __init__(
        self, where: str, got: object, *, allowed: object = None, hint: str | None = None
    ) -> None:
        self.where, self.got, self.allowed, self.hint = where, got, allowed, hint
        parts = [f"{where}: {got}"]
        if allowed is not None:
            parts.append(f"allowed: {allowed}")
        if hint is not None:
            parts.append(f"try: {hint}")
        super().__init__("; ".join(parts))

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.where, self.got, self.allowed, self.hint)


class ConfigError(VppError):
    """A key of the YAML file, a flag or a launch setting."""


class PlanError(VppError):
    """A plan or schedule that cannot be: stages, layers, chunks, memory."""


class CheckpointError(VppError):
    """A model directory that cannot be read as what it says it is."""


class RequestError(VppError):
    """One request; the next one is served."""


class RankError(VppError):
    """A rank died, hung or raised; the run ends and names it."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def _rebuild(
    cls: type[VppError], where: str, got: object, allowed: object, hint: str | None
) -> VppError:
    return cls(where, got, allowed=allowed, hint=hint)
