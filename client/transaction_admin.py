"""Administration of transactions: what coordinators and leaders know, and markers (KIP-664).

Works on any broker since Kafka 3.0. Answers are the protocol's own messages where one tells all.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.client.cluster import TRANSACTION, Cluster, check
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
"""What a fenced transactional id has for its timeout until its producer comes back with its own."""

_AT_ONCE = 500
"""Partitions that one DescribeProducers asks for: each may have thousands of producers."""


class Listed(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class OpenTransaction(NamedTuple):
    """A transaction that holds back the last stable offset of a partition; time in ms of the clock
    that its records have."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


class TransactionAdmin:
    """Administers the transactions of `cluster`; errors that pass are retried until its timeout."""

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
    ) -> list[Listed]:
        """The transactional ids of every coordinator that match all filters, by name.

        `pattern` is an RE2 expression for the whole id. Raises ValueError for a state that no
        broker knows, UNSUPPORTED_VERSION where a broker lacks a filter (duration: Kafka 3.8,
        pattern: 4.1), INVALID_REGULAR_EXPRESSION.
        """
        request = list_transactions.ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        await self._cluster.refresh(())
        found: list[Listed] = []
        for node in sorted(self._cluster.nodes):
            found += await self._listed_by(node, request)
        return sorted(found)

    async def _listed_by(
        self, node: int, request: list_transactions.ListTransactionsRequest
    ) -> list[Listed]:
        api = list_transactions.API
        needed = 2 if request.transactional_id_pattern is not None else 0
        if request.duration_filter >= 0:
            needed = max(needed, 1)
        if (await self._cluster.connection_to(node)).version_for(api) < needed:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {node} lacks such a filter")

        async def attempt() -> list_transactions.ListTransactionsResponse:
            answer: list_transactions.ListTransactionsResponse = await self._cluster.ask(
                api, request, node=node
            )
            check(answer.error_code)
            return answer

        response = await self._cluster.retrying(attempt)
        if response.unknown_state_filters:
            raise ValueError(f"no state is called {', '.join(response.unknown_state_filters)}")
        return [
            Listed(each.transactional_id, node, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]

    async def describe(
        self, transactional_id: str, *, diary: bool = False
    ) -> describe_transactions.TransactionState:
        """A transactional id as its coordinator knows it; TRANSACTIONAL_ID_NOT_FOUND if unknown.

        With `diary` a Barnabas broker tells what happened to it of late.
        """
        request = describe_transactions.DescribeTransactionsRequest(
            transactional_ids=[transactional_id], diary=diary
        )

        async def attempt() -> describe_transactions.TransactionState:
            response = await self._cluster.ask_coordinator(
                describe_transactions.API, request, transactional_id, TRANSACTION
            )
            row: describe_transactions.TransactionState = response.transaction_states[0]
            check(row.error_code, f"transactional id {transactional_id}")
            return row

        return await self._cluster.retrying(attempt)

    async def coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id."""
        return await self._cluster.retrying(
            lambda: self._cluster.coordinator(transactional_id, TRANSACTION)
        )

    async def fence(self, transactional_id: str) -> tuple[int, int]:
        """Fences whoever uses a transactional id and aborts what it has open.

        Gives the producer id and epoch that nobody has now; TRANSACTIONAL_ID_NOT_FOUND if unknown.
        """
        # InitProducerId would make an id that is only mistyped.
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
        """Transactions that are open in `partitions`, oldest first in each."""
        wanted = list(partitions)
        found: list[OpenTransaction] = []
        for first in range(0, len(wanted), _AT_ONCE):
            ask = partial(self._open_in, wanted[first : first + _AT_ONCE])
            found += await self._cluster.retrying(ask)
        return sorted(found, key=lambda each: (*each.place, each.start_offset))

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
        """Ends a transaction in one partition, whatever its coordinator thinks of it.

        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED where the partition has seen a
        newer one. Not tried again: who calls must look first what has become of it.
        """
        topic, partition = transaction.place
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
        """Open transactions that no coordinator will end, by the test of Kafka's own tool.

        Their last record is older than any transaction may become, and the coordinator knows of
        none with this producer id and partition.
        """
        old = [
            each
            for each in await self.open_in(partitions)
            if now_ms - each.last_timestamp > older_than_ms
        ]
        ids = await self.transactional_ids({each.producer_id for each in old})
        inside = {id: await self._partitions_of(id) for id in set(ids.values())}
        return [
            each
            for each in old
            if each.producer_id not in ids or each.place not in inside[ids[each.producer_id]]
        ]

    async def transactional_ids(self, producer_ids: Iterable[int]) -> dict[int, str]:
        """The transactional ids that have these producer ids now."""
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
        return {(topic.topic, each) for topic in described.topics for each in topic.partitions}
