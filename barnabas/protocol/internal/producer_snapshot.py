"""Producer state in `.snapshot` files, after an int16 with its version."""

from barnabas.protocol.schema import Schema, field, message
from barnabas.protocol.types import Array, Int16, Int32, Int64, Uint32


@message
class ProducerEntry:
    """A producer's last batch and open transaction; the first offset is -1 if none is open."""

    producer_id: Int64 = field(default=0)
    epoch: Int16 = field(default=0)
    last_sequence: Int32 = field(default=0)
    last_offset: Int64 = field(default=0)
    offset_delta: Int32 = field(default=0)
    timestamp: Int64 = field(default=0)
    coordinator_epoch: Int32 = field(default=0)
    current_txn_first_offset: Int64 = field(default=0)


@message
class ProducerSnapshot:
    """The content of a snapshot file; `crc` is the CRC-32C of everything after the field itself."""

    crc: Uint32 = field(default=0)
    producer_entries: Array[ProducerEntry] = field(default_factory=list)


PRODUCER_SNAPSHOT = Schema(ProducerSnapshot, range(1, 2))
