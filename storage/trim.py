"""What happens to old segments: retention drops them, compaction puts others in their place.

Files are renamed on the spot and unlinked later (`file.delete.delay.ms`), when nobody that found
them before still opens them.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.files import Files
from barnabas.storage.retention import deletable_segments
from barnabas.storage.segment import CLEANED, DELETED, KINDS_LOG_LAST, SWAP, file_name
from barnabas.storage.segments import Segments

if TYPE_CHECKING:
    from barnabas.config.topic import TopicConfig
    from barnabas.storage.log import Log


def segments_to_drop(log: "Log", now_ms: int) -> int:
    """How many of the oldest segments retention takes."""
    config = log.config
    return deletable_segments(
        list(log.segments),
        cleanup_policy=config.cleanup_policy,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )


def drop_segments(segments: Segments, count: int) -> list[str]:
    """Takes the oldest segments away; returns their files' new paths.

    Oldest first: a crash in between leaves no hole.
    """
    return [path for old in segments.remove_oldest(count) for path in old.rename(DELETED)]


def swap_in_compacted(
    files: Files,
    segments: Segments,
    base_offset: int,
    replaced: Sequence[int],
    config: "TopicConfig",
) -> list[str]:
    """Puts the durable files `<base_offset>.*.cleaned` where the segments `replaced` are.

    Until the log file is `.swap` nothing has happened, from then on recovery finishes the rest.
    Returns the new paths of the old files.
    """
    old = [segment for segment in segments if segment.base_offset in replaced]
    stem = os.path.join(old[0].directory, file_name(base_offset, ""))
    kinds = [kind for kind in KINDS_LOG_LAST if files.exists(stem + kind + CLEANED)]
    for kind in kinds:
        files.rename(stem + kind + CLEANED, stem + kind + SWAP)
    renamed = [path for segment in old for path in segment.rename(DELETED)]
    for kind in kinds:
        files.rename(stem + kind + SWAP, stem + kind)
    new = old[0].successor(base_offset, config, old[0].created_ms)
    new.next_offset = old[-1].next_offset
    segments.replace(old, [new])
    return renamed
