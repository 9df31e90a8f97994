"""What a check finds."""

from typing import NamedTuple

from barnabas.verify.history import Place


class Anomaly(NamedTuple):
    """One thing that must not happen; `name` is Jepsen's where Jepsen has one."""

    check: str
    name: str
    text: str
    at: Place | None = None
    offset: int | None = None
    """Where to look in the log."""
