"""The name that may be meant by one that does not exist."""

from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 100
"""Characters of a name that is compared with others; a peer may send a longer one."""


def closest(name: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """Return the known name that is most like a name; None if none is, by difflib's ratio."""
    # Imported here: most names are known.
    from difflib import get_close_matches

    found = get_close_matches(name, known, 1, cutoff) if len(name) <= _LONGEST else []
    return found[0] if found else None


def asking(meant: str | None) -> str:
    """Return the question behind a name that does not exist; empty without an idea."""
    return "" if meant is None else f" (did you mean {meant}?)"
