"""The records of `__transaction_state`, read with a consumer.

The partitions are read from the start: compaction keeps the latest record of each transactional id,
and until compaction runs, all records.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.records import decode_key, decode_record
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition

TOPIC = "__transaction_state"


class History(NamedTuple):
    """The records of the transactional ids of a producer id, in log order."""

    records: list[TransactionMetadata]
    unreadable: str | None = None
    """The reason why a further record cannot be read: it may be the decision."""


class _Unreadable(NamedTuple):
    """A record that cannot be read; a damaged key has no transactional id."""

    transactional_id: str | None
    why: str


async def histories(
    cluster: Cluster, producer_ids: Iterable[int], known: Mapping[int, str]
) -> dict[int, History]:
    """Return by producer id the records of the transactional ids that have or had these ids.

    The records begin with the first one of the producer id. If `known` names the transactional id
    of every producer id, only the partitions of these ids are read.
    """
    wanted = set(producer_ids)
    try:
        count = len((await cluster.topic(TOPIC)).leaders)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}
    indexes: Iterable[int] = range(count)
    if wanted <= known.keys():
        indexes = {partition_for(known[each], count) for each in wanted}
    owners: dict[str | None, set[int]] = defaultdict(set)
    for producer_id in wanted & known.keys():
        owners[known[producer_id]].add(producer_id)
    found: dict[int, list[TransactionMetadata]] = {each: [] for each in wanted}
    unreadable: dict[str | None, str] = {}
    async for txn in _records(cluster, [TopicPartition(TOPIC, index) for index in indexes]):
        if isinstance(txn, _Unreadable):
            unreadable.setdefault(txn.transactional_id, txn.why)
            continue
        mine = wanted & _producer_ids(txn)
        owners[txn.transactional_id] |= mine
        for producer_id in owners[txn.transactional_id]:
            # The id's earlier producers wrote nothing of this one.
            if found[producer_id] or producer_id in mine:
                found[producer_id].append(txn)
    # Without its key, a record may be of any transactional id.
    owners[None] = wanted
    damaged = {each: why for name, why in unreadable.items() for each in owners.get(name, ())}
    return {each: History(records, damaged.get(each)) for each, records in found.items()}


def _producer_ids(txn: TransactionMetadata) -> set[int]:
    ids = {txn.producer_id, txn.previous_producer_id}
    return ids if txn.ended is None else ids | {txn.ended.producer_id}


async def _records(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> AsyncIterator[TransactionMetadata | _Unreadable]:
    wanted = dict.fromkeys(partitions, EARLIEST)
    starts = await find_offsets(cluster, wanted)
    ends = await find_offsets(cluster, dict.fromkeys(wanted, LATEST))
    consumer = Consumer(cluster, FetchSettings(read_committed=False, offset_reset=EARLIEST))
    consumer.assign(
        {each: row.offset for each, row in starts.items() if row.offset < ends[each].offset}
    )
    # Read only up to the end offset of the start: coordinators continue to write.
    while consumer.positions:
        for message in await consumer.poll():
            if message.key is None:
                continue
            transactional_id = None
            try:
                transactional_id = decode_key(message.key)
                record = decode_record(message.key, message.value)
            except ProtocolError as error:
                yield _Unreadable(transactional_id, str(error))
                continue
            if record is not None and record.value is not None:
                yield record.value
        consumer.assign(
            {
                each: offset
                for each, offset in consumer.positions.items()
                if offset < ends[each].offset
            }
        )
