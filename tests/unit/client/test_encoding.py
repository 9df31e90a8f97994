"""Batches for `Producer.send_batch` have the bytes of those that are built of records."""

from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.producer import encode_batches
from barnabas.protocol.records.batch import crc_matches, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch, iter_records

FIELDS = st.one_of(st.none(), st.binary(max_size=80))
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple)


@given(
    st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=60),
    HEADERS,
    st.integers(-1, 1 << 45),
    st.sampled_from(Compression),
    st.integers(100, 2000),
)
def test_batches_equal_those_of_single_records(
    pairs: list[tuple[bytes | None, bytes | None]],
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
    compression: Compression,
    batch_size: int,
) -> None:
    keys, values = zip(*pairs, strict=True)
    found = list(
        encode_batches(
            values,
            keys,
            timestamp,
            batch_size=batch_size,
            headers=headers,
            compression=compression,
        )
    )
    rest = iter(pairs)
    for batch in found:
        records = [
            Record(offset, timestamp, key, value, headers)
            for offset, (key, value) in zip(range(batch.count), rest, strict=False)
        ]
        assert bytes(batch.data) == build_batch(records, base_offset=0, compression=compression)
        if batch.count > 1 and not compression:
            assert len(batch.data) <= batch_size
    assert next(rest, None) is None


@pytest.mark.parametrize("count", [1, 8191, 8192, 8193, 20_000])
def test_long_batches_and_long_values(count: int) -> None:
    values = [b"%d" % number for number in range(count - 1)] + [b"x" * 20_000]
    (batch,) = encode_batches(values, repeat(b"k"), 5, batch_size=1 << 20)
    header = read_header(batch.data)
    assert crc_matches(batch.data, 0, header)
    assert list(iter_records(batch.data, 0, header)) == [
        Record(offset, 5, b"k", value) for offset, value in enumerate(values)
    ]


def test_batches_are_filled_and_not_above_their_size() -> None:
    found = encode_batches([b"x" * 100] * 50, repeat(None), 5, batch_size=1000)
    sizes = [len(batch.data) for batch in found]
    assert max(sizes) <= 1000
    assert min(sizes[:-1]) > 800
