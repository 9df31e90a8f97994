"""Opening a log after torn tails, damaged files, half-done swaps and lost names."""

import pytest

from barnabas.storage.log.log import Log
from barnabas.storage.log.segment import CLEANED, file_name
from barnabas.storage.log.trim import swap_in_compacted
from barnabas.storage.log.truncation import truncate
from tests.support.mem_files import MemFiles
from tests.unit.storage.log_bench import (
    DIRECTORY,
    NOW,
    SMALL,
    batch,
    damage,
    disk,
    load,
    offsets,
    put,
)


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{file_name(offset, suffix)}"


def filled(files: MemFiles, count: int = 30) -> Log:
    """Return a flushed log of several segments, with a batch of producer 1 at each offset."""
    log = load(files)
    for sequence in range(count):
        put(
            log, b"x" * 60, epoch=sequence // 10,
            producer_id=1, producer_epoch=0, base_sequence=sequence,
        )  # fmt: skip
    log.flush()
    return log


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("recovery_point", [0, 17, 30])
def test_a_reopened_log_is_the_same(clean: bool, recovery_point: int) -> None:
    files = disk()
    before = filled(files)
    if clean:
        before.close()
    log = load(files, clean=clean, recovery_point=recovery_point)
    assert offsets(log) == list(range(30))
    assert log.epochs.entries == before.epochs.entries
    assert list(log.producers) == list(before.producers)
    assert [s.base_offset for s in log.segments] == [s.base_offset for s in before.segments]
    assert [s.max_timestamp for s in log.segments] == [s.max_timestamp for s in before.segments]
    assert [s.next_offset for s in log.segments] == [s.next_offset for s in before.segments]
    assert put(log, b"y", producer_id=1, producer_epoch=0, base_sequence=30) == 30


@pytest.mark.parametrize("cut", [1, 40, 61, 100])
def test_a_torn_tail_is_cut_off(cut: int) -> None:
    files = disk()
    log = filled(files)
    active = files.open(log.segments.active.path(".log"))
    active.truncate(active.size() - cut)
    again = load(files)
    size = len(batch(b"x" * 60, producer_id=1, producer_epoch=0, base_sequence=0))
    assert again.log_end_offset == 30 - -(-cut // size)
    assert offsets(again) == list(range(again.log_end_offset))


def test_nothing_after_a_damaged_batch_is_kept() -> None:
    files = disk()
    log = filled(files)
    second = list(log.segments)[1]
    damage(files, second.path(".log"))
    again = load(files)
    assert again.log_end_offset == second.next_offset - 1
    assert len(again.segments) == 2
    entry = again.producers.entry(1)
    assert entry is not None
    assert entry.last_sequence == again.log_end_offset - 1


def test_a_segment_that_lost_its_tail_ends_the_log() -> None:
    files = disk()
    log = filled(files)
    second = list(log.segments)[1]
    size = len(batch(b"x" * 60, producer_id=1, producer_epoch=0, base_sequence=0))
    files.open(second.path(".log")).truncate(second.size - size)
    assert load(files).log_end_offset == second.next_offset - 1


def test_recovery_does_not_scan_flushed_segments() -> None:
    files = disk()
    log = filled(files)
    damage(files, list(log.segments)[1].path(".log"))
    assert load(files, recovery_point=30).log_end_offset == 30


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["remove", "tear", "empty"])
@pytest.mark.parametrize("segment", [0, -1])
def test_an_index_that_is_missing_or_torn_is_rebuilt(suffix: str, harm: str, segment: int) -> None:
    files = disk()
    log = filled(files)
    log.close()
    name = list(log.segments)[segment].path(suffix)
    good = files.read_bytes(name)
    if harm == "remove":
        files.unlink(name)
    elif harm == "tear":
        files.open(name).truncate(len(good) - 3)
    again = load(files, clean=True, recovery_point=30)
    assert offsets(again) == list(range(30))
    assert offsets(again, 5, 10) == [5]
    if harm != "empty":
        again.close()
        assert files.read_bytes(name) == good


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "partition.metadata", "{snapshot}", "{window}"]
)
@pytest.mark.parametrize("harm", ["damage", "remove"])
@pytest.mark.parametrize("clean", [True, False])
def test_log_opens_without_any_of_its_small_files(name: str, harm: str, clean: bool) -> None:
    files = disk()
    log = filled(files)
    log.close()
    newest = {
        "{snapshot}": file_name(log.snapshots.offsets[-1], ".snapshot"),
        "{window}": file_name(log.snapshots.offsets[-1], ".window"),
    }
    target = f"{DIRECTORY}/{newest.get(name, name)}"
    if harm == "remove" and files.exists(target):
        files.unlink(target)
    elif files.exists(target):
        damage(files, target, 3)
    again = load(files, clean=clean, recovery_point=30)
    assert again.epochs.entries == log.epochs.entries
    assert list(again.producers) == list(log.producers), "the whole window of five"


