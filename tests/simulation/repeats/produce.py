"""Batches and clients for tests of the fast path of Produce, on brokers that run twice."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lz4 import frame

from barnabas.protocol.compile import write_uvarint
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    delete_records,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
)
from barnabas.protocol.messages.describe_client_quotas import EntityData
from barnabas.protocol.records.batch import ATTRIBUTES_AT, HEADER_SIZE, LOG_OVERHEAD
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.acl.rules import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    new_rule,
)
from tests.simulation.repeats.twins import Side, Twins, twins
from tests.support.virtual_loop import BIRTHDAY_MS

TIME_MS = BIRTHDAY_MS
_CRC_AT = 17
_FIELDS = {
    "base_offset": (">q", 0),
    "length": (">i", 8),
    "leader_epoch": (">i", 12),
    "magic": (">b", 16),
    "attributes": (">h", 21),
    "delta": (">i", 23),
    "base_ms": (">q", 27),
    "max_ms": (">q", 35),
    "producer_id": (">q", 43),
    "epoch": (">h", 51),
    "sequence": (">i", 53),
    "count": (">i", 57),
}
"""Format and position of the fields of a batch header."""
AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:admin",
}
CLIENT = "User:ANONYMOUS"


def batch(*values: bytes, at_ms: int = TIME_MS, key: bytes | None = None, **options: Any) -> bytes:
    """Return a batch of records with one key, or without keys."""
    values = values or (b"value",)
    return build_batch(
        [Record(at, at_ms, key, each, ()) for at, each in enumerate(values)], **options
    )


def changed(records: bytes, **fields: int) -> bytes:
    """Return a batch with other header fields, and the CRC of what it is then."""
    data = bytearray(records)
    for name, value in fields.items():
        form, position = _FIELDS[name]
        struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return bytes(data)


def with_body(codec: Compression, body: bytes) -> bytes:
    """Return a batch whose record is compressed already."""
    whole = batch()[:HEADER_SIZE] + body
    return changed(whole, attributes=int(codec), length=len(whole) - LOG_OVERHEAD)


LINKED = with_body(Compression.LZ4, frame.compress(bytes(100_000), block_linked=True, block_size=4))
FRAMING = with_body(Compression.SNAPPY, b"\xff\x06\0\0sNaPpY" + bytes(20))
"""Batches that Java cannot read, as their first bytes show."""


Change = Callable[[bytes, bytes, int], bytes]


def cut(size: int) -> Change:
    return lambda whole, *_: whole[:size]


def behind(more: bytes) -> Change:
    return lambda whole, *_: whole + more


def tagged(tags: bytes) -> Change:
    return lambda whole, *_: whole[:-3] + tags


def longer(more: int) -> Change:
    """Change the length of the records; by 0 it has a byte more than it needs, if it is compact."""

    def change(whole: bytes, records: bytes, version: int) -> bytes:
        at, size = whole.index(records), len(records) + more
        if version < 9:
            return whole[: at - 4] + struct.pack(">i", size + 2 * (not more)) + whole[at:]
        field = bytearray(write_uvarint(size + 1))
        if not more:
            field[-1] |= 128
            field.append(0)
        return whole[: at - len(write_uvarint(len(records) + 1))] + bytes(field) + whole[at:]

    return change


ODD = {
    **{f"cut to {size}": cut(size) for size in (0, 1, 3, 4, 8, 30, -80, -60, -20, -4, -3, -1)},
    **{f"behind: {more!r}": behind(more) for more in (b"\0", b"\0" * 3, b"\1", b"more")},
    **{f"longer by {more}": longer(more) for more in (-70, -3, -1, 0, 1, 3, 1000)},
    **{f"tags {tags!r}": tagged(tags) for tags in (b"\0\0\1", b"\0\1\0", b"\1\0\0")},
    **{f"tags {tags!r}": tagged(tags) for tags in (b"\1\7\1x\0\0", b"\0\0\1\7\1x")},
}
"""Requests of other bytes: those of a request, its records and version are given."""


@contextmanager
def writing(*, known: int = 2, version: int = 9, **configs: str) -> Iterator[Twins]:
    """Run twins with a topic `t` of two partitions, to which connection 0 has written: its next
    request is on the fast path."""
    with twins() as pair:
        pair.create(partitions=2, **configs)
        for _ in range(known):
            pair.produce(batch(), version=version, topic_id=pair.ids["t"])
        assert pair.served == known - 1
        yield pair


def code(answer: bytes, version: int = 9) -> str:
    """Return the error in the answer to a request for `t` by name."""
    # The answer after its number: tags, count of topics, name, count of partitions, index.
    position = (1 if version >= 9 else 0) + (1 + 2 + 1 if version >= 9 else 4 + 3 + 4) + 4
    return ErrorCode(int.from_bytes(answer[position : position + 2], signed=True)).name


def codes(pair: Twins, *records: bytes | None, version: int = 9, **fields: Any) -> list[str]:
    """Produce one batch after the other; return the errors."""
    return [code(pair.produce(each, version=version, **fields), version) for each in records]


def quick(pair: Twins, records: bytes | None = None, **fields: Any) -> bool:
    """Return whether a good batch is on the fast path."""
    before = pair.served
    assert codes(pair, batch() if records is None else records, **fields) == ["NONE"]
    return pair.served > before


class Producer:
    """A transactional producer, or an idempotent one without an id."""

    def __init__(
        self, pair: Twins, transactional_id: str | None = "x", *, version: int = 9
    ) -> None:
        self.pair = pair
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.init()

    def init(self, patience: int = 200) -> None:
        if self.transactional_id is not None:
            # It creates the topic of the coordinators.
            wanted = find_coordinator.FindCoordinatorRequest(
                coordinator_keys=[self.transactional_id], key_type=1
            )
            self.pair.ask(find_coordinator, wanted)
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000
        )
        for _ in range(patience):
            answer = self.pair.ask(init_producer_id, request, 4)
            if not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
                return
            # The coordinator loads, or the previous transaction ends.
            self.pair.wait(0.1)
        assert patience == 1, answer

    def batch(self, *values: bytes, index: int = 0, topic: str = "t", **changes: Any) -> bytes:
        """Return the next batch for a partition."""
        values = values or (b"value",)
        sequence = self.sequences.get((topic, index), 0)
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "transactional": self.transactional_id is not None,
        }
        if "base_sequence" not in changes:
            self.sequences[topic, index] = sequence + len(values)
        return batch(*values, **fields | changes)

    def add(
        self,
        *places: int | tuple[str, int],
        group_id: str | None = None,
        patience: int = 200,
    ) -> int:
        """Add partitions to the transaction, of `t` by their indexes; return the first error."""
        named = [("t", each) if isinstance(each, int) else each for each in places]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in named
            ],
            group_id=group_id,
        )
        for _ in range(patience):
            answer = self.pair.ask(add_partitions_to_txn, request, 3)
            error: int = (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            )
            if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.pair.wait(0.1)
        return error

    def end(self, *, commit: bool = True, wait_s: float = 0.5) -> int:
        """End the transaction, and wait for its markers; return the error."""
        version = 5 if self.version >= 12 else 3
        request = end_txn.EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.pair.ask(end_txn, request, version)
        self.pair.wait(wait_s)
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        error: int = answer.error_code
        return error

    def send(self, records: bytes | None = None, *, index: int = 0, **fields: Any) -> str:
        """Produce a batch, by default the next one; return the error."""
        if records is None:
            records = self.batch(index=index)
        options = {"transactional_id": self.transactional_id, "version": self.version, **fields}
        (error,) = codes(self.pair, records, index=index, **options)
        return error

    def quick(self, records: bytes | None = None, **fields: Any) -> bool:
        """Return whether a good batch is on the fast path."""
        before = self.pair.served
        assert self.send(records, **fields) == "NONE"
        return self.pair.served > before


def rule(operation: AclOperation, kind: ResourceType, name: str, permission: int = 3) -> AclBinding:
    return new_rule(
        kind, name, PatternType.LITERAL, CLIENT, "*", operation, AclPermissionType(permission)
    )


def allow(pair: Twins, *rules: AclBinding) -> None:
    """Create rules."""
    created = pair.both(lambda side: acls_of(side).create(rules))
    assert created == [None] * len(rules)


def forbid(pair: Twins, kind: ResourceType, name: str) -> None:
    """Delete the rules of a resource."""
    (deleted,) = pair.both(lambda side: acls_of(side).delete([AclFilter(kind, name)]))
    assert deleted


def acls_of(side: Side) -> Any:
    return side.broker._core.acls


def limit(pair: Twins, bytes_per_s: float | None) -> None:
    """Set the quota of every client, or remove it."""
    module = alter_client_quotas
    operation = module.OpData(
        key="producer_byte_rate", value=bytes_per_s or 0.0, remove=bytes_per_s is None
    )
    entity = [EntityData(entity_type="client-id", entity_name="client")]
    entry = module.AlterEntryData(entity=entity, ops=[operation])
    pair.ask(module, module.AlterClientQuotasRequest(entries=[entry], validate_only=False))


def trim(pair: Twins, offset: int, topic: str = "t", index: int = 0) -> None:
    """Delete the records before an offset."""
    module = delete_records
    partition = module.DeleteRecordsPartition(partition_index=index, offset=offset)
    wanted = module.DeleteRecordsTopic(name=topic, partitions=[partition])
    pair.ask(module, module.DeleteRecordsRequest(topics=[wanted], timeout_ms=1000))


def remembered(pair: Twins, connection: int = 0) -> int:
    """Return the number of partitions that the broker remembers for a connection."""
    peer = pair.fast.wires[connection].transport.peer.get_protocol()
    return sum(repeats.count for _, repeats in peer.repeats.values() if repeats._api is produce.API)
