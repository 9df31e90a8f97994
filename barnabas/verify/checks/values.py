"""The checks of values, duplicates and visibility (C1, C2, C5, C6)."""

from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.history import FAIL, Partition
from barnabas.verify.run import OperationOutcome, Read, Run, Txn, Write


def consistent_offsets(run: Run) -> Iterator[Anomaly]:
    """C1: all readers and acknowledgements agree on the value at an offset.

    The value must have been sent to that partition.
    """
    found: dict[tuple[Partition, int], str] = {}
    for at, offset, value in _sightings(run):
        before = found.setdefault((at, offset), value)
        if before != value:
            text = f"{before} and {value} at one offset"
            yield Anomaly("C1", "inconsistent-offsets", text, at, offset)
        elif value not in run.writes:
            yield Anomaly("C1", "unknown-value", f"no producer sent {value[:80]!r}", at, offset)
        elif run.writes[value].at != at:
            text = f"{value} was sent to {_name(run.writes[value].at)}"
            yield Anomaly("C1", "unknown-value", text, at, offset)


def no_duplicates(run: Run) -> Iterator[Anomaly]:
    """C2: every value has one offset."""
    found: dict[str, tuple[Partition, int]] = {}
    for at, offset, value in _sightings(run):
        before = found.setdefault(value, (at, offset))
        if before != (at, offset):
            text = f"{value} is at {_name(before[0])} offset {before[1]} too"
            yield Anomaly("C2", "duplicate", text, at, offset)


def no_aborted_reads(run: Run) -> Iterator[Anomaly]:
    """C5: no reader sees a refused record, no read_committed reader sees an aborted one."""
    for read, offset, write in _known_reads(run):
        if write.status == FAIL:
            text = f"{read.reader} read {write.value}, which was refused"
            yield Anomaly("C5", "G1a", text, read.at, offset)
        elif read.committed and write.txn is not None:
            txn = run.txns[write.txn]
            if txn.outcome is OperationOutcome.ABORTED and not _is_early(read.line, txn):
                text = f"{read.reader} read {write.value} of {txn.name}, which was aborted"
                yield Anomaly("C5", "G1a", text, read.at, offset)
    for seen in run.observations:
        txn_name = seen.txn
        if txn_name is None or txn_name not in run.txns:
            continue
        txn = run.txns[txn_name]
        if txn.outcome is OperationOutcome.ABORTED and not _is_early(seen.line, txn):
            text = f"group {seen.group} has offset {seen.offset} of {txn_name}, which was aborted"
            yield Anomaly("C5", "G1a", text, seen.at)


def no_early_reads(run: Run) -> Iterator[Anomaly]:
    """C6: read_committed shows no record of a transaction before its commit was requested.

    This includes the transaction's own records.
    """
    for read, offset, write in _known_reads(run):
        if read.committed and write.txn is not None and _is_early(read.line, run.txns[write.txn]):
            whose = "its own " if read.txn == write.txn else ""
            text = f"{read.reader} read {whose}{write.value} while {write.txn} was open"
            yield Anomaly("C6", "precommitted-read", text, read.at, offset)
    for seen in run.observations:
        if seen.txn in run.txns and _is_early(seen.line, run.txns[seen.txn]):
            text = f"group {seen.group} showed offset {seen.offset} while {seen.txn} was open"
            yield Anomaly("C6", "precommitted-read", text, seen.at)


def _is_early(line: int, txn: Txn) -> bool:
    return txn.ending is None or line < txn.ending


def _sightings(run: Run) -> Iterator[tuple[Partition, int, str]]:
    for write in run.writes.values():
        if write.offset is not None and write.offset >= 0:
            yield write.at, write.offset, write.value
    for read in run.reads:
        for offset, value in read.records:
            yield read.at, offset, value


def _known_reads(run: Run) -> Iterator[tuple[Read, int, Write]]:
    for read in run.reads:
        for offset, value in read.records:
            write = run.writes.get(value)
            if write is not None:
                yield read, offset, write


def _name(at: Partition) -> str:
    return f"{at[0]}-{at[1]}"
