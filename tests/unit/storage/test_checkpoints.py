"""Checkpoint files: Kafka's text, and the difference between a torn and a missing one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.files.checkpoints import (
    CorruptCheckpointError,
    read_lines,
    read_offsets,
    write_offsets,
)
from barnabas.storage.files.files import OsFiles

FILES = OsFiles()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recovery-point-offset-checkpoint"


def test_checkpoint_has_kafkas_text(path: Path) -> None:
    write_offsets(FILES, str(path), {("orders", 1): 300, ("orders", 0): 1500})
    assert path.read_text() == "0\n2\norders 0 1500\norders 1 300\n"


def test_write_leaves_no_temporary_file(path: Path) -> None:
    write_offsets(FILES, str(path), {("orders", 1): 300})
    write_offsets(FILES, str(path), {})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert read_offsets(FILES, str(path)) == {}


names = st.from_regex(r"\A[a-zA-Z0-9._-]{1,20}\Z")
tables = st.dictionaries(
    st.tuples(names, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=5
)


@given(tables)
def test_offsets_read_back(
    tmp_path_factory: pytest.TempPathFactory, table: dict[tuple[str, int], int]
) -> None:
    path = str(tmp_path_factory.mktemp("checkpoint") / "offsets")
    write_offsets(FILES, path, table)
    assert read_offsets(FILES, path) == table


def test_missing_checkpoint_reads_as_empty(path: Path) -> None:
    assert read_lines(FILES, str(path)) == []
    assert read_offsets(FILES, str(path)) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "0\n2\norders 0 1500\n",
        "0\n0\norders 0 1500\n",
        "1\n1\norders 0 1500\n",
        "0\nx\n",
        "0\n1\norders 0\n",
        "0\n1\norders 0 x\n",
        "0\n1\norders 0 -1\n",
        "0\n1\n\xff\n",
    ],
    ids=repr,
)
def test_error_names_the_file_that_is_not_a_checkpoint(path: Path, text: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptCheckpointError, match=path.name):
        read_offsets(FILES, str(path))
