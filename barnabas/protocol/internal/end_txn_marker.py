"""Keys and values of control records, each behind an int16 of its version (KIP-98)."""

from barnabas.protocol.schema import Schema, message
from barnabas.protocol.types import Int16, Int32


@message
class ControlRecordTypeSchema:
    """The key of a control record: 0 aborts, 1 commits."""

    type: Int16


@message
class EndTxnMarker:
    """The value: the epoch of the coordinator that decided the outcome."""

    coordinator_epoch: Int32


CONTROL_RECORD_TYPE = Schema(ControlRecordTypeSchema, range(1))
END_TXN_MARKER = Schema(EndTxnMarker, range(1))
