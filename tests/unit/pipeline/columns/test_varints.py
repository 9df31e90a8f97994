"""Many variable-length integers at once are equal to those of `protocol.records.varint`."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.pipeline.columns.varints import (
    FAR,
    VARINT,
    VARLONG,
    read_varints,
    varint_sizes,
    write_varints,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.varint import read_varint, read_varlong, write_varint

INT64 = st.integers(-(2**63), 2**63 - 1)


def written(*values: int) -> bytes:
    out = bytearray()
    for value in values:
        write_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize(("longest", "read"), [(VARINT, read_varint), (VARLONG, read_varlong)])
@given(data=st.binary(min_size=1, max_size=40))
@example(data=b"\xff" * 12)
@example(data=b"\xff\xff\xff\xff\x0f")
@example(data=b"\xff\xff\xff\xff\x10")
@example(data=b"\xff" * 9 + b"\x01")
@example(data=b"\xff" * 9 + b"\x02")
@example(data=b"\x80\x80\x80\x80\x00")
def test_value_at_every_position_of_any_bytes_is_that_of_the_single_reader(
    longest: int, read: "type[read_varint]", data: bytes
) -> None:
    values, after = read_varints(
        np.frombuffer(data, np.uint8), np.arange(len(data), dtype=np.int64), longest
    )
    for at in range(len(data)):
        try:
            expected = read(data, at)
        except ProtocolError:
            # A value that the end cuts off: it never ends within the bytes.
            assert after[at] == FAR or after[at] > len(data)
        else:
            assert (values[at], after[at]) == expected


def test_positions_outside_the_bytes_read_no_other_memory() -> None:
    data = np.frombuffer(b"\x02\x04\x80", np.uint8)
    _, after = read_varints(data, np.array([-1, 3, FAR, FAR + 2**33]))
    assert list(after) == [0, FAR, FAR, FAR]


@given(st.lists(st.tuples(INT64, INT64, st.just(0)), max_size=8))
def test_rows_are_written_as_the_single_writer_does(rows: list[tuple[int, ...]]) -> None:
    columns = [np.array([row[index] for row in rows], np.int64) for index in range(3)]
    data, sizes = write_varints(columns)
    assert data.tobytes() == b"".join(written(*row) for row in rows)
    assert list(sizes) == [len(written(*row)) for row in rows]
    assert list(varint_sizes(columns[0])) == [len(written(row[0])) for row in rows]
