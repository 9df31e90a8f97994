"""The records of `__transaction_state`, read with a consumer.

The partitions are read from the start: compaction keeps the latest record of each transactional id,
and until compaction runs, all records.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.records import decode_record
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition

TOPIC = "__transaction_state"


async def histories(
    cluster: Cluster, producer_ids: Iterable[int], known: Mapping[int, str]
) -> dict[int, list[TransactionMetadata]]:
    """Return by producer id the records of the transactional ids that have or had these ids.

    The records are in log order, from the first record with the producer id on. If `known` names
    the transactional id of every producer id, only the partitions of these ids are read.
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
    owners: dict[str, set[int]] = defaultdict(set)
    found: dict[int, list[TransactionMetadata]] = defaultdict(list)
    async for txn in _records(cluster, [TopicPartition(TOPIC, index) for index in indexes]):
        if mine := wanted & _producer_ids(txn):
            owners[txn.transactional_id] |= mine
        for producer_id in owners.get(txn.transactional_id, ()):
            found[producer_id].append(txn)
    return dict(found)


def _producer_ids(txn: TransactionMetadata) -> set[int]:
    ids = {txn.producer_id, txn.previous_producer_id}
    return ids if txn.ended is None else ids | {txn.ended.producer_id}


async def _records(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> AsyncIterator[TransactionMetadata]:
    wanted = dict.fromkeys(partitions, EARLIEST)
    starts = await find_offsets(cluster, wanted)
    ends = await find_offsets(cluster, dict.fromkeys(wanted, LATEST))
    consumer = Consumer(cluster, FetchSettings(read_committed=False, offset_reset=EARLIEST))
    consumer.assign(
        {each: row.offset for each, row in starts.items() if row.offset < ends[each].offset}
    )
    # Read up to the end at the start only: coordinators go on writing.
    while consumer.positions:
        for message in await consumer.poll():
            if message.key is None:
                continue
            record = decode_record(message.key, message.value)
            if record is not None and record.value is not None:
                yield record.value
        consumer.assign(
            {
                each: offset
                for each, offset in consumer.positions.items()
                if offset < ends[each].offset
            }
        )
