"""The index of aborted transactions: Kafka's bytes, and which reads an entry concerns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.log.txn_index import ENTRY_SIZE, CorruptTxnIndexError, decode, encode, search
from barnabas.storage.producers.entry import AbortedTxn

TXNS = [AbortedTxn(1, 10, 20, 15), AbortedTxn(2, 15, 30, 25), AbortedTxn(3, 25, 40, 41)]


def test_an_entry_has_kafkas_34_bytes() -> None:
    assert encode(AbortedTxn(1, 2, 3, 4)).hex() == "0000" + "".join(
        f"{n:016x}" for n in (1, 2, 3, 4)
    )
    assert ENTRY_SIZE == 34


def test_entries_read_back() -> None:
    assert decode(b"".join(map(encode, TXNS)), base_offset=10) == TXNS


@pytest.mark.parametrize(
    "data",
    [
        encode(TXNS[0])[:-1],
        b"\x00\x01" + encode(TXNS[0])[2:],
        encode(AbortedTxn(1, 5, 9, 10)),
        encode(AbortedTxn(1, 21, 20, 21)),
    ],
    ids=["cut off", "other version", "of an earlier segment", "ends before it begins"],
)
def test_damaged_txn_index_raises_corrupt_txn_index_error(data: bytes) -> None:
    with pytest.raises(CorruptTxnIndexError):
        decode(data, base_offset=10)
    with pytest.raises(CorruptTxnIndexError):
        search(data, 0, 100, base_offset=10)


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTxn]:
    """Draw transactions that begin and abort in any order, with the last stable offsets they
    leave."""
    open_: dict[int, int] = {}
    aborted = []
    for offset in range(draw(st.integers(0, 30))):
        producer = draw(st.integers(0, 3))
        if producer in open_:
            first = open_.pop(producer)
            aborted.append(
                AbortedTxn(producer, first, offset, min(open_.values(), default=offset + 1))
            )
        else:
            open_[producer] = offset
    return aborted


@given(histories(), st.integers(0, 30), st.integers(0, 30))
def test_search_finds_exactly_the_overlapping_transactions(
    history: list[AbortedTxn], start: int, length: int
) -> None:
    end = start + length
    found, complete = search(b"".join(map(encode, history)), start, end)
    wanted = [t for t in history if t.last_offset >= start and t.first_offset < end]
    assert found == wanted
    assert complete == any(t.last_stable_offset >= end for t in history)
