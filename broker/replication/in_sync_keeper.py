"""Changes of in-sync sets, from the leaders on this broker to the controller (AlterPartition).

One request at a time carries what all partitions propose; one proposal at a time per partition.
A proposal whose outcome is unknown is repeated until the controller has spoken, by its answer or by
LeaderAndIsr: until then what is committed must be in both sets. Losing the controller, or losing
its metadata store, only delays that.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.in_sync import Follower
from barnabas.broker.replication.partition import Partition
from barnabas.broker.rounds import Rounds
from barnabas.metrics.catalogue import ReplicaMetrics
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResponse,
    TopicData,
)

RETURN_S = 0.5
"""A follower that closed its connection and has not asked again by then is out of sync."""
RECONSIDER_S = 1.0
"""Until a follower is proposed again that could not be taken into the set."""
SHORTEST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 1.0
_NOT_ATTEMPTED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OUTDATED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Another decision is in force, and on its way here."""
_log = get_logger(__name__)


class Controller(Protocol):
    """Whoever is in office, wherever it is."""

    async def alter_partition(self, request: AlterPartitionRequest, /) -> AlterPartitionResponse:
        """Raises KafkaError where none can be reached."""
        ...


class Proposal(NamedTuple):
    """An in-sync set, and the state that it shall follow."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


Proposals = dict[Partition, Proposal]


class InSyncKeeper:
    """The in-sync sets of the partitions that this broker leads."""

    def __init__(
        self,
        broker_id: int,
        *,
        cache: MetadataCache,
        clock: Clock,
        max_lag_ms: Callable[[], int],
        metrics: ReplicaMetrics,
    ) -> None:
        """`max_lag_ms` tells `replica.lag.time.max.ms`."""
        self._broker_id = broker_id
        self._cache = cache
        self._max_lag_ms = max_lag_ms
        self.now = clock.monotonic
        self._expands = metrics.isr_expands.cell()
        self._shrinks = metrics.isr_shrinks.cell()
        self._failed = metrics.failed_isr_updates.cell()
        self._controller: Controller | None = None
        self._broker_epoch: Callable[[], int] = lambda: -1
        self._partitions: Iterable[Partition] = ()
        self._proposals: Proposals = {}
        self._reconsidered: dict[Partition, None] = {}
        self._carrier: asyncio.Task[None] | None = None

    def begin(
        self,
        controller: Controller,
        broker_epoch: Callable[[], int],
        partitions: Iterable[Partition],
    ) -> None:
        """Send what is proposed from now on. `partitions` are those of this broker, led or not."""
        self._controller, self._broker_epoch = controller, broker_epoch
        self._partitions = partitions
        if self._proposals:
            self._carry_soon()

    def schedule(self, rounds: Rounds) -> None:
        """Look for those who lag behind: twice in the time that is allowed."""
        rounds.every("in-sync sets", lambda: self._max_lag_ms() // 2, self.review)

    async def stop(self) -> None:
        """Send nothing more."""
        self._controller = None
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.cancel()
            await asyncio.wait([carrier])

    # -- what partitions ask and tell -------------------------------------------------------------

    def is_alive(self, replica: int) -> bool:
        """Whether the controller says so."""
        return replica in self._cache.brokers

    def awaits(self, replica: int, follower: Follower, leader_end: int) -> bool:
        """Whether the high watermark waits for a follower that is about to join the set."""
        return self.is_alive(replica) and follower.is_caught_up(
            leader_end, self.now(), self._max_lag
        )

    def invite(self, partition: Partition) -> None:
        """Propose all followers that have what it takes and are alive."""
        in_sync, oldest = partition.in_sync, self.now() - self._max_lag
        near = [
            replica
            for replica, follower in in_sync.followers.items()
            if in_sync.may_join(replica, partition.high_watermark)
            and follower.attendance.at >= oldest
        ]
        alive = [replica for replica in near if self.is_alive(replica)]
        if alive:
            self._propose(partition, (*in_sync.isr, *alive))
        elif near:
            # It fetches already, but the controller's word that it is back is still on its way.
            self._reconsider_later(partition)

    async def review(self) -> None:
        """Propose to leave out who is behind for too long, and to take in who was overlooked."""
        now = self.now()
        for partition in tuple(self._partitions):
            if not partition.is_leader or partition.in_sync.proposed is not None:
                continue
            end = partition.log.log_end_offset
            self._leave_out(partition, partition.in_sync.lagging(end, now, self._max_lag))
            if partition.lacks_replicas:
                self.invite(partition)
                partition.advance()

    def connection_closed(self, connection_id: int) -> None:
        """A broker has closed a connection: if followers fetched over it, they are to be back
        soon, or are out of sync at once."""
        loop = asyncio.get_running_loop()
        loop.call_later(RETURN_S, self._cut_off, connection_id, self.now())

    def _cut_off(self, connection_id: int, closed_at: float) -> None:
        for partition in tuple(self._partitions):
            if not partition.is_leader:
                continue
            gone = partition.in_sync.cut_off(connection_id, closed_at)
            if partition.in_sync.proposed is None:
                self._leave_out(partition, gone)
            partition.advance()

    def _leave_out(self, partition: Partition, replicas: Iterable[int]) -> None:
        out = set(replicas)
        if out:
            self._propose(
                partition, tuple(each for each in partition.in_sync.isr if each not in out)
            )

    @property
    def _max_lag(self) -> float:
        return self._max_lag_ms() / 1000

    def _reconsider_later(self, partition: Partition) -> None:
        if not self._reconsidered:
            asyncio.get_running_loop().call_later(RECONSIDER_S, self._reconsider)
        self._reconsidered[partition] = None

    def _reconsider(self) -> None:
        partitions, self._reconsidered = self._reconsidered, {}
        for partition in partitions:
            self.invite(partition)

    # -- to the controller and back ---------------------------------------------------------------

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.in_sync.proposed = isr
        self._proposals[partition] = Proposal(
            isr, partition.leader_epoch, partition.partition_epoch
        )
        self._carry_soon()

    def _carry_soon(self) -> None:
        if self._controller is not None and (self._carrier is None or self._carrier.done()):
            self._carrier = asyncio.get_running_loop().create_task(self._carry(self._controller))

    async def _carry(self, controller: Controller) -> None:
        backoff = SHORTEST_BACKOFF_S
        while self._proposals:
            asked, self._proposals = self._proposals, {}
            try:
                again = await self._ask(controller, _still_open(asked))
            except Exception as error:
                _log.error("proposals failed", partitions=len(asked), exc_info=error)
                again = _still_open(asked)
            if not again:
                backoff = SHORTEST_BACKOFF_S
                continue
            self._failed.value += len(again)
            self._proposals = {**again, **self._proposals}
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF_S)

    async def _ask(self, controller: Controller, asked: Proposals) -> Proposals:
        """Those whose outcome is unknown."""
        if not asked:
            return {}
        try:
            response = await controller.alter_partition(self._request(asked))
            code = ErrorCode.of(response.error_code)
        except KafkaError as error:
            code = error.code
        if code is not ErrorCode.NONE:
            _log.info("proposals not taken", partitions=len(asked), error=code.name)
            return asked
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        return {
            partition: proposal
            for partition, proposal in _still_open(asked).items()
            if not self._settle(partition, answers.get((partition.topic_id, partition.index)))
        }

    def _request(self, asked: Proposals) -> AlterPartitionRequest:
        topics: dict[bytes, TopicData] = {}
        for partition, proposal in asked.items():
            topic = topics.setdefault(
                partition.topic_id, TopicData(topic_id=partition.topic_id, partitions=[])
            )
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=each, broker_epoch=self._epoch_of(partition, each))
                        for each in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    def _epoch_of(self, partition: Partition, replica: int) -> int:
        """The incarnation that is proposed: a broker that has restarted since may lack records."""
        follower = partition.in_sync.followers.get(replica)
        return self._broker_epoch() if follower is None else follower.broker_epoch

    def _settle(self, partition: Partition, answer: PartitionResponse | None) -> bool:
        """Do what the controller says; False where it has said nothing about the proposal."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode.of(answer.error_code)
        if answer is not None and code is ErrorCode.NONE:
            if answer.leader_epoch == partition.leader_epoch:
                self._change(partition, answer.isr, answer.partition_epoch)
            return True
        _log.info("proposal refused", topic=partition.topic, partition=partition.index, error=code)
        if code in _NOT_ATTEMPTED:
            self._failed.value += 1
            partition.proposal_refused()
            self._reconsider_later(partition)
            return True
        if code in _OUTDATED:
            self._failed.value += 1
            return True
        return code is ErrorCode.INVALID_UPDATE_VERSION and self._learn(partition)

    def _learn(self, partition: Partition) -> bool:
        """Take over a decision of which only its announcement to all has come, not the answer."""
        known = self._cache.partition(partition.topic, partition.index)
        if (
            known is None
            or known.leader_epoch != partition.leader_epoch
            or known.partition_epoch <= partition.partition_epoch
        ):
            return False
        self._change(partition, known.isr, known.partition_epoch)
        return True

    def _change(self, partition: Partition, isr: Iterable[int], partition_epoch: int) -> None:
        before = set(partition.in_sync.isr)
        now = set(isr)
        self._expands.value += bool(now - before)
        self._shrinks.value += bool(before - now)
        _log.info(
            "in-sync set changed",
            topic=partition.topic,
            partition=partition.index,
            before=sorted(before),
            now=sorted(now),
        )
        partition.in_sync_set_changed(isr, partition_epoch)
        if partition.lacks_replicas:
            self.invite(partition)


def _still_open(proposals: Proposals) -> Proposals:
    """Those that no decision has overtaken."""
    return {
        partition: proposal
        for partition, proposal in proposals.items()
        if partition.in_sync.proposed is proposal.isr
    }
