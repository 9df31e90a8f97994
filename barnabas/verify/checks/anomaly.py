"""The anomaly: the finding of a check."""

from typing import NamedTuple

from barnabas.verify.history import Partition


class Anomaly(NamedTuple):
    """A violation of a guarantee; `name` is Jepsen's name if Jepsen has one."""

    check: str
    name: str
    text: str
    at: Partition | None = None
    offset: int | None = None
    """The offset of the anomaly in the log."""
