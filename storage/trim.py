"""What happens to old segments: retention drops them, compaction puts others in their place.

Files are renamed on the spot and unlinked later (`file.delete.delay.ms`), when nobody that found
them before still opens them.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.retention import deletable_segments
from barnabas.storage.segment import CLEANED, DELETED, KINDS_LOG_LAST, SWAP, file_name

if TYPE_CHECKING:
    from barnabas.storage.log import Log


def drop_old_segments(log: "Log", now_ms: int) -> int:
    """Takes away what retention says, by log start offset, size and time; how many segments."""
    config, segments = log.config, log.segments
    count = deletable_segments(
        list(segments),
        cleanup_policy=config.cleanup_policy,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    if count:
        if count == len(segments):
            log.roll(now_ms=now_ms)
        # Oldest first: a crash in between leaves no hole.
        for old in segments.remove_oldest(count):
            log.doomed += old.rename(DELETED)
        start = segments.first.base_offset
        log.delete_records_before(start)
        log.doomed += log.snapshots.remove_before(start)
    return count


def swap_in_compacted(log: "Log", base_offset: int, replaced: Sequence[int]) -> None:
    """Puts the durable files `<base_offset>.*.cleaned` where the segments `replaced` are.

    Until the log file is `.swap` nothing has happened, from then on recovery finishes the rest.
    """
    files = log.place.files
    old = [segment for segment in log.segments if segment.base_offset in replaced]
    stem = os.path.join(log.directory, file_name(base_offset, ""))
    kinds = [kind for kind in KINDS_LOG_LAST if files.exists(stem + kind + CLEANED)]
    for kind in kinds:
        files.rename(stem + kind + CLEANED, stem + kind + SWAP)
    for segment in old:
        log.doomed += segment.rename(DELETED)
    for kind in kinds:
        files.rename(stem + kind + SWAP, stem + kind)
    new = old[0].successor(base_offset, log.config, old[0].created_ms)
    new.next_offset = old[-1].next_offset
    log.segments.replace(old, [new])
