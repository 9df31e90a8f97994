"""Each check finds its anomalies, and none in the history of a correct broker."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.verify.history import CorruptHistory, Event
from barnabas.verify.judge import judge
from tests.unit.verify.histories import Cluster, names, spoilt

T0, T1 = ("t", 0), ("t", 1)


def is_read(reader: str) -> Callable[[Event], bool]:
    return lambda event: event.f == "read" and event.value["reader"] == reader


def without(text: str) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        value["records"] = [each for each in value["records"] if each[1] != text]

    return change


def transaction(cluster: Cluster, *, commit: bool = True, told: str = "ok") -> tuple[str, str]:
    """Run a transaction of two records, which two readers read."""
    cluster.init("w")
    values = cluster.send("w", "w-1", T0), cluster.send("w", "w-1", T1)
    cluster.end("w", "w-1", commit=commit, told=told)
    cluster.read("c", T0)
    cluster.read("c", T1)
    cluster.finish()
    return values


@given(st.data())
def test_correct_broker_has_no_anomaly(data: st.DataObject) -> None:
    cluster = Cluster()
    producers = dict.fromkeys(("w0", "w1", "w2"), 0)
    for name in producers:
        cluster.init(name)
    offset = 0
    for _ in range(data.draw(st.integers(0, 40))):
        name = data.draw(st.sampled_from(sorted(producers)))
        at = data.draw(st.sampled_from([T0, T1]))
        txn = f"{name}-{producers[name]}"
        action = data.draw(st.sampled_from(["send", "refused", "offsets", "end", "read", "look"]))
        if action == "send":
            cluster.send(name, txn, at)
        elif action == "refused":
            cluster.send(name, None, at, told="MESSAGE_TOO_LARGE")
        elif action == "offsets" and name == "w0":
            offset += 1
            cluster.offsets(name, txn, T0, offset)
        elif action == "end" and txn in cluster.open:
            told = data.draw(st.sampled_from(["ok", "REQUEST_TIMED_OUT"]))
            cluster.end(name, txn, commit=data.draw(st.booleans()), told=told)
            producers[name] += 1
        elif action == "read":
            committed = data.draw(st.booleans())
            cluster.read(f"reader-{committed}", at, committed=committed)
        elif action == "look":
            cluster.observe(T0)
    for name, count in producers.items():
        if f"{name}-{count}" in cluster.open:
            cluster.end(name, f"{name}-{count}", commit=False)
    cluster.finish()
    assert judge(cluster.events()).anomalies == []


def test_two_values_at_one_offset() -> None:
    cluster = Cluster()
    first, second = transaction(cluster)

    def change(value: dict[str, Any]) -> None:
        value["records"] = [[offset, second] for offset, _ in value["records"]]

    assert "inconsistent-offsets" in names(spoilt(cluster.events(), is_read("c"), change))
    del first


def test_value_without_a_sender() -> None:
    cluster = Cluster()
    transaction(cluster)

    def change(value: dict[str, Any]) -> None:
        value["records"] = [[offset + 7, "garbage"] for offset, _ in value["records"]]

    assert "unknown-value" in names(spoilt(cluster.events(), is_read("c"), change))


def test_one_value_at_two_offsets() -> None:
    cluster = Cluster()
    transaction(cluster)

    def change(value: dict[str, Any]) -> None:
        value["records"] += [[offset + 5, text] for offset, text in value["records"]]

    assert "duplicate" in names(spoilt(cluster.events(), is_read("final-False"), change))


@pytest.mark.parametrize("later", [True, False])
def test_acknowledged_write_that_is_missing(later: bool) -> None:
    cluster = Cluster()
    value = cluster.send("w", None)
    if later:
        cluster.send("w", None)
    cluster.finish()
    events = spoilt(cluster.events(), lambda event: event.f == "read", without(value))
    assert names(events) >= {"lost-write" if later else "unseen"}


def test_aborted_write_missing_for_read_uncommitted() -> None:
    cluster = Cluster()
    value, _ = transaction(cluster, commit=False)
    assert names(cluster.events()) == set()
    events = spoilt(cluster.events(), is_read("final-False"), without(value))
    assert names(events) == {"unseen"}


def test_read_of_aborted_record() -> None:
    cluster = Cluster()
    transaction(cluster, commit=False)
    cluster.aborted.clear()
    cluster.read("late", T0)
    assert names(cluster.events()) == {"G1a"}


def test_read_of_refused_record() -> None:
    cluster = Cluster()
    cluster.send("w", None, told="OUT_OF_ORDER_SEQUENCE_NUMBER", late=True)
    cluster.logs[T0].append(("w:1", None))
    cluster.finish()
    assert "G1a" in names(cluster.events())


def test_committed_offset_of_aborted_transaction() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.offsets("w", "w-1", T0, 5)
    cluster.end("w", "w-1", commit=False)
    cluster.committed[T0] = 5, "w-1"
    cluster.observe(T0)
    cluster.finish()
    assert "G1a" in names(cluster.events())


def test_read_of_open_transaction() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1")
    opened = cluster.open.pop("w-1")
    cluster.read("hasty", T0)
    cluster.open["w-1"] = opened
    cluster.end("w", "w-1")
    cluster.finish()
    assert "precommitted-read" in names(cluster.events())


@pytest.mark.parametrize("told", ["ok", "REQUEST_TIMED_OUT"])
def test_partly_visible_transaction(told: str) -> None:
    cluster = Cluster()
    value, _ = transaction(cluster, told=told)
    events = spoilt(cluster.events(), lambda event: event.f == "read", without(value))
    assert "torn" in names(events)


def test_unknown_transaction_may_be_missing_as_a_whole() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1")
    cluster.end("w", "w-1", told="REQUEST_TIMED_OUT")
    cluster.aborted.add("w-1")
    cluster.finish()
    assert names(cluster.events()) == set()


def test_visible_records_without_committed_offsets() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1")
    cluster.offsets("w", "w-1", T0, 3)
    cluster.end("w", "w-1")
    del cluster.committed[T0]
    cluster.finish()
    assert names(cluster.events()) >= {"torn", "stale-offset"}


def test_amounts_with_a_sum_other_than_zero() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1", T0, extra=-5)
    value = cluster.send("w", "w-1", T1, extra=5)
    cluster.end("w", "w-1")
    cluster.read("c", T0)
    cluster.read("c", T1)
    cluster.history.note("run", "snapshot", "ok", {"reader": "c"})
    cluster.finish()
    assert names(cluster.events()) == set()
    assert "unbalanced" in names(spoilt(cluster.events(), is_read("c"), without(value)))


def test_records_in_other_order_than_sent() -> None:
    cluster = Cluster()
    cluster.send("w", None)
    cluster.send("w", None)
    log = cluster.logs[T0]
    log.reverse()
    cluster.finish()
    events = spoilt(
        cluster.events(),
        lambda event: event.f == "send" and event.type == "ok",
        lambda value: value.update(offset=1 - value["offset"]),
    )
    assert names(events) == {"nonmonotonic-send"}


def test_reader_that_skips_a_record() -> None:
    cluster = Cluster()
    value, _ = transaction(cluster)
    assert names(spoilt(cluster.events(), is_read("c"), without(value))) == {"int-poll-skip"}


def test_reader_that_goes_back() -> None:
    cluster = Cluster()
    cluster.send("w", None)
    cluster.send("w", None)
    cluster.read("c", T0)
    cluster.finish()

    def change(value: dict[str, Any]) -> None:
        value["records"].reverse()

    assert names(spoilt(cluster.events(), is_read("c"), change)) == {"int-nonmonotonic-poll"}


@pytest.mark.parametrize("which", ["hw", "lso"])
def test_watermark_that_goes_back(which: str) -> None:
    cluster = Cluster()
    cluster.send("w", None)
    cluster.read("c", T0)
    cluster.read("c", T0)
    cluster.finish()
    reads = [event for event in cluster.events() if is_read("c")(event)]

    def change(value: dict[str, Any]) -> None:
        value[which] = 0

    events = spoilt(cluster.events(), lambda event: event == reads[1], change)
    assert "watermark-regression" in names(events)


def test_processing_twice_and_never() -> None:
    stages = [{"from": "t", "to": "u", "group": "g"}]
    cluster = Cluster(stages=stages)
    cluster.init("w")
    one, two = cluster.send("w", None), cluster.send("w", None)
    for number, source in enumerate([one, one]):
        cluster.send("w", f"w-{number}", ("u", 0), extra=source)
        cluster.offsets("w", f"w-{number}", T0, 2)
        cluster.end("w", f"w-{number}")
    cluster.finish()
    assert names(cluster.events()) == {"processed-twice", "processed-never"}
    del two


def test_output_without_committed_input_offset() -> None:
    cluster = Cluster(stages=[{"from": "t", "to": "u", "group": "g"}])
    cluster.init("w")
    value = cluster.send("w", None)
    cluster.send("w", "w-0", ("u", 0), extra=value)
    cluster.end("w", "w-0")
    cluster.finish()
    assert names(cluster.events()) == {"torn"}


def test_cycle_of_two_transactions() -> None:
    cluster = Cluster()
    for name in "ab":
        cluster.init(name)
    a = cluster.send("a", "a-0", T0)
    b = cluster.send("b", "b-0", T1)
    cluster.send("a", "a-0", T0, extra=b)
    cluster.send("b", "b-0", T1, extra=a)
    for name in "ab":
        cluster.end(name, f"{name}-0")
    cluster.finish()
    assert names(cluster.events()) == {"G1c"}


def test_hanging_transaction() -> None:
    cluster = Cluster()
    cluster.init("w")
    cluster.send("w", "w-1")
    cluster.finish()
    assert names(cluster.events()) == {"hanging-transaction"}


def test_committed_offset_that_goes_back() -> None:
    cluster = Cluster()
    cluster.committed[T0] = 7, None
    cluster.observe(T0)
    cluster.committed[T0] = 4, None
    cluster.observe(T0)
    assert "offset-regression" in names(cluster.events())


def test_committed_offset_that_was_set_back_on_purpose() -> None:
    cluster = Cluster()
    cluster.init("w")
    for number, offset in enumerate([7, 4]):
        cluster.offsets("w", f"w-{number}", T0, offset)
        cluster.end("w", f"w-{number}")
        cluster.observe(T0)
    cluster.finish()
    assert names(cluster.events()) == set()


def test_compaction_must_keep_record_before_an_aborted_one() -> None:
    cluster = Cluster(compacted=True)
    cluster.init("w")
    old = cluster.send("w", "w-1", key="k")
    cluster.end("w", "w-1")
    cluster.send("w", "w-2", key="k")
    cluster.end("w", "w-2", commit=False)
    cluster.finish()
    assert names(cluster.events()) == set()
    events = spoilt(cluster.events(), lambda event: event.f == "read", without(old))
    assert "lost-write" in names(events)


def test_compaction_may_remove_record_before_a_committed_one() -> None:
    cluster = Cluster(compacted=True)
    cluster.init("w")
    old = cluster.send("w", "w-1", key="k")
    cluster.end("w", "w-1")
    cluster.send("w", "w-2", key="k")
    cluster.end("w", "w-2")
    cluster.finish()
    events = spoilt(cluster.events(), lambda event: event.f == "read", without(old))
    assert names(events) == set()


def test_value_that_is_sent_twice_is_a_corrupt_history() -> None:
    cluster = Cluster()
    cluster.send("w", None)
    events = cluster.events()
    with pytest.raises(CorruptHistory, match="w:1 is sent twice"):
        judge([*events, *events[1:]])
