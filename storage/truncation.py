"""Taking away a log's end: a follower that has what its leader has not (KIP-101, KIP-279).

What the log knows changes on the event loop, what waits for the disk is done in any thread. In
between the log is `truncating`: nobody reads it or appends to it. Bytes that a socket still has of
what goes (`File.send`) may change under it; batches have their CRC, and only a follower or an
unclean election has shown them to anybody.
"""

from typing import TYPE_CHECKING

from barnabas.storage.log_dir import on_disk
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.rearrangement import Rearrangement, Steps
from barnabas.storage.rebuild import rebuild_producers
from barnabas.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas.storage.log import Log


@on_disk
def truncate(log: "Log", offset: int, *, now_ms: int) -> Rearrangement:
    """Forgets what is at `offset` and after it, durably; a batch that reaches over it goes whole.

    Open transactions and producers are again what the rest of the log says.
    """
    log.settle()
    return Rearrangement(log, _truncate(log, offset, now_ms))


@on_disk
def start_again(log: "Log", offset: int, *, now_ms: int) -> Rearrangement:
    """Empties the log, which begins at `offset` now: a follower too far from its leader."""
    log.settle()
    return Rearrangement(log, _start_again(log, offset, now_ms))


def _truncate(log: "Log", offset: int, now_ms: int) -> Steps:
    if offset >= log.log_end_offset:
        # An epoch in which this broker led and wrote nothing may still have to go.
        log.drop_epochs_from(log.log_end_offset)
        return
    offset = log.segments.batch_start(offset)
    log.truncating = True
    if offset < log.segments.first.base_offset:
        yield from _start_again(log, offset, now_ms)
        return
    # Before anything else: what will be written here must be scanned after a crash.
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
        log.place.files.sync_dir(log.directory)

    yield cut
    yield from _end(log, active.next_offset, now_ms)


def _start_again(log: "Log", offset: int, now_ms: int) -> Steps:
    log.truncating = True
    if log.distrust(min(offset, log.log_start_offset)):
        yield log.write_checkpoint
    old, new = list(log.segments), list[Segment]()

    def begin() -> None:
        for segment in reversed(old):
            segment.delete()
        new.append(old[0].successor(offset, log.config, now_ms))
        new[0].activate()
        log.place.files.sync_dir(log.directory)

    yield begin
    log.segments.replace(old, new)
    log.epochs.clear()
    log.log_start_offset = max(log.log_start_offset, offset)
    yield from _end(log, offset, now_ms)


def _end(log: "Log", end: int, now_ms: int) -> Steps:
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
    producers.on_high_watermark(log.high_watermark)
    log.producers = producers
    log.truncating = False
