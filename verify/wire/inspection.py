"""What the cluster says of itself: committed offsets, watermarks, open transactions (KIP-664)."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import TRANSACTION, Cluster, check
from barnabas.client.features import finalized_features
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    describe_producers,
    describe_transactions,
    offset_fetch,
)
from barnabas.verify.history import History, Place
from barnabas.verify.wire.recorder import Recorder

_HIGHEST_WITH_NAMES: Final = 9
EPOCH_PER_TRANSACTION: Final = 2


class Ends(NamedTuple):
    """Where a partition begins and ends."""

    start: int
    high_watermark: int
    last_stable_offset: int


class CommittedOffset(NamedTuple):
    """A group's offset, -1 without one, and the transaction that committed it."""

    offset: int
    txn: str | None


async def committed_offset(
    history: History, cluster: Cluster, proc: str, group: str, at: Place
) -> CommittedOffset:
    """A group's stable offset in one partition, written down; raises NotDone."""

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


async def ends(cluster: Cluster, places: Iterable[Place]) -> dict[Place, Ends]:
    """Of each partition; the last stable offset is asked for first, so it is never above."""
    asked = list(places)
    starts = await find_offsets(cluster, dict.fromkeys(asked, EARLIEST))
    stable = await find_offsets(cluster, dict.fromkeys(asked, LATEST), read_committed=True)
    highs = await find_offsets(cluster, dict.fromkeys(asked, LATEST))
    return {at: Ends(starts[at].offset, highs[at].offset, stable[at].offset) for at in asked}


async def open_transactions(cluster: Cluster, at: Place) -> list[tuple[int, int]]:
    """Producer id and first offset of each transaction that is open in a partition."""

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
    """What their coordinators say; ids that are not known are left out."""
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
    """The level of `transaction.version` that the cluster has settled on."""
    return (await finalized_features(cluster)).get("transaction.version", 0)


async def ids_kept(cluster: Cluster) -> float | None:
    """How long transactional ids are remembered that nobody uses, in s; None if that is secret."""
    node = min(cluster.nodes)
    try:
        entries = await Admin(cluster).describe_configs(ResourceType.BROKER, str(node))
    except KafkaError:
        return None
    kept = {entry.name: entry.value for entry in entries}.get("transactional.id.expiration.ms")
    return None if kept is None else int(kept) / 1000
