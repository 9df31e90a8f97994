"""The input of `barnabas produce`: chunks of any size become records."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.source import READ_SIZE, read_chunks, split_records


async def chunks_of(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@given(
    st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\xff", b"ab")), max_size=20),
    st.sampled_from([b"a", b"ab", b"aba", b"\0\0"]),
)
async def test_records_do_not_depend_on_chunk_boundaries(pieces: list[bytes], end: bytes) -> None:
    expected = b"".join(pieces).split(end)
    if not expected[-1]:
        expected.pop()
    found = [record async for each in split_records(chunks_of(pieces), end) for record in each]
    assert found == expected


async def test_file_larger_than_a_chunk_is_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom(READ_SIZE * 6 + 17)
    path.write_bytes(data)
    with path.open("rb") as file:
        assert b"".join([chunk async for chunk in read_chunks(file)]) == data


async def test_read_error_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with path.open("ab") as file, pytest.raises(OSError, match="Bad file descriptor"):
        await anext(read_chunks(file))
