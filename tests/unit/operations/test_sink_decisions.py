"""The records of a sink's decisions topic."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.operations.sinks.decisions import (
    DecidedWinner,
    DecisionError,
    SinkDecision,
    decode,
    encode,
    key_of,
)
from barnabas.pipeline.sink.port import Identity, Place

INT64 = st.integers(-1, 2**63 - 1)
IDENTITIES = st.builds(Identity, INT64, st.integers(-1, 32_767))
WINNERS = st.builds(
    DecidedWinner,
    st.text(),
    IDENTITIES,
    IDENTITIES,
    st.integers(0, 2**40),
    st.builds(Place, st.text(), st.integers(0, 10_000), INT64),
)
DECISIONS = st.builds(
    SinkDecision,
    st.text(),
    st.integers(-1, 2**63 - 1),
    st.none() | st.text(),
    st.lists(WINNERS, max_size=3).map(tuple),
    st.lists(WINNERS, max_size=2).map(tuple),
)
ONE = DecidedWinner("s.p.0", Identity(1, 2), Identity(1, 3), 4, Place("out", 0, 5))


@given(DECISIONS)
def test_decision_survives_its_record(decision: SinkDecision) -> None:
    assert decode(encode(decision)) == decision


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_other_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(DecisionError):
        decode(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 2),
        ("query", 1),
        ("batch", "1"),
        ("batch", True),
        ("digest", 1),
        ("winners", {}),
        ("winners", [1]),
        ("lost", None),
    ],
)
def test_record_with_a_wrong_field_is_refused(name: str, value: object) -> None:
    row = json.loads(encode(SinkDecision("q", 1, None, (ONE,))))
    row[name] = value
    with pytest.raises(DecisionError):
        decode(json.dumps(row).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", 1), ("ongoing", [1]), ("client", [1, "2"]), ("rows", None), ("first", ["out", 0])],
)
def test_record_with_a_wrong_transaction_is_refused(name: str, value: object) -> None:
    row = json.loads(encode(SinkDecision("q", 1, None, (ONE,))))
    row["winners"][0][name] = value
    with pytest.raises(DecisionError):
        decode(json.dumps(row).encode())


def test_decision_names_transactions_by_whole_identity() -> None:
    decision = SinkDecision("q", 1, None, (ONE,))
    assert decision.named == {("s.p.0", Identity(1, 2))}


def test_all_decisions_of_a_sink_have_one_key() -> None:
    assert key_of("orders") == b'{"sink":"orders"}'


def test_decision_about_10_000_tasks_fits_a_record_of_a_megabyte() -> None:
    import gzip

    winners = tuple(
        ONE._replace(
            transactional_id=f"orders.host-1234-a1b2c3d4e5f6.{each}",
            ongoing=Identity(7_000_000 + each, each % 300),
            client=Identity(7_000_000 + each, each % 300 + 1),
            first=Place("orders-out", each % 64, 10_000_000 + 37 * each),
        )
        for each in range(10_000)
    )
    assert len(gzip.compress(encode(SinkDecision("q" * 36, 1, "d" * 64, winners)))) < 1_000_000
