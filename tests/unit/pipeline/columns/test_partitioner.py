"""Partitions of columns of keys: those of `client.producer`, which are the Java client's."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.client.producer import murmur2, partition_for
from barnabas.pipeline.columns.partitioner import STICKY_BYTES, Partitioner, murmur2_of

keys = st.lists(
    st.none() | st.binary(max_size=13) | st.binary(min_size=30, max_size=70), max_size=12
)


@given(keys, st.integers(0, 3))
@example([bytes(range(200))] * 20 + [bytes(1000), b"", b"abc"], 0)
def test_hashes_are_those_of_single_keys(some: list[bytes | None], start: int) -> None:
    hashes = murmur2_of(pa.array(some, pa.binary())[start:])
    assert hashes.tolist() == [0 if key is None else murmur2(key) for key in some[start:]]


@given(keys, st.integers(1, 70))
def test_rows_with_a_key_go_where_the_java_client_sends_them(
    some: list[bytes | None], partitions: int
) -> None:
    column = pa.array(some, pa.binary())
    chosen = Partitioner(partitions, first=0).choose(column, column)
    expected = [0 if key is None else partition_for(key, partitions) for key in some]
    assert chosen.tolist() == expected
    assert chosen.dtype == np.int32


def test_strings_are_hashed_as_utf_8() -> None:
    column = pa.array(["ключ", "key"])
    assert Partitioner(50).choose(column, column).tolist() == [
        partition_for("ключ".encode(), 50),
        partition_for(b"key", 50),
    ]


@pytest.mark.parametrize("keys", [[None] * 10, [None, b"k"] * 5])
def test_rows_without_a_key_stay_with_a_partition_for_a_megabyte(
    keys: list[bytes | None],
) -> None:
    values = pa.array([bytes(STICKY_BYTES // 4)] * 10, pa.binary())
    partitioner = Partitioner(3, first=2)
    column = pa.array(keys, pa.binary())
    rows = [
        partition
        for _ in range(2)
        for key, partition in zip(keys, partitioner.choose(column, values).tolist(), strict=True)
        if key is None
    ]
    assert rows == [2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0][: len(rows)]


def test_tasks_begin_at_different_partitions() -> None:
    column = pa.nulls(1, pa.binary())
    assert len({int(Partitioner(1000).choose(column, column)[0]) for _ in range(10)}) > 1
