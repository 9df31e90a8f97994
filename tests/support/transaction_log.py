"""The records of `__transaction_state` in a broker's directory."""

from pathlib import Path

from barnabas.coordinator.transaction.records import decode_record
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records


def content(log: Path) -> bytes:
    """Return the batches of a log."""
    return b"".join(segment.read_bytes() for segment in sorted(log.glob("*.log")))


def states_of(data: bytes) -> list[str]:
    """Return the states of transactional ids in batches, in their order."""
    found = []
    for position, header in iter_headers(data):
        for each in iter_records(data, position, header):
            record = decode_record(each.key or b"", each.value)
            assert record is not None
            found.append("expired" if record.value is None else record.value.state.value)
    return found


def states(directory: Path, index: int = 0) -> list[str]:
    """Return the states in a partition of the transaction log, in their order."""
    return states_of(content(directory / f"__transaction_state-{index}"))
