"""The requests of a transaction, each sent again until it is answered for good (KIP-98)."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from barnabas.client.cluster import GROUP, TRANSACTION, Cluster, check
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.group_metadata import GroupMetadata
from barnabas.client.lane import CONCURRENT_BACKOFF, FIRST_BACKOFF, MAX_BACKOFF, NOBODY, Identity
from barnabas.client.transaction_state import Verdict, as_error, judge
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

_ADD_PARTITIONS_OF_CLIENTS = 3
_END_OF_OLDER = 4
_OFFSETS_OF_OLDER = 4
_MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_PASSED_OVER = {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}


class TransactionCalls:
    """Speaks for one transactional id; TimeoutError when an answer takes longer than `timeout` s.

    Raises AbortableError and FatalError as `transaction_state` tells them apart.
    """

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self.retries = 0
        """How often a request was sent again."""

    async def connection(self) -> Connection:
        """The connection to the transaction's coordinator."""
        return await self._retrying(
            end_txn.API, self._id, TRANSACTION, lambda connection: _itself(connection)
        )

    async def init_producer_id(self, timeout_ms: int, current: Identity = NOBODY) -> Identity:
        """A producer id with an epoch that fences all before; with `current`, its next epoch."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
        )

        async def attempt(connection: Connection) -> Identity:
            response = await self._ask(connection, init_producer_id.API, request)
            check(response.error_code)
            return Identity(response.producer_id, response.producer_epoch)

        return await self._retrying(init_producer_id.API, self._id, TRANSACTION, attempt)

    async def add_partitions(
        self, identity: Identity, partitions: Iterable[TopicPartition], group_id: str | None = None
    ) -> None:
        """Adds partitions, and with them the offsets of a group (KIP-609)."""
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
            version = min(connection.version_for(api), _ADD_PARTITIONS_OF_CLIENTS)
            response = await self._ask(connection, api, request, version)
            for topic in response.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    if row.partition_error_code not in _PASSED_OVER:
                        check(row.partition_error_code, f"{topic.name}-{row.partition_index}")

        await self._retrying(api, self._id, TRANSACTION, attempt)

    async def add_offsets(self, identity: Identity, group_id: str) -> None:
        """Adds the offsets of a group, as the older protocol has to."""
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
        identity: Identity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, int],
        *,
        newer: bool,
    ) -> None:
        """Tells the group's coordinator the offsets that hold once the transaction commits."""
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
            version = connection.version_for(api)
            if not newer:
                version = min(version, _OFFSETS_OF_OLDER)
            response = await self._ask(connection, api, request, version)
            for topic in response.topics:
                for row in topic.partitions:
                    check(row.error_code, f"offset of {topic.name}-{row.partition_index}")

        await self._retrying(api, group.group_id, GROUP, attempt)

    async def end(
        self,
        identity: Identity,
        *,
        commit: bool,
        newer: bool,
        written: Iterable[TopicPartition] | None,
    ) -> Identity:
        """Commits or aborts; returns the identity to go on with."""
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

        async def attempt(connection: Connection) -> Identity:
            version = connection.version_for(api)
            if not newer:
                version = min(version, _END_OF_OLDER)
            response = await self._ask(connection, api, request, version)
            check(response.error_code)
            if not newer:
                return identity
            return Identity(response.producer_id, response.producer_epoch)

        return await self._retrying(api, self._id, TRANSACTION, attempt)

    async def _ask(
        self, connection: Connection, api: Api, request: object, version: int | None = None
    ) -> Any:
        timeout = self._cluster.timeout
        return await connection.request(api, request, version=version, timeout=timeout)

    async def _retrying(
        self, api: Api, key: str, kind: int, attempt: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Asks the coordinator of `key` until it answers for good."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._cluster.timeout
        backoff = FIRST_BACKOFF
        while True:
            wait = backoff
            try:
                return await attempt(await self._coordinator(key, kind))
            except KafkaError as error:
                if judge(api, error.code) is not Verdict.RETRY:
                    raise as_error(api, error) from error
                reason: Exception = error
                if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    wait = CONCURRENT_BACKOFF
                elif error.code in _MOVED:
                    self._cluster.forget_coordinator(key, kind)
            except (BrokerUnreachable, TimeoutError) as error:
                self._cluster.forget_coordinator(key, kind)
                reason = error
            if loop.time() + wait > deadline:
                text = f"{api.name} was not answered in {self._cluster.timeout:g} s: {reason}"
                raise TimeoutError(text) from reason
            self.retries += 1
            await asyncio.sleep(wait)
            if wait == backoff:
                backoff = min(backoff * 2, MAX_BACKOFF)

    async def _coordinator(self, key: str, kind: int) -> Connection:
        if kind == TRANSACTION:
            return await self._cluster.coordinator_connection(key, kind)
        # Not the line where members of the group may wait to join.
        return await self._cluster.connection_to(await self._cluster.coordinator(key, kind))


async def _itself(connection: Connection) -> Connection:
    return connection
