"""The checks of the order of records and watermarks (C8, C9, C12)."""

from bisect import bisect_left
from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.history import Partition
from barnabas.verify.run import Read, Run


def producers_in_order(run: Run) -> Iterator[Anomaly]:
    """C8: the records of a producer in a partition are in the order in which it sent them."""
    last: dict[tuple[str, Partition], tuple[int, str]] = {}
    for write in run.writes.values():
        offset = run.offsets.get(write.value)
        if offset is None or offset < 0 or write.late:
            continue
        key = write.proc, write.at
        before = last.get(key)
        if before is not None and offset <= before[0]:
            text = f"{write.proc} sent {before[1]} (offset {before[0]}) before {write.value}"
            yield Anomaly("C8", "nonmonotonic-send", text, write.at, offset)
        last[key] = offset, write.value


def readers_in_order(run: Run) -> Iterator[Anomaly]:
    """C9: within an assignment a reader goes forward and skips no record that it should see."""
    skippable = {
        (committed, at): sorted(found)
        for committed, partitions in (
            (True, run.final_committed),
            (False, run.final_uncommitted),
        )
        for at, found in partitions.items()
        if not run.is_compacted(at[0])
    }
    positions: dict[tuple[str, int, Partition], int] = {}
    for read in run.reads:
        key = read.reader, read.assignment, read.at
        position = positions.get(key, read.start)
        for offset, value in read.records:
            if offset < position:
                text = f"{read.reader} was at {position} and read {value}"
                yield Anomaly("C9", "int-nonmonotonic-poll", text, read.at, offset)
            position = offset + 1
        positions[key] = max(position, read.end)
        yield from _skipped(read, skippable.get((read.committed, read.at), []))


def _skipped(read: Read, visible: list[int]) -> Iterator[Anomaly]:
    seen = {offset for offset, _ in read.records}
    index = bisect_left(visible, read.start)
    while index < len(visible) and visible[index] < read.end:
        if visible[index] not in seen:
            text = f"{read.reader} read from {read.start} to {read.end} without it"
            yield Anomaly("C9", "int-poll-skip", text, read.at, visible[index])
        index += 1


def watermarks_grow(run: Run) -> Iterator[Anomaly]:
    """C12: within a leader epoch the watermarks that a reader sees never go back.

    The last stable offset is never above the high watermark. Followers are excluded: they learn
    both later, and start again after a restart.
    """
    last: dict[tuple[str, Partition, int], tuple[int, int]] = {}
    for read in run.reads:
        stable, high = read.last_stable_offset, read.high_watermark
        if stable > high:
            text = f"last stable offset {stable} above high watermark {high}"
            yield Anomaly("C12", "watermarks-crossed", text, read.at, high)
        if read.node is not None or read.epoch < 0:
            continue
        key = read.reader, read.at, read.epoch
        before = last.get(key, (-1, -1))
        for name, was, is_ in (
            ("high watermark", before[0], high),
            ("last stable offset", before[1], stable),
        ):
            if is_ < was:
                text = f"{read.reader} saw the {name} go from {was} back to {is_}"
                yield Anomaly("C12", "watermark-regression", text, read.at, is_)
        last[key] = high, stable


def nothing_shown_early(run: Run) -> Iterator[Anomaly]:
    """C12: once a replica has shown a record, the leader of that epoch reports it as committed."""
    shown: dict[tuple[Partition, int], list[tuple[float, int]]] = {}
    for read in run.reads:
        key = read.at, read.epoch
        known = shown.setdefault(key, [])
        if read.node is None and read.epoch >= 0:
            index = bisect_left(known, (read.asked, -1))
            highest = known[index - 1][1] if index else -1
            if read.high_watermark <= highest:
                text = f"{read.reader} was told of high watermark {read.high_watermark}"
                text += f" after offset {highest} had been read"
                yield Anomaly("C12", "shown-uncommitted", text, read.at, highest)
        last = max((offset for offset, _ in read.records), default=-1)
        if last > (known[-1][1] if known else -1):
            known.append((read.told, last))
