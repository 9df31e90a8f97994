"""The leader epoch cache against a plain list with the writer of each offset."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.files.checkpoints import CorruptCheckpointError
from barnabas.storage.files.files import OsFiles
from barnabas.storage.log.leader_epochs import (
    CHECKPOINT_NAME,
    EpochEntry,
    LeaderEpochCache,
    read_epochs,
    write_epochs,
)


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(*entry) for entry in entries)


@st.composite
def histories(draw: st.DrawFn) -> tuple[LeaderEpochCache, list[int]]:
    """Draw a cache, and the epoch of each offset that leaders of rising epochs wrote."""
    epochs = LeaderEpochCache()
    writers: list[int] = []
    epoch = 0
    for _ in range(draw(st.integers(0, 6))):
        epoch += draw(st.integers(0, 3))
        epochs.assign(epoch, len(writers))
        writers += [epoch] * draw(st.integers(1, 4))
    return epochs, writers


@given(histories())
def test_each_offset_has_the_epoch_of_its_writer(
    history: tuple[LeaderEpochCache, list[int]],
) -> None:
    epochs, writers = history
    assert [epochs.epoch_for_offset(offset) for offset in range(len(writers))] == writers
    assert epochs.latest_epoch == (writers[-1] if writers else -1)


@given(histories(), st.integers(-1, 20))
def test_end_of_an_epoch_is_the_start_of_the_next(
    history: tuple[LeaderEpochCache, list[int]], asked: int
) -> None:
    epochs, writers = history
    found, end = epochs.end_offset_for(asked, len(writers))
    if asked == -1 or asked > max(writers, default=-1):
        assert (found, end) == (-1, -1)
        return
    assert end == sum(writer <= asked for writer in writers)
    assert found == max((writer for writer in writers if writer <= asked), default=asked)


@given(histories(), st.integers(0, 30))
def test_truncation_from_the_end_drops_later_epochs(
    history: tuple[LeaderEpochCache, list[int]], end: int
) -> None:
    epochs, writers = history
    before = epochs.entries
    assert epochs.truncate_from_end(end) == (epochs.entries != before)
    kept = writers[:end]
    assert [epochs.epoch_for_offset(offset) for offset in range(len(kept))] == kept
    assert epochs.latest_epoch == (kept[-1] if kept else -1)


@given(histories(), st.integers(0, 30))
def test_truncation_from_the_start_keeps_the_epoch_of_the_new_start(
    history: tuple[LeaderEpochCache, list[int]], start: int
) -> None:
    epochs, writers = history
    before = epochs.entries
    assert epochs.truncate_from_start(start) == (epochs.entries != before)
    for offset in range(start, len(writers)):
        assert epochs.epoch_for_offset(offset) == writers[offset]
    assert all(entry.start_offset >= min(start, before[0].start_offset) for entry in epochs.entries)


def test_an_entry_that_contradicts_later_ones_replaces_them() -> None:
    epochs = cache((1, 0), (3, 10), (5, 20))
    assert epochs.assign(4, 15)
    assert epochs.entries == ((1, 0), (3, 10), (4, 15))
    assert epochs.assign(2, 30)
    assert epochs.entries == ((1, 0), (2, 30))
    assert epochs.assign(6, 0)
    assert epochs.entries == ((6, 0),)


def test_assigning_the_current_epoch_again_changes_nothing() -> None:
    epochs = cache((1, 0))
    assert not epochs.assign(1, 5)
    assert epochs.entries == ((1, 0),)


def test_epoch_before_the_first_known_ends_at_its_start() -> None:
    assert cache((5, 100)).end_offset_for(3, 200) == (3, 100)


def test_clear_returns_whether_there_were_entries() -> None:
    assert cache((1, 0)).clear()
    assert not cache().clear()


def test_the_checkpoint_is_kafkas_text(tmp_path: Path) -> None:
    epochs = cache((0, 0), (2, 17))
    write_epochs(OsFiles(), str(tmp_path), epochs)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 17\n"
    assert read_epochs(OsFiles(), str(tmp_path)).entries == epochs.entries


@pytest.mark.parametrize("text", ["0\n1\n1 2 3\n", "0\n1\nx 0\n", "0\n2\n1 0\n"], ids=repr)
def test_damaged_epoch_checkpoint_raises_corrupt_checkpoint_error(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / CHECKPOINT_NAME).write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_epochs(OsFiles(), str(tmp_path))
