"""Keys and values of control records."""

from barnabas.protocol.schema import Schema, message
from barnabas.protocol.types import Int16, Int32


@message
class ControlRecordTypeSchema:
    type: Int16


@message
class EndTxnMarker:
    coordinator_epoch: Int32


CONTROL_RECORD_TYPE = Schema(ControlRecordTypeSchema, range(1))
END_TXN_MARKER = Schema(EndTxnMarker, range(1))
