"""The program in `go/`, which uses franz-go."""

from pathlib import Path

from tests.support import go_programs

_SOURCES = Path(__file__).parent / "go"


def why_not() -> str | None:
    """Return the reason why the program cannot be built here; None if it can."""
    reason = go_programs.why_not()
    return None if reason is None else f"franz-go: {reason}"


def program() -> Path:
    """Return the path of the program, which is built on the first call."""
    return go_programs.built(_SOURCES, "franz")