@pytest.mark.parametrize("claims", ["0 0,1 10,8 20", "0 0,1 10,2 18", "0 0,3 10,4 20", "5 0"])
def test_epoch_checkpoint_that_contradicts_the_batches_is_rebuilt(claims: str) -> None:
    files = disk()
    log = filled(files)
    log.close()
    lines = claims.split(",")
    name = f"{DIRECTORY}/leader-epoch-checkpoint"
    file = files.open(name)
    file.truncate(0)
    file.append("\n".join(["0", str(len(lines)), *lines, ""]).encode())
    again = load(files, clean=True, recovery_point=30)
    assert again.epochs.entries == log.epochs.entries


def test_window_of_five_is_read_from_the_log_if_kafka_wrote_the_snapshot() -> None:
    files = disk()
    log = filled(files)
    log.close()
    for name in files.listdir(DIRECTORY):
        if name.endswith(".window"):
            files.unlink(f"{DIRECTORY}/{name}")
    again = load(files, clean=True)
    entry = again.producers.entry(1)
    assert entry is not None
    assert [last for _, last, _, _ in entry.batches] == [25, 26, 27, 28, 29]


def test_log_that_ends_before_its_start_offset_begins_empty_there() -> None:
    files = disk()
    filled(files)
    log = load(files, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (100, 100, 1)
    assert put(log, b"y") == 100


def test_files_of_interrupted_operations_are_removed() -> None:
    files = disk()
    log = filled(files)
    for name in ("7.log.deleted", "7.log.cleaned", "leader-epoch-checkpoint.tmp"):
        files.open(f"{DIRECTORY}/{name}", create=True).append(b"?")
    for orphan in (".index", ".timeindex", ".txnindex"):
        files.open(path(3, orphan), create=True)
    files.open(path(3, ".index.swap"), create=True)
    assert load(files, recovery_point=30).log_end_offset == log.log_end_offset
    names = files.listdir(DIRECTORY)
    assert not [n for n in names if n.endswith((".deleted", CLEANED, ".tmp", ".swap"))]
    assert not [n for n in names if n.startswith(file_name(3, ""))]


@pytest.mark.parametrize("renames", range(12))
def test_a_swap_of_compacted_segments_is_done_or_undone(renames: int) -> None:
    files = disk()
    log = filled(files)
    first, second = list(log.segments)[:2]
    compacted = files.open(path(0, ".log") + CLEANED, create=True)
    compacted.append(log.read(second.next_offset - 1, 1, limit=30).read_bytes())
    for kind in (".index", ".timeindex"):
        files.open(path(0, kind) + CLEANED, create=True)
    left = renames

    class Killed(Exception):
        pass

    rename = files.rename

    def rename_until_killed(source: str, target: str) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        rename(source, target)

    files.rename = rename_until_killed  # type: ignore[method-assign]
    try:
        swap_in_compacted(log, 0, (first.base_offset, second.base_offset)).complete()
        swapped = offsets(log)
        assert swapped[0] == second.next_offset - 1
    except Killed:
        swapped = None
    files.rename = rename  # type: ignore[method-assign]
    again = load(files, recovery_point=30)
    everything, compact = list(range(30)), list(range(second.next_offset - 1, 30))
    assert offsets(again) in ([compact] if swapped else [everything, compact])
    assert offsets(again) == (everything if renames < 3 else compact)
    assert not [n for n in files.listdir(DIRECTORY) if n.endswith((".swap", CLEANED, ".deleted"))]


@pytest.mark.parametrize("seed", range(12))
def test_a_truncated_segment_does_not_come_back(seed: int) -> None:
    files = disk()
    log = filled(files)
    files.sync_dir(DIRECTORY)
    second = list(log.segments)[1]
    truncate(log, second.base_offset - 1, now_ms=NOW).complete()
    put(log, b"z" * 60, producer_id=1, producer_epoch=0, base_sequence=second.base_offset - 1)
    # The power fails in the middle of a flush: the bytes are durable, the names are not.
    for file in log.begin_flush().files:
        file.sync()
    files.crash(seed)
    again = load(files)
    assert again.log_end_offset <= second.base_offset


@pytest.mark.parametrize("seed", range(12))
def test_segments_that_recovery_removed_do_not_come_back(seed: int) -> None:
    files = disk()
    log = filled(files)
    files.sync_dir(DIRECTORY)
    second = list(log.segments)[1]
    file = files.open(log.segments.first.path(".log"))
    damage(files, file.path)
    file.sync()
    log = load(files)
    assert log.log_end_offset == second.base_offset - 1
    put(log, b"z" * 60, producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset)
    for file in log.begin_flush().files:
        file.sync()
    files.crash(seed)
    assert load(files).log_end_offset <= second.base_offset


def test_flushed_records_survive_power_loss() -> None:
    files = disk()
    log = load(files, SMALL.replace(flush_messages=1))
    for _ in range(20):
        put(log, b"x" * 60)
    assert log.flush() == 20
    put(log, b"lost")
    files.sync_dir("/data")
    files.crash(4)
    assert load(files).log_end_offset >= 20


@pytest.mark.parametrize("seed", range(12))
def test_flush_voided_by_truncation_leaves_no_truncated_records(seed: int) -> None:
    files = disk()
    log = load(files)
    for _ in range(20):
        put(log, b"x" * 60)
    void = log.begin_flush()
    truncate(log, 19, now_ms=NOW).complete()
    log.finish_flush(void)
    assert log.flush() == 19
    files.sync_dir("/data")
    files.crash(seed)
    assert load(files).log_end_offset == 19
