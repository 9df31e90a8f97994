"""Keys and values of control records."""

from barnabas.protocol.schema import message
from barnabas.protocol.types import Int16, Int32


@message
class ControlRecordTypeSchema:
    type: Int16


@message
class EndTxnMarker:
    coordinator_epoch: Int32
