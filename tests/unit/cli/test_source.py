"""Input comes in chunks that know nothing of records."""

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
async def test_records_do_not_depend_on_how_the_input_is_cut(
    pieces: list[bytes], end: bytes
) -> None:
    expected = b"".join(pieces).split(end)
    if not expected[-1]:
        expected.pop()
    assert [record async for record in split_records(chunks_of(pieces), end)] == expected


async def test_a_file_longer_than_a_read_comes_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom(READ_SIZE * 6 + 17)
    path.write_bytes(data)
    with path.open("rb") as file:
        assert b"".join([chunk async for chunk in read_chunks(file)]) == data


async def test_what_cannot_be_read_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with path.open("ab") as file, pytest.raises(OSError, match="Bad file descriptor"):
        await anext(read_chunks(file))
