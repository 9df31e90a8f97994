"""A transactional producer that is controlled request by request (KIP-98, KIP-890)."""

import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.cluster import TRANSACTION, Cluster, check
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.protocol.schema import Api
from barnabas.verify.history import History, Partition
from barnabas.verify.wire.batches import Sent, batch, leader_connection, send
from barnabas.verify.wire.recorder import OperationFailed, Recorder

_OLDER: Final = {"InitProducerId": 4, "EndTxn": 4, "TxnOffsetCommit": 4}
_ADD_PARTITIONS: Final = 3
_NEW_EPOCH_SINCE: Final = 5


class Transactor:
    """A producer with a transactional id. Its operations raise OperationFailed.

    After that it must call `init`, like every producer that does not know its state.
    """

    def __init__(
        self,
        history: History,
        cluster: Cluster,
        proc: str,
        transactional_id: str,
        *,
        newer: bool,
        timeout: float,
        value_size: int = 0,
    ) -> None:
        """`newer` is the protocol with an epoch per transaction; `timeout` is in s."""
        self._recorder = Recorder(history, cluster, proc)
        self.proc = proc
        self.cluster = cluster
        self.id = transactional_id
        self.newer = newer
        self._timeout = timeout
        self._value_size = value_size
        self.identity = ProducerIdAndEpoch(-1, -1)
        self._sequences: dict[Partition, int] = {}
        self._added: set[Partition | str] = set()
        self.txn = ""
        """The name of the open transaction."""

    async def init(self) -> None:
        """Take over the transactional id, which aborts an open transaction."""

        async def ask() -> ProducerIdAndEpoch:
            request = init_producer_id.InitProducerIdRequest(
                transactional_id=self.id, transaction_timeout_ms=int(self._timeout * 1000)
            )
            answer = await self._ask(init_producer_id.API, request, self.id, TRANSACTION)
            check(answer.error_code)
            return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

        value = {"id": self.id}
        self._become(
            await self._recorder.do("init", value, ask, lambda who: {"producer": list(who)})
        )
        self._sequences.clear()

    def _become(self, identity: ProducerIdAndEpoch) -> None:
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    def begin(self, name: str) -> None:
        """Begin a transaction, without a request."""
        self.txn = name
        self._added.clear()

    # -- writing ---------------------------------------------------------------------------------

    async def send(self, at: Partition, records: Sequence[Sent]) -> int:
        """Send one batch and return its base offset."""
        sequence = self.next_sequence(at)

        async def work() -> int:
            if not self.newer and at not in self._added:
                await self._add_partition(at)
            return await self._send_once(self.cluster, at, records, sequence)

        value = self._history_value(at=at, records=[[r.key, r.value, r.extra] for r in records])
        offset = await self._recorder.do("send", value, work, lambda base: {"offset": base})
        self._sequences[at] = (sequence + len(records)) & MAX_SEQUENCE
        return offset

    def next_sequence(self, at: Partition) -> int:
        """Return the sequence of the next batch."""
        return self._sequences.get(at, 0)

    async def send_late(
        self,
        late_cluster: Cluster,
        name: str,
        at: Partition,
        record: Sent,
        identity: ProducerIdAndEpoch,
        sequence: int,
    ) -> bool:
        """Send a late batch of a transaction that is over, as if the network had delayed it.

        `identity` and `sequence` are those before its end. Returns whether the batch was refused.
        If it arrives before the marker, it is aborted with the transaction, but uses its sequence.
        """
        value = self._history_value(
            at=at, records=[[record.key, record.value, record.extra]], late=True
        )
        value["txn"] = name
        recorder = Recorder(self._recorder.history, late_cluster, self._recorder.proc, patience=0.0)
        try:
            await recorder.do(
                "send",
                value,
                lambda: self._send_once(late_cluster, at, [record], sequence, identity),
                lambda base: {"offset": base},
            )
        except OperationFailed as error:
            return error.code is not None and not error.code.retriable
        return False

    async def _send_once(
        self,
        cluster: Cluster,
        at: Partition,
        records: Sequence[Sent],
        sequence: int,
        identity: ProducerIdAndEpoch | None = None,
    ) -> int:
        data = batch(
            records,
            identity or self.identity,
            sequence,
            transactional=True,
            now_ms=int(time.time() * 1000),
            size=self._value_size,
        )
        return await send(
            await leader_connection(cluster, at),
            at,
            data,
            transactional_id=self.id,
            newer=self.newer,
            timeout=cluster.timeout,
        )

    async def _add_partition(self, at: Partition) -> None:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=at[0], partitions=[at[1]])
            ],
        )
        api = add_partitions_to_txn.API
        answer = await self._ask(api, request, self.id, TRANSACTION, _ADD_PARTITIONS)
        check(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        self._added.add(at)

    async def send_offsets(self, member: GroupMetadata, offsets: dict[Partition, int]) -> None:
        """Commit offsets with the transaction; their metadata names the transaction."""
        group = member.group_id

        async def work() -> None:
            if not self.newer and group not in self._added:
                await self._add_group(group)
            request = self._offset_request(member, offsets)
            highest = txn_offset_commit.LAST_WITH_NAMES
            answer = await self._ask(txn_offset_commit.API, request, group, highest=highest)
            for topic in answer.topics:
                for row in topic.partitions:
                    check(row.error_code, f"{topic.name}-{row.partition_index}")

        rows = [[topic, index, offset] for (topic, index), offset in offsets.items()]
        value = self._history_value(group=group, offsets=rows)
        await self._recorder.do("offsets", value, work, lambda _: {})

    async def _add_group(self, group: str) -> None:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group,
        )
        answer = await self._ask(add_offsets_to_txn.API, request, self.id, TRANSACTION)
        check(answer.error_code)
        self._added.add(group)

    def _offset_request(
        self, member: GroupMetadata, offsets: dict[Partition, int]
    ) -> txn_offset_commit.TxnOffsetCommitRequest:
        topics: dict[str, txn_offset_commit.TxnOffsetCommitRequestTopic] = {}
        for (topic, index), offset in offsets.items():
            row = txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=self.txn
            )
            empty = txn_offset_commit.TxnOffsetCommitRequestTopic(name=topic, partitions=[])
            topics.setdefault(topic, empty).partitions.append(row)
        return txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=member.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            topics=list(topics.values()),
        )

    # -- the end ---------------------------------------------------------------------------------

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction."""
        value = self._history_value(commit=commit)
        identity = await self._recorder.do(
            "end", value, lambda: self._end_once(self.cluster, self.identity, commit), lambda _: {}
        )
        self._become(identity)

    async def end_late(
        self, late_cluster: Cluster, identity: ProducerIdAndEpoch, name: str
    ) -> None:
        """Send the commit of a transaction that is over again, on an older connection."""
        value = {"id": self.id, "txn": name, "commit": True, "late": True}
        recorder = Recorder(self._recorder.history, late_cluster, self._recorder.proc, patience=0.0)
        try:
            await recorder.do(
                "end", value, lambda: self._end_once(late_cluster, identity, True), lambda _: {}
            )
        except OperationFailed:
            return

    async def _end_once(
        self, cluster: Cluster, identity: ProducerIdAndEpoch, commit: bool
    ) -> ProducerIdAndEpoch:
        request = end_txn.EndTxnRequest(
            transactional_id=self.id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )
        connection = await cluster.coordinator_connection(self.id, TRANSACTION)
        version = self._version(end_txn.API, connection.version_for(end_txn.API))
        answer = await connection.request(
            end_txn.API, request, version=version, timeout=cluster.timeout
        )
        check(answer.error_code)
        if version < _NEW_EPOCH_SINCE:
            return identity
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    # -- asking ----------------------------------------------------------------------------------

    async def _ask(
        self, api: Api, request: object, key: str, kind: int = 0, highest: int | None = None
    ) -> Any:
        connection = await self.cluster.coordinator_connection(key, kind)
        version = self._version(api, connection.version_for(api))
        if highest is not None:
            version = min(version, highest)
        return await connection.request(api, request, version=version, timeout=self.cluster.timeout)

    def _version(self, api: Api, best: int) -> int:
        return best if self.newer else min(best, _OLDER.get(api.name, best))

    def _history_value(self, **value: Any) -> dict[str, Any]:
        return {"id": self.id, "txn": self.txn, **value}
