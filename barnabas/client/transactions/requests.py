"""The requests of a transactional producer to its coordinators, with retries (KIP-98)."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from barnabas.client.cluster import GROUP, TRANSACTION, Cluster, check
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.producing.partition_queue import (
    CONCURRENT_BACKOFF,
    NO_PRODUCER,
    ProducerIdAndEpoch,
)
from barnabas.client.transactions.state import ErrorKind, as_error, classify
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from barnabas.protocol.schema import Api
from barnabas.protocol.topic_partition import TopicPartition, by_topic

T = TypeVar("T")

_CLIENT_ADD_PARTITIONS = 3
_OLDER_END_TXN = 4
_OLDER_TXN_OFFSET_COMMIT = 4
_STALE_COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_NEWER_END_TXN = 5
_EPOCH_PER_TRANSACTION = 2
_TWO_PHASE_COMMIT = 6
"""The first version of InitProducerId with two-phase commit (KIP-939)."""
_TWO_PHASE_HINTS = {
    ErrorCode.UNSUPPORTED_VERSION: "two-phase commit needs transaction.version 2 in the cluster;"
    " Apache Kafka 4.4 cannot keep a prepared transaction",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "two-phase commit is not permitted: set"
    " transaction.two.phase.commit.enable=true on every broker",
}
TRANSACTION_VERSION = "transaction.version"
FEATURES_AGE = 1.0
"""Seconds after which the features of the coordinator are requested again."""
_IGNORED = {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}


class InitialisedProducer(NamedTuple):
    """The response to InitProducerId.

    `client` is the producer that the client uses next. `ongoing` is the producer in the records of
    the transaction that was kept (KIP-939); None if none was open.
    """

    client: ProducerIdAndEpoch
    ongoing: ProducerIdAndEpoch | None = None


class TransactionCalls:
    """The requests of one transactional id; TimeoutError after the timeout of the cluster.

    Raises AbortableError and FatalError as `transactions.state` classifies the errors; if not
    `classified`, the KafkaError of the response.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, *, classified: bool = True) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._classified = classified
        self.retries = 0
        """The number of requests that were sent again."""
        self.unanswered = 0
        """The number of those whose response was lost: they may still arrive and be carried out."""

    async def connection(self) -> Connection:
        """Return the connection to the coordinator of the transactional id."""
        return await self._retrying(
            end_txn.API, self._id, TRANSACTION, lambda connection: _itself(connection)
        )

    async def feature_level(self, feature: str) -> int:
        """Return the finalized level of a feature, as the coordinator had it a second ago."""
        while True:
            connection = await self.connection()
            try:
                await connection.learn_features(
                    timeout=self._cluster.timeout, older_than=FEATURES_AGE
                )
            except BrokerUnreachable:
                self._cluster.forget_coordinator(self._id, TRANSACTION)
                continue
            return connection.features.get(feature, 0)

    async def is_newer(self) -> bool:
        """Whether the cluster speaks the newer protocol, with an epoch for each transaction."""
        if await self.feature_level(TRANSACTION_VERSION) < _EPOCH_PER_TRANSACTION:
            return False
        connection = await self.connection()
        return connection.version_for(end_txn.API) >= _NEWER_END_TXN

    async def init_producer_id(
        self,
        timeout_ms: int,
        current: ProducerIdAndEpoch = NO_PRODUCER,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitialisedProducer:
        """Return a new producer id or epoch, which fences the earlier ones.

        With `current`, the result is the next epoch of this producer id. `two_phase`: transactions
        have no timeout; `keep_prepared`: an open one is kept instead of aborted (KIP-939).
        """
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
            enable_two_phase_commit=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        is_two_phase = two_phase or keep_prepared

        async def attempt(connection: Connection) -> InitialisedProducer:
            if is_two_phase:
                _require_two_phase_commit(connection)
            response = await self._ask(connection, init_producer_id.API, request)
            hint = _TWO_PHASE_HINTS.get(ErrorCode.of(response.error_code)) if is_two_phase else None
            check(response.error_code, hint)
            ongoing = ProducerIdAndEpoch(
                response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch
            )
            client = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return InitialisedProducer(client, ongoing if ongoing.producer_id >= 0 else None)

        return await self._retrying(init_producer_id.API, self._id, TRANSACTION, attempt)

    async def add_partitions(
        self,
        identity: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        group_id: str | None = None,
    ) -> None:
        """Add partitions to the transaction, and with `group_id` offsets of a group (KIP-609)."""
        api = add_partitions_to_txn.API
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=rows)
                for topic, rows in by_topic(partitions).items()
            ],
            group_id=group_id,
        )

        async def attempt(connection: Connection) -> None:
            version = min(connection.version_for(api), _CLIENT_ADD_PARTITIONS)
            response = await self._ask(connection, api, request, version)
            for topic in response.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    if row.partition_error_code not in _IGNORED:
                        check(row.partition_error_code, f"{topic.name}-{row.partition_index}")

        await self._retrying(api, self._id, TRANSACTION, attempt)

    async def add_offsets(self, identity: ProducerIdAndEpoch, group_id: str) -> None:
        """Add the offsets of a group, as the older protocol requires."""
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )

        async def attempt(connection: Connection) -> None:
            response = await self._ask(connection, add_offsets_to_txn.API, request)
            check(response.error_code, f"group {group_id}")

        await self._retrying(add_offsets_to_txn.API, self._id, TRANSACTION, attempt)

    async def commit_offsets(
        self,
        identity: ProducerIdAndEpoch,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, int],
        *,
        newer: bool,
    ) -> None:
        """Send the offsets to the group coordinator; they count once the transaction commits."""
        api = txn_offset_commit.API
        rows: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]]
        rows = defaultdict(list)
        for (topic, partition), offset in offsets.items():
            rows[topic].append(
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in rows.items()
            ],
        )

        async def attempt(connection: Connection) -> None:
            highest = txn_offset_commit.LAST_WITH_NAMES if newer else _OLDER_TXN_OFFSET_COMMIT
            version = min(connection.version_for(api), highest)
            response = await self._ask(connection, api, request, version)
            for topic in response.topics:
                for row in topic.partitions:
                    check(row.error_code, f"offset of {topic.name}-{row.partition_index}")

        await self._retrying(api, group.group_id, GROUP, attempt)

    async def end(
        self,
        identity: ProducerIdAndEpoch,
        *,
        commit: bool,
        newer: bool,
        written: Iterable[TopicPartition] | None = None,
    ) -> ProducerIdAndEpoch:
        """Commit or abort; return the producer id and epoch for the next transaction."""
        api = end_txn.API
        topics = None
        if written is not None:
            topics = [
                end_txn.WrittenTopic(name=topic, partitions=rows)
                for topic, rows in by_topic(written).items()
            ]
        request = end_txn.EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
            written=topics,
        )

        async def attempt(connection: Connection) -> ProducerIdAndEpoch:
            version = connection.version_for(api)
            if not newer:
                version = min(version, _OLDER_END_TXN)
            response = await self._ask(connection, api, request, version)
            check(response.error_code)
            if not newer:
                return identity
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        return await self._retrying(api, self._id, TRANSACTION, attempt)

    async def _ask(
        self, connection: Connection, api: Api, request: object, version: int | None = None
    ) -> Any:
        timeout = self._cluster.request_timeout
        return await connection.request(api, request, version=version, timeout=timeout)

    async def _retrying(
        self, api: Api, key: str, kind: int, attempt: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Send requests to the coordinator of `key` until one succeeds or fails for good."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._cluster.timeout
        backoff = Backoff()
        while True:
            wait = 0.0
            try:
                return await attempt(await self._coordinator(key, kind))
            except KafkaError as error:
                if classify(api, error.code) is not ErrorKind.RETRY:
                    if not self._classified:
                        raise
                    raise as_error(api, error) from error
                reason: Exception = error
                if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    wait = CONCURRENT_BACKOFF
                elif error.code in _STALE_COORDINATOR:
                    self._cluster.forget_coordinator(key, kind)
            except (BrokerUnreachable, TimeoutError) as error:
                self._cluster.forget_coordinator(key, kind)
                self.unanswered += 1
                reason = error
            wait = wait or backoff.failed()
            if loop.time() + wait > deadline:
                text = f"{api.name} was not answered in {self._cluster.timeout:g} s: {reason}"
                raise TimeoutError(text) from reason
            self.retries += 1
            await asyncio.sleep(wait)

    async def _coordinator(self, key: str, kind: int) -> Connection:
        if kind == TRANSACTION:
            return await self._cluster.coordinator_connection(key, kind)
        # Not the coordinator connection: there a JoinGroup may wait for minutes.
        return await self._cluster.connection_to(await self._cluster.coordinator(key, kind))


def _require_two_phase_commit(connection: Connection) -> None:
    if connection.version_for(init_producer_id.API) < _TWO_PHASE_COMMIT:
        text = (
            "the broker serves no two-phase commit (KIP-939): set"
            " transaction.two.phase.commit.enable=true on every broker"
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)


async def _itself(connection: Connection) -> Connection:
    return connection
