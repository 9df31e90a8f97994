"""The faults of a file that a pydantic model refuses, as texts."""

import reprlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import ValidationError

_TELL_ALL: Final = ("extra_forbidden", "missing", "too_short", "unexpected_keyword_argument")
"""The kinds of faults whose text needs no value."""


def first_fault(error: "ValidationError") -> str:
    """Return in one line where the first fault is, what stands there, and what belongs there."""
    first = error.errors(include_url=False)[0]
    text = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return text
    if first["type"] not in _TELL_ALL:
        text = f"{text}, not {reprlib.repr(first['input'])}"
    return f"{''.join(map(_step, first['loc'])).removeprefix('.')}: {text}"


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    # A name from a file may be anything.
    return f".{part if part.isidentifier() else reprlib.repr(part)}"
