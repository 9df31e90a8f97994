"""Markers at any offset of a log."""

from barnabas.protocol.records.control import TxnMarker


def marker_batch(marker: TxnMarker, timestamp: int, offset: int) -> bytes:
    """Return the control batch with a marker, as a log has it."""
    batch, _ = marker.packed(timestamp)
    return offset.to_bytes(8) + batch[8:]
