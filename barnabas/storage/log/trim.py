"""Removing old segments: retention drops them, compaction replaces them.

Files are renamed first and unlinked after `file.delete.delay.ms`, when no reader that found them by
name will open them any more.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.files.log_dir import on_disk
from barnabas.storage.log.rearrangement import DiskSteps, Rearrangement
from barnabas.storage.log.retention import deletable_segments
from barnabas.storage.log.segment import (
    CLEANED,
    DELETED,
    KINDS_LOG_LAST,
    SWAP,
    Segment,
    file_name,
)

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


@on_disk
def drop_old_segments(log: "Log", *, now_ms: int) -> Rearrangement | None:
    """Drop the segments that retention selects, by log start offset, size and time; None if
    none."""
    log.complete_rearrangement()
    config = log.config
    count = deletable_segments(
        list(log.segments),
        cleanup_policy=config.cleanup_policy,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    return Rearrangement(log, _drop(log, count, now_ms)) if count else None


def _drop(log: "Log", count: int, now_ms: int) -> DiskSteps:
    segments, renamed = log.segments, list[str]()
    if count == len(segments):
        log.roll(now_ms=now_ms)
    dropped = segments.remove_oldest(count)
    start = segments.first.base_offset
    log.delete_records_before(start)
    snapshots = log.snapshots.forget_before(start)

    def rename() -> None:
        # Oldest first: a crash in between leaves no gap.
        for each in dropped:
            renamed.extend(each.rename(DELETED))
        renamed.extend(log.snapshots.withdraw(snapshots))

    yield rename
    log.give_up_files(renamed)


@on_disk
def swap_in_compacted(log: "Log", base_offset: int, replaced: Sequence[int]) -> Rearrangement:
    """Put the durable files `<base_offset>.*.cleaned` in the place of the segments `replaced`.

    Until the log file is named `.swap` the change can be undone; from then on recovery completes
    it.
    """
    log.complete_rearrangement()
    return Rearrangement(log, _swap(log, base_offset, replaced))


def _swap(log: "Log", base_offset: int, replaced: Sequence[int]) -> DiskSteps:
    files = log.location.files
    old = [segment for segment in log.segments if segment.base_offset in replaced]
    stem = os.path.join(log.directory, file_name(base_offset, ""))
    kinds, swapped, renamed = list[str](), list[Segment](), list[str]()

    def prepare() -> None:
        found = [k for k in KINDS_LOG_LAST if files.exists(stem + k + CLEANED)]
        kinds.extend(found)
        for kind in found:
            files.rename(stem + kind + CLEANED, stem + kind + SWAP)
        new = old[0].successor(base_offset, log.config, old[0].created_ms, suffix=SWAP)
        new.next_offset = old[-1].next_offset
        new.hold_open()
        swapped.append(new)

    yield prepare
    # New readers find the new segment, which holds its files open because their names change.
    log.segments.replace(old, swapped)

    def rename() -> None:
        for segment in old:
            renamed.extend(segment.rename(DELETED))
        for kind in kinds:
            files.rename(stem + kind + SWAP, stem + kind)

    yield rename
    swapped[0].let_go()
    log.give_up_files(renamed)
