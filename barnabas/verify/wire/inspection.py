"""The state of the cluster: committed offsets, watermarks, open transactions (KIP-664)."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.client.admin import Admin, finalized_features
from barnabas.client.cluster import TRANSACTION, Cluster, check
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    describe_producers,
    describe_transactions,
    offset_fetch,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.verify.history import History, Partition
from barnabas.verify.wire.recorder import Recorder

_HIGHEST_WITH_NAMES: Final = 9
EPOCH_PER_TRANSACTION: Final = 2


class Ends(NamedTuple):
    """The first and last offsets of a partition."""

    start: int
    high_watermark: int
    last_stable_offset: int


class CommittedOffset(NamedTuple):
    """A committed offset of a group (-1: none) and the transaction that committed it."""

    offset: int
    txn: str | None


async def committed_offset(
    history: History, cluster: Cluster, proc: str, group: str, at: Partition
) -> CommittedOffset:
    """Read the stable committed offset of a group and write it to the history.

    Raises OperationFailed.
    """

    async def ask() -> CommittedOffset:
        topic = offset_fetch.OffsetFetchRequestTopics(name=at[0], partition_indexes=[at[1]])
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[topic])],
            require_stable=True,
        )
        connection = await cluster.coordinator_connection(group)
        answer = await connection.request(
            offset_fetch.API,
            request,
            version=min(connection.version_for(offset_fetch.API), _HIGHEST_WITH_NAMES),
            timeout=cluster.timeout,
        )
        check(answer.groups[0].error_code)
        row = answer.groups[0].topics[0].partitions[0]
        check(row.error_code)
        return CommittedOffset(row.committed_offset, row.metadata or None)

    return await Recorder(history, cluster, proc).do(
        "committed", {"group": group, "at": at}, ask, lambda found: found._asdict()
    )


async def ends(cluster: Cluster, partitions: Iterable[Partition]) -> dict[Partition, Ends]:
    """Return the offsets of each partition.

    The last stable offset is requested first, so it is never above the high watermark.
    """
    asked = [TopicPartition(*at) for at in partitions]
    starts = await find_offsets(cluster, dict.fromkeys(asked, EARLIEST))
    stable = await find_offsets(cluster, dict.fromkeys(asked, LATEST), read_committed=True)
    highs = await find_offsets(cluster, dict.fromkeys(asked, LATEST))
    return {at: Ends(starts[at].offset, highs[at].offset, stable[at].offset) for at in asked}


async def open_transactions(cluster: Cluster, at: Partition) -> list[tuple[int, int]]:
    """Return producer id and first offset of each transaction that is open in a partition."""

    async def ask() -> list[tuple[int, int]]:
        topic = describe_producers.TopicRequest(name=at[0], partition_indexes=[at[1]])
        request = describe_producers.DescribeProducersRequest(topics=[topic])
        leader = await cluster.leader(*at)
        answer = await cluster.ask(describe_producers.API, request, node=leader)
        row = answer.topics[0].partitions[0]
        check(row.error_code)
        return [
            (each.producer_id, each.current_txn_start_offset)
            for each in row.active_producers
            if each.current_txn_start_offset >= 0
        ]

    return await cluster.retrying(ask)


async def states(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, str]:
    """Return the states of transactional ids; unknown ids are left out."""
    found = {}
    for each in transactional_ids:
        state = await cluster.retrying(lambda each=each: _state(cluster, each))  # type: ignore[misc]
        if state is not None:
            found[each] = state
    return found


async def _state(cluster: Cluster, transactional_id: str) -> str | None:
    request = describe_transactions.DescribeTransactionsRequest(
        transactional_ids=[transactional_id]
    )
    answer = await cluster.ask_coordinator(
        describe_transactions.API, request, transactional_id, TRANSACTION
    )
    row = answer.transaction_states[0]
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    check(row.error_code)
    return str(row.transaction_state)


async def transaction_version(cluster: Cluster) -> int:
    """Return the finalized `transaction.version` of the cluster."""
    return (await finalized_features(cluster)).get("transaction.version", 0)


async def ids_kept(cluster: Cluster) -> float | None:
    """Return after how many s unused transactional ids expire; None if the broker hides it."""
    node = min(cluster.nodes)
    try:
        entries = await Admin(cluster).describe_configs(ConfigResourceType.BROKER, str(node))
    except KafkaError:
        return None
    kept = {entry.name: entry.value for entry in entries}.get("transactional.id.expiration.ms")
    return None if kept is None else int(kept) / 1000
