"""The administration of transactions at coordinators and partition leaders (KIP-664).

The brokers must be Kafka 3.0 or later, or Barnabas.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.client.cluster import TRANSACTION, Cluster, check, gather_all
from barnabas.client.connection import Connection
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    describe_producers,
    describe_transactions,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from barnabas.protocol.topic_partition import TopicPartition

_FENCING_TIMEOUT_MS = 60_000
"""The timeout of a fenced transactional id until its producer sets another in InitProducerId."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions of two-phase commit: they are never aborted by time (KIP-939)."""
ONGOING = "Ongoing"

_INSTALL_RE2 = "pip install 'barnabas[re2]'"
_LOG = "__transaction_state"

_PARTITIONS_PER_REQUEST = 500
"""The largest number of partitions in a DescribeProducers request; each may have thousands of
producers."""


class TransactionListing(NamedTuple):
    """A row of ListTransactions, with the coordinator that sent it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition; the timestamp is that of its last record."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def is_two_phase(row: describe_transactions.TransactionState) -> bool:
    """Whether an open transaction is kept or has no timeout: its outcome is decided elsewhere."""
    has_no_timeout = row.transaction_timeout_ms == NO_TIMEOUT_MS
    return row.transaction_state == ONGOING and (row.is_kept or has_no_timeout)


def client_of(row: describe_transactions.TransactionState) -> ProducerIdAndEpoch:
    """Return the producer that may end the open transaction: that of its client if it is kept."""
    if row.is_kept:
        return ProducerIdAndEpoch(row.client_producer_id, row.client_producer_epoch)
    return ProducerIdAndEpoch(row.producer_id, row.producer_epoch)


class TransactionAdmin:
    """An admin client for transactions; retriable errors are retried until the timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # -- coordinators ----------------------------------------------------------------------------

    async def transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators that match all filters, sorted by id.

        `pattern` is an RE2 expression for the whole id. Raises ValueError for an unknown state,
        UNSUPPORTED_VERSION if a broker lacks a filter (duration: Kafka 3.8, pattern: 4.1), and
        INVALID_REGULAR_EXPRESSION.
        """
        request = list_transactions.ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def attempt() -> list[TransactionListing]:
            # A coordinator that is gone leaves the metadata, and another takes over its ids.
            await self._cluster.refresh(())
            return await self._list(request)

        return await self._cluster.retrying(attempt)

    async def _list(
        self, request: list_transactions.ListTransactionsRequest
    ) -> list[TransactionListing]:
        """Ask every broker that the last Metadata response has named.

        Raises COORDINATOR_NOT_AVAILABLE if it has named none, as Kafka does while all are fenced.
        """
        if not self._cluster.nodes:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is available now")
        rows = await gather_all(
            self._listed_by(node, request) for node in sorted(self._cluster.nodes)
        )
        return sorted(each for found in rows for each in found)

    async def _listed_by(
        self, node: int, request: list_transactions.ListTransactionsRequest
    ) -> list[TransactionListing]:
        api = list_transactions.API
        needed = 2 if request.transactional_id_pattern is not None else 0
        if request.duration_filter >= 0:
            needed = max(needed, 1)
        if (await self._cluster.connection_to(node)).version_for(api) < needed:
            reason = f"broker {node} does not support the filter"
            if needed == 2:
                reason += "; a Barnabas broker needs google-re2 for a pattern: " + _INSTALL_RE2
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)

        response = await self._cluster.ask(api, request, node=node)
        lacks_re2 = f"broker {node} needs google-re2 for a pattern: {_INSTALL_RE2}"
        unsupported = response.error_code == ErrorCode.UNSUPPORTED_VERSION
        check(response.error_code, lacks_re2 if unsupported else None)
        if response.unknown_state_filters:
            raise ValueError(f"no state is called {', '.join(response.unknown_state_filters)}")
        return [
            TransactionListing(
                each.transactional_id, node, each.producer_id, each.transaction_state
            )
            for each in response.transaction_states
        ]

    async def describe(
        self, transactional_id: str, *, include_events: bool = False
    ) -> describe_transactions.TransactionState:
        """Return the state of a transactional id; TRANSACTIONAL_ID_NOT_FOUND if it is unknown.

        With `include_events` a Barnabas broker adds the recent events of the transactional id.
        """
        found = await self.describe_all([transactional_id], include_events=include_events)
        if transactional_id not in found:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id}"
            )
        return found[transactional_id]

    async def describe_all(
        self, transactional_ids: Iterable[str], *, include_events: bool = False
    ) -> dict[str, describe_transactions.TransactionState]:
        """Return the state of each transactional id that its coordinator knows."""

        async def ask(
            connection: Connection, ids: list[str]
        ) -> dict[str, describe_transactions.TransactionState]:
            request = describe_transactions.DescribeTransactionsRequest(
                transactional_ids=ids, include_events=include_events
            )
            response = await connection.request(
                describe_transactions.API, request, timeout=self._cluster.request_timeout
            )
            found = {}
            for row in response.transaction_states:
                if row.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    check(row.error_code, f"transactional id {row.transactional_id}")
                    found[row.transactional_id] = row
            return found

        return await self._cluster.ask_coordinators(transactional_ids, ask, TRANSACTION)

    async def open_under(self, prefix: str) -> list[describe_transactions.TransactionState]:
        """Return the open transactions of the ids that begin with `prefix`, sorted by id."""
        request = list_transactions.ListTransactionsRequest(
            state_filters=[ONGOING], producer_id_filters=[]
        )

        async def attempt() -> list[TransactionListing]:
            before = await self._coordinators()
            rows = await self._list(request)
            if await self._coordinators() != before:
                # The ids that moved may be missing in the responses of both coordinators.
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a coordinator moved")
            return rows

        listed = await self._cluster.retrying(attempt)
        ids = []
        for each in listed:
            if each.transactional_id.startswith(prefix):
                ids.append(each.transactional_id)
                self._cluster.remember_coordinator(
                    each.transactional_id, TRANSACTION, each.coordinator
                )
        described = await self.describe_all(ids)
        return [
            described[id] for id in sorted(described) if described[id].transaction_state == ONGOING
        ]

    async def _coordinators(self) -> list[tuple[int, int, int]]:
        """Return partition, leader and leader epoch of the transaction log; empty without one.

        Raises COORDINATOR_NOT_AVAILABLE if a partition has no leader now.
        """
        response = await self._cluster.refresh([_LOG])
        found = [
            (row.partition_index, row.leader_id, row.leader_epoch)
            for topic in response.topics
            for row in topic.partitions
        ]
        if any(leader not in self._cluster.nodes for _, leader, _ in found):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"a partition of {_LOG}")
        return sorted(found)

    async def coordinator(self, transactional_id: str) -> int:
        """Return the coordinator of a transactional id."""
        return await self._cluster.retrying(
            lambda: self._cluster.coordinator(transactional_id, TRANSACTION)
        )

    async def fence(self, transactional_id: str) -> tuple[int, int]:
        """Fence the producer of a transactional id and abort its open transaction.

        Returns the new producer id and epoch, which no producer uses. Raises
        TRANSACTIONAL_ID_NOT_FOUND if the id is unknown.
        """
        # InitProducerId would create a mistyped id.
        await self.describe(transactional_id)
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
        )

        async def attempt() -> tuple[int, int]:
            answer = await self._cluster.ask_coordinator(
                init_producer_id.API, request, transactional_id, TRANSACTION
            )
            check(answer.error_code, f"transactional id {transactional_id}")
            return answer.producer_id, answer.producer_epoch

        return await self._cluster.retrying(attempt)

    # -- leaders ---------------------------------------------------------------------------------

    async def open_in(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """Return the open transactions in `partitions`, oldest first in each partition."""
        wanted = list(partitions)
        found: list[OpenTransaction] = []
        for first in range(0, len(wanted), _PARTITIONS_PER_REQUEST):
            ask = partial(self._open_in, wanted[first : first + _PARTITIONS_PER_REQUEST])
            found += await self._cluster.retrying(ask)
        return sorted(found, key=lambda each: (*each.topic_partition, each.start_offset))

    async def _open_in(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for topic, partition in partitions:
            by_leader[await self._cluster.leader(topic, partition)][topic].append(partition)
        found: list[OpenTransaction] = []
        for leader, topics in by_leader.items():
            found += await self._open_at(leader, topics)
        return found

    async def _open_at(self, leader: int, topics: Mapping[str, list[int]]) -> list[OpenTransaction]:
        request = describe_producers.DescribeProducersRequest(
            topics=[
                describe_producers.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        )
        response = await self._cluster.ask(describe_producers.API, request, node=leader)
        found = []
        for topic in response.topics:
            for row in topic.partitions:
                check(row.error_code, row.error_message or f"{topic.name}-{row.partition_index}")
                found += [
                    OpenTransaction(
                        topic.name,
                        row.partition_index,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                        each.last_timestamp,
                    )
                    for each in row.active_producers
                    if each.current_txn_start_offset >= 0
                ]
        return found

    async def write_marker(
        self,
        transaction: OpenTransaction,
        *,
        committed: bool,
        producer_epoch: int,
        transaction_version: int,
    ) -> None:
        """Write a marker into one partition, without the coordinator of the transaction.

        Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the partition has seen a
        newer epoch. There is no retry: the caller must check the state of the transaction first.
        """
        topic, partition = transaction.topic_partition
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=producer_epoch,
            transaction_result=committed,
            topics=[
                write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])
            ],
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
            transaction_version=transaction_version,
        )
        response = await self._cluster.ask(
            write_txn_markers.API,
            write_txn_markers.WriteTxnMarkersRequest(markers=[marker]),
            node=await self._cluster.leader(topic, partition),
        )
        check(
            response.markers[0].topics[0].partitions[0].error_code,
            f"the marker for {topic}-{partition}",
        )

    # -- both ------------------------------------------------------------------------------------

    async def hanging(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int
    ) -> list[OpenTransaction]:
        """Return the hanging transactions, by the rules of kafka-transactions.sh.

        The last record of a hanging transaction is older than `older_than_ms`, and the coordinator
        knows no transaction with this producer id and partition.
        """
        old = [
            each
            for each in await self.open_in(partitions)
            if now_ms - each.last_timestamp_ms > older_than_ms
        ]
        ids = await self.transactional_ids({each.producer_id for each in old})
        inside = {id: await self._partitions_of(id) for id in set(ids.values())}
        return [
            each
            for each in old
            if each.producer_id not in ids
            or each.topic_partition not in inside[ids[each.producer_id]]
        ]

    async def transactional_ids(self, producer_ids: Iterable[int]) -> dict[int, str]:
        """Return the transactional ids that have these producer ids now."""
        wanted = list(producer_ids)
        if not wanted:
            return {}
        listed = await self.transactions(producer_ids=wanted)
        return {each.producer_id: each.transactional_id for each in listed}

    async def _partitions_of(self, transactional_id: str) -> set[TopicPartition]:
        try:
            described = await self.describe(transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return set()
        return {
            TopicPartition(topic.topic, each)
            for topic in described.topics
            for each in topic.partitions
        }
