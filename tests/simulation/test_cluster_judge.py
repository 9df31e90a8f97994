"""The judge of the simulated cluster's records, on fake topics."""

from typing import Any

import pytest

from tests.simulation.cluster.workload import Told, judge

_NOTHING: dict[int, list[bytes]] = {}


def _values(*names: str) -> dict[int, list[bytes]]:
    return {0: [name.encode() for name in names]}


def _judge(told: Told, plain: Any = _NOTHING, transacted: Any = _NOTHING, made: Any = None) -> None:
    judge(told, plain, transacted, plain if made is None else made)


def test_judge_finds_acknowledged_records_in_another_order() -> None:
    told = Told(acknowledged={b"a-0", b"a-1"}, began=[0])
    _judge(told, _values("a-0", "a-1"))
    with pytest.raises(AssertionError, match="out of order"):
        _judge(told, _values("a-1", "a-0"))


def test_judge_orders_a_record_of_unknown_outcome_within_its_producer_only() -> None:
    told = Told(acknowledged={b"a-1", b"a-2"}, unknown={b"a-0"}, began=[0, 2])
    with pytest.raises(AssertionError, match="out of order"):
        _judge(told, _values("a-1", "a-0", "a-2"))
    told = Told(acknowledged={b"a-1"}, unknown={b"a-0"}, began=[0, 1])
    # The previous producer had given up; its records may still arrive.
    _judge(told, _values("a-1", "a-0"))


def test_judge_finds_records_of_a_transaction_in_another_order() -> None:
    told = Told(transactions=[("committed", [b"t-9-0", b"t-9-1"]), ("committed", [b"t-10-0"])])
    _judge(told, transacted=_values("t-9-0", "t-9-1", "t-10-0"))
    for order in (("t-9-1", "t-9-0", "t-10-0"), ("t-10-0", "t-9-0", "t-9-1")):
        with pytest.raises(AssertionError, match="out of order"):
            _judge(told, transacted=_values(*order))


def test_judge_finds_processed_records_in_another_order() -> None:
    told = Told(acknowledged={b"a-0", b"a-1"}, began=[0])
    with pytest.raises(AssertionError, match="processed out of order"):
        _judge(told, _values("a-0", "a-1"), made=_values("a-1", "a-0"))
