"""The stream of orders: the same for a seed, with the faults that it promises and no others."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.example.orders import (
    CENTS,
    DISORDER,
    LATE_BY,
    REPEATED_WITHIN,
    START,
    Kind,
    Orders,
)

SEEDS = st.integers(0, 1_000_000)
PER_MINUTE = st.integers(2, 6_000)
LENGTHS = st.integers(1, 60)


@given(SEEDS, PER_MINUTE, st.integers(0, 100_000))
def test_record_depends_on_seed_and_position_only(seed, per_minute, number):
    orders = Orders(seed, per_minute)
    orders.record(number + 1)
    assert orders.record(number) == Orders(seed, per_minute).record(number)


def test_seeds_give_different_streams():
    first, second = ([Orders(seed, 60).record(n) for n in range(20)] for seed in (1, 2))
    assert first != second


@given(SEEDS, PER_MINUTE, LENGTHS)
def test_order_is_behind_the_latest_by_the_promised_time_at_most(seed, per_minute, count):
    orders = Orders(seed, per_minute)
    latest = START
    for number in range(count):
        record = orders.record(number)
        if record.order is None:
            continue
        allowed = DISORDER
        if record.kind is Kind.REPEATED:
            allowed = max(REPEATED_WITHIN, timedelta(minutes=1) / per_minute + DISORDER)
        if record.kind is not Kind.LATE:
            assert record.order.time > latest - allowed
            assert record.order.time >= START
            latest = max(latest, record.order.time)


@given(SEEDS, PER_MINUTE, LENGTHS)
def test_late_order_is_before_all_others_by_nearly_a_day(seed, per_minute, count):
    orders = Orders(seed, per_minute)
    late = [r.order for n in range(count) if (r := orders.record(n)).kind is Kind.LATE]
    last = START + count * timedelta(minutes=1) / per_minute + DISORDER
    assert all(order.time <= last - LATE_BY for order in late)


@given(SEEDS, PER_MINUTE, LENGTHS)
def test_repetition_equals_an_earlier_new_order(seed, per_minute, count):
    orders = Orders(seed, per_minute)
    values = set()
    for number in range(count):
        record = orders.record(number)
        if record.kind is Kind.REPEATED:
            assert record.value in values
        elif record.kind is Kind.NEW:
            assert record.value not in values
            values.add(record.value)


@given(SEEDS, LENGTHS)
def test_broken_record_cannot_be_parsed_and_others_can(seed, count):
    orders = Orders(seed, 600)
    for number in range(count):
        record = orders.record(number)
        assert is_an_order(record.value) == (record.kind is not Kind.BROKEN)


def is_an_order(value):
    try:
        data = json.loads(value.decode())
    except (AttributeError, ValueError):
        return False
    return data.get("product") in CENTS and isinstance(data["quantity"], int)


@given(SEEDS, PER_MINUTE, LENGTHS)
def test_sums_are_those_of_the_values_without_repeated_late_and_broken_ones(
    seed, per_minute, count
):
    orders = Orders(seed, per_minute)
    values = {}
    for number in range(count):
        record = orders.record(number)
        if record.kind in (Kind.NEW, Kind.REPEATED):
            order = json.loads(record.value)
            values[order["order_id"]] = order
    sums = orders.sums(count)
    assert sum(each.orders for each in sums.values()) == len(values)
    wanted = sum(CENTS[each["product"]][1] * each["quantity"] for each in values.values())
    assert sum(each.cents for each in sums.values()) == wanted
    assert {minute.isoformat()[:16] for minute, _ in sums} == {
        each["time"][:16] for each in values.values()
    }


@given(SEEDS, PER_MINUTE, LENGTHS)
def test_closing_order_is_far_behind_all_others(seed, per_minute, count):
    orders = Orders(seed, per_minute)
    closing = orders.closing(count).order
    times = [r.order.time for n in range(count) if (r := orders.record(n)).order]
    assert all(closing.time - time >= timedelta(minutes=10) for time in times)


def test_every_kind_comes_about_as_often_as_it_says():
    counts = Orders(7, 600).count(2_000)
    assert all(kind.value / 2 < counts[kind] / 20 < kind.value * 2 for kind in Kind)


def test_stream_without_orders_is_refused():
    with pytest.raises(ValueError, match="1 or more"):
        Orders(1, 0)
