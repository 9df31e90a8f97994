"""What the readers of the simulated cluster may not see, told on topics made up for it."""

from typing import Any

import pytest

from tests.simulation.cluster.workload import Told, judge

_NOTHING: dict[int, list[bytes]] = {}


def _values(*names: str) -> dict[int, list[bytes]]:
    return {0: [name.encode() for name in names]}


def _judge(told: Told, plain: Any = _NOTHING, transacted: Any = _NOTHING, made: Any = None) -> None:
    judge(told, plain, transacted, plain if made is None else made)


def test_acknowledged_records_stood_in_another_order_and_nobody_minded() -> None:
    told = Told(acknowledged={b"a-0", b"a-1"}, began=[0])
    _judge(told, _values("a-0", "a-1"))
    with pytest.raises(AssertionError, match="out of order"):
        _judge(told, _values("a-1", "a-0"))


def test_what_a_producer_was_not_told_of_has_its_place_among_its_records_only() -> None:
    told = Told(acknowledged={b"a-1", b"a-2"}, unknown={b"a-0"}, began=[0, 2])
    with pytest.raises(AssertionError, match="out of order"):
        _judge(told, _values("a-1", "a-0", "a-2"))
    told = Told(acknowledged={b"a-1"}, unknown={b"a-0"}, began=[0, 1])
    # The producer before it had given up; what it sent may arrive yet.
    _judge(told, _values("a-1", "a-0"))


def test_records_of_a_transaction_stood_in_another_order() -> None:
    told = Told(transactions=[("committed", [b"t-9-0", b"t-9-1"]), ("committed", [b"t-10-0"])])
    _judge(told, transacted=_values("t-9-0", "t-9-1", "t-10-0"))
    for order in (("t-9-1", "t-9-0", "t-10-0"), ("t-10-0", "t-9-0", "t-9-1")):
        with pytest.raises(AssertionError, match="out of order"):
            _judge(told, transacted=_values(*order))


def test_what_was_made_of_records_stood_in_another_order() -> None:
    told = Told(acknowledged={b"a-0", b"a-1"}, began=[0])
    with pytest.raises(AssertionError, match="processed out of order"):
        _judge(told, _values("a-0", "a-1"), made=_values("a-1", "a-0"))
