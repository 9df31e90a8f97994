"""`barnabas dump-log`: the contents of log files, read without a broker."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from barnabas.cli.help import Command
from barnabas.cli.tables import tell
from barnabas.operations.answers.dump_log import (
    AbortedTransaction,
    Batch,
    Line,
    LoggedRecord,
    Marker,
    OffsetEntry,
    ProducerState,
    TimeEntry,
)
from barnabas.operations.answers.model import fields_of
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import crc_matches, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import iter_records
from barnabas.storage.log.txn_index import CorruptTxnIndexError
from barnabas.storage.log.txn_index import decode as decode_txn_index
from barnabas.storage.producers.snapshot import CorruptSnapshotError, decode_snapshot

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@click.command("dump-log", cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("-r", "--records", is_flag=True, help="Show the records in the batches.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump_log(paths: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Show batches, indexes and producer snapshots of PATHS: files, or partition directories.

    If a file is damaged, shows its readable part; the exit code is 1.
    """
    tell_line = _json_teller() if as_json else _tell
    damaged = False
    for path in _files(paths):
        try:
            for line in _READERS[path.suffix](path, records):
                tell_line(line)
        except (ProtocolError, CorruptSnapshotError, CorruptTxnIndexError) as error:
            click.echo(f"{path}: {error}", err=True)
            damaged = True
    if damaged:
        raise click.exceptions.Exit(1)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.iterdir()) if file.suffix in _READERS)
        elif path.suffix in _READERS:
            yield path
        else:
            kinds = ", ".join(_READERS)
            raise click.UsageError(f"{path.name}: only files ending in {kinds} can be shown")


def _tell(line: Line) -> None:
    fields = fields_of(line)
    del fields["file"]
    if isinstance(line, LoggedRecord):
        fields["headers"] = [list(each) for each in line.headers]
    tell(" ".join(f"{name}={value}" for name, value in fields.items()))


def _json_teller() -> Callable[[Line], None]:
    """Return the function that prints a line as JSON."""
    from barnabas.cli.json_answers import to_json

    return lambda line: click.echo(to_json("dump-log", line, indent=None))


def _base_offset(path: Path) -> int:
    if not path.stem.isdigit():
        raise click.UsageError(f"{path.name}: the name of a log file must be its base offset")
    return int(path.stem)


def _batches(path: Path, records: bool) -> Iterator[Line]:
    data = memoryview(path.read_bytes())
    pos = 0
    while pos < len(data):
        header = read_header(data, pos)
        valid = crc_matches(data, pos, header)
        yield Batch(
            file=path.name,
            offset=header.base_offset,
            last_offset=header.last_offset,
            count=header.record_count,
            position=pos,
            size_bytes=header.size,
            leader_epoch=header.partition_leader_epoch,
            timestamp_ms=header.max_timestamp,
            timestamp_type="append" if header.timestamp_type else "create",
            compression=Compression(header.compression).name.lower(),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            crc=header.crc,
            valid=valid,
        )
        if not valid:
            raise ProtocolError(f"the batch at position {pos} does not match its CRC")
        if header.is_control:
            marker = read_marker(data, pos, header)
            if records and marker is not None:
                yield Marker(
                    file=path.name,
                    offset=header.base_offset,
                    marker="commit" if marker.committed else "abort",
                    coordinator_epoch=marker.coordinator_epoch,
                )
        elif records:
            for record in iter_records(data, pos, header):
                yield LoggedRecord(
                    file=path.name,
                    offset=record.offset,
                    timestamp_ms=record.timestamp,
                    key=_text(record.key),
                    value=_text(record.value),
                    headers=[(name, _text(value)) for name, value in record.headers],
                )
        pos += header.size


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _entries(entry: struct.Struct, path: Path) -> Iterator[tuple[int, int]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    for first, second in entry.iter_unpack(data[:whole]):
        # The index of a running broker is preallocated: zeros follow the last entry.
        if (first, second) == (0, 0):
            return
        yield first, second


def _offset_index(path: Path, _: bool) -> Iterator[Line]:
    base = _base_offset(path)
    for relative, position in _entries(_OFFSET_ENTRY, path):
        yield OffsetEntry(file=path.name, offset=base + relative, position=position)


def _time_index(path: Path, _: bool) -> Iterator[Line]:
    base = _base_offset(path)
    for timestamp, relative in _entries(_TIME_ENTRY, path):
        yield TimeEntry(file=path.name, timestamp_ms=timestamp, offset=base + relative)


def _txn_index(path: Path, _: bool) -> Iterator[Line]:
    for aborted in decode_txn_index(path.read_bytes()):
        yield AbortedTransaction(file=path.name, **aborted._asdict())


def _snapshot(path: Path, _: bool) -> Iterator[Line]:
    for entry in decode_snapshot(path.read_bytes()):
        yield ProducerState(
            file=path.name,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_offset=entry.last_offset,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp_ms=entry.last_timestamp,
            current_txn_first_offset=entry.current_txn_first_offset,
        )


_READERS: dict[str, Callable[[Path, bool], Iterator[Line]]] = {
    ".log": _batches,
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".txnindex": _txn_index,
    ".snapshot": _snapshot,
}
