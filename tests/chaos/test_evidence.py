"""What counts as the sign of a fault, on a cluster made up for it."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.evidence import CONTROLLER, Evidence
from tests.chaos.other_faults import expired


def _trio(*registrations: tuple[int, int]) -> Any:
    """A broker's epoch and session, each time somebody looks; the last stays."""
    left = list(registrations)
    return SimpleNamespace(
        brokers={1: SimpleNamespace(starts=1)},
        registered=lambda: {1: left.pop(0) if len(left) > 1 else left[0]},
        expire=lambda _: None,
        until=lambda holds, *_: holds(),
        partitions=dict,
    )


def _expire(trio: Any) -> Evidence:
    told = Evidence({}, controller=1)
    with expired(trio, told, CONTROLLER):
        pass
    return told


def test_a_broker_that_had_been_started_passed_for_one_with_another_session() -> None:
    with pytest.raises(AssertionError, match="session of broker 1 is another"):
        _expire(_trio((5, 70), (9, 70)))
    assert _expire(_trio((5, 70), (9, 71))).seen == [
        "broker 1 has another broker epoch",
        "the session of broker 1 is another",
    ]
