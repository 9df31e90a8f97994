"""Truncation: removing the end of a follower's log that its leader does not have (KIP-101,
KIP-279).

The log's state changes on the event loop, the disk work runs in any thread. Until all steps are
done the log is `truncating`: it is neither read nor appended to. Truncated bytes that a socket is
still sending (`File.send`) may change on the way; the CRC of their batch then fails. Only a read
from a follower, or an unclean election, can have exposed such bytes to a client.
"""

from typing import TYPE_CHECKING

from barnabas.storage.files.log_dir import on_disk
from barnabas.storage.log.producer_rebuild import rebuild_producers
from barnabas.storage.log.rearrangement import DiskSteps, Rearrangement
from barnabas.storage.log.segment import Segment
from barnabas.storage.producers.state import ProducerStateManager

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


@on_disk
def truncate(log: "Log", offset: int, *, now_ms: int) -> Rearrangement:
    """Drop `offset` and everything after it, durably; a batch that contains it is dropped whole.

    Open transactions and producer state are rebuilt from the rest of the log.
    """
    log.complete_rearrangement()
    return Rearrangement(log, _truncate(log, offset, now_ms))


@on_disk
def start_again(log: "Log", offset: int, *, now_ms: int) -> Rearrangement:
    """Empty the log and begin it at `offset`, for a follower too far from its leader."""
    log.complete_rearrangement()
    return Rearrangement(log, _start_again(log, offset, now_ms))


def _truncate(log: "Log", offset: int, now_ms: int) -> DiskSteps:
    if offset >= log.log_end_offset:
        # An epoch in which this broker led and wrote nothing may have to be dropped too.
        log.drop_epochs_from(log.log_end_offset)
        return
    offset = log.segments.batch_start(offset)
    log.truncating = True
    if offset < log.segments.first.base_offset:
        yield from _start_again(log, offset, now_ms)
        return
    # Before the files change: recovery must scan the records that are written here from now on.
    if log.distrust(offset):
        yield log.write_checkpoint
    dropped = list[Segment]()
    while log.segments.active.base_offset > offset:
        dropped.append(log.segments.remove_newest())
    active = log.segments.active

    def cut() -> None:
        for segment in dropped:
            segment.delete()
        active.activate()
        active.truncate_to(offset)
        active.file().sync()
        log.location.files.sync_dir(log.directory)

    yield cut
    yield from _end(log, active.next_offset, now_ms)


def _start_again(log: "Log", offset: int, now_ms: int) -> DiskSteps:
    log.truncating = True
    if log.distrust(min(offset, log.log_start_offset)):
        yield log.write_checkpoint
    old, new = list(log.segments), list[Segment]()

    def begin() -> None:
        for segment in reversed(old):
            segment.delete()
        first = old[0].successor(offset, log.config, now_ms)
        first.activate()
        new[:] = [first]
        log.location.files.sync_dir(log.directory)

    yield begin
    log.segments.replace(old, new)
    log.epochs.clear()
    log.log_start_offset = max(log.log_start_offset, offset)
    yield from _end(log, offset, now_ms)


def _end(log: "Log", end: int, now_ms: int) -> DiskSteps:
    if log.end_at(end):
        yield log.write_checkpoint
    producers, expiration_ms = ProducerStateManager(), log.producer_expiration_ms()

    def rebuild() -> None:
        rebuild_producers(
            log.segments,
            producers,
            log.snapshots,
            log_start_offset=log.log_start_offset,
            log_end_offset=end,
            now_ms=now_ms,
            expiration_ms=expiration_ms,
        )

    yield rebuild
    # A snapshot does not tell which markers before it are replicated.
    kept = log.producers.unreplicated.items()
    producers.unreplicated |= {first: marker for first, marker in kept if marker < end}
    producers.on_high_watermark(log.high_watermark)
    replaced, log.producers = log.producers, producers
    yield replaced.discard
    log.truncating = False
