"""The evidence of faults, on a fake cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.evidence import CONTROLLER, Evidence
from tests.chaos.other_faults import expired


def _cluster(*registrations: tuple[int, int]) -> Any:
    """Return a broker's epoch and session at each look; the last one is repeated."""
    left = list(registrations)
    return SimpleNamespace(
        brokers={1: SimpleNamespace(starts=1)},
        registered=lambda: {1: left.pop(0) if len(left) > 1 else left[0]},
        expire=lambda _: None,
        until=lambda holds, *_: holds(),
        partitions=dict,
    )


def _expire(cluster: Any) -> Evidence:
    told = Evidence({}, controller=1)
    with expired(cluster, told, CONTROLLER):
        pass
    return told


def test_a_broker_that_had_been_started_passed_for_one_with_another_session() -> None:
    with pytest.raises(AssertionError, match="session of broker 1 is another"):
        _expire(_cluster((5, 70), (9, 70)))
    assert _expire(_cluster((5, 70), (9, 71))).seen == [
        "broker 1 has another broker epoch",
        "the session of broker 1 is another",
    ]
