"""What happens to old segments: retention drops them, compaction puts others in their place.

Files are renamed on the way and unlinked later (`file.delete.delay.ms`), when nobody that found
them before still opens them.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.log_dir import on_disk
from barnabas.storage.rearrangement import Rearrangement, Steps
from barnabas.storage.retention import deletable_segments
from barnabas.storage.segment import (
    CLEANED,
    DELETED,
    KINDS_LOG_LAST,
    SWAP,
    Segment,
    file_name,
)

if TYPE_CHECKING:
    from barnabas.storage.log import Log


@on_disk
def drop_old_segments(log: "Log", *, now_ms: int) -> Rearrangement | None:
    """Takes away what retention says, by log start offset, size and time; None if nothing goes."""
    log.settle()
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


def _drop(log: "Log", count: int, now_ms: int) -> Steps:
    segments, renamed = log.segments, list[str]()
    if count == len(segments):
        log.roll(now_ms=now_ms)
    dropped = segments.remove_oldest(count)
    start = segments.first.base_offset
    log.delete_records_before(start)
    snapshots = log.snapshots.forget_before(start)

    def rename() -> None:
        # Oldest first: a crash in between leaves no hole.
        for each in dropped:
            renamed.extend(each.rename(DELETED))
        renamed.extend(log.snapshots.paths(snapshots))

    yield rename
    log.doomed += renamed


@on_disk
def swap_in_compacted(log: "Log", base_offset: int, replaced: Sequence[int]) -> Rearrangement:
    """Puts the durable files `<base_offset>.*.cleaned` where the segments `replaced` are.

    Until the log file is `.swap` nothing has happened, from then on recovery finishes the rest.
    """
    log.settle()
    return Rearrangement(log, _swap(log, base_offset, replaced))


def _swap(log: "Log", base_offset: int, replaced: Sequence[int]) -> Steps:
    files = log.place.files
    old = [segment for segment in log.segments if segment.base_offset in replaced]
    stem = os.path.join(log.directory, file_name(base_offset, ""))
    kinds, swapped, renamed = list[str](), list[Segment](), list[str]()

    def prepare() -> None:
        kinds.extend(k for k in KINDS_LOG_LAST if files.exists(stem + k + CLEANED))
        for kind in kinds:
            files.rename(stem + kind + CLEANED, stem + kind + SWAP)
        new = old[0].successor(base_offset, log.config, old[0].created_ms, suffix=SWAP)
        new.next_offset = old[-1].next_offset
        new.hold_open()
        swapped.append(new)

    yield prepare
    # Who reads from now on finds the new segment, which holds its files open: their names change.
    log.segments.replace(old, swapped)

    def rename() -> None:
        for segment in old:
            renamed.extend(segment.rename(DELETED))
        for kind in kinds:
            files.rename(stem + kind + SWAP, stem + kind)

    yield rename
    swapped[0].let_go()
    log.doomed += renamed
