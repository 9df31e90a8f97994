"""Changes of the ISRs that this broker leads, proposed to the controller (AlterPartition).

A follower is proposed to leave if it lags behind for `replica.lag.time.max.ms` (`review`), or if it
has closed its connection and does not fetch again soon (`connection_closed`). The controller itself
removes a broker whose registration has ended, that shuts down, or that was not closed cleanly
(`controller/rules/leader_election.py`).

Kafka's AlterPartitionManager. One request at a time carries the proposals of all partitions; each
partition has at most one proposal in flight. A proposal whose outcome is unknown is repeated until
the controller decides, by its response or by LeaderAndIsr; until then a record is committed only
when both ISRs have it. Losing the controller or its metadata store only delays the decision.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.isr_state import Follower
from barnabas.broker.replication.partition import Partition
from barnabas.coordinator.ports import Clock
from barnabas.metrics.catalogue import ReplicaMetrics
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResponse,
    TopicData,
)

RECONNECT_S = 0.5
"""The time in which a follower must fetch again after it has closed its connection."""
RETRY_S = 1.0
"""Pause before a follower is proposed again that could not join the ISR."""
SHORTEST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 1.0
_FAILURE_LOG_S = 60.0
"""Least time between two log lines about requests that keep failing."""
_NOT_ATTEMPTED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OUTDATED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors that mean: another decision is in force, and this broker will be told of it."""
_log = get_logger(__name__)


class IsrController(Protocol):
    """The active controller, on this broker or on another."""

    async def alter_partition(self, request: AlterPartitionRequest, /) -> AlterPartitionResponse:
        """Have the proposals decided; raises KafkaError where no controller can be reached."""
        ...


class Proposal(NamedTuple):
    """A proposed ISR, and the leader and partition epochs it is based on."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


Proposals = dict[Partition, Proposal]


class _FailureLog:
    """The log lines about failed requests: the first failure, a count each minute, and the end.

    Requests are retried every second while the cluster has no controller.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = 0.0
        self._logged = 0.0
        self._errors: Counter[str] = Counter()

    def failed(self, partitions: int, error: str) -> None:
        """Count a failed request; log the first one, and the count when it is due."""
        self._errors[error] += 1
        now = self._now()
        if self._errors.total() == 1:
            self._began = self._logged = now
            _log.info("AlterPartition fails, retrying", partitions=partitions, error=error)
        elif now - self._logged >= _FAILURE_LOG_S:
            self._logged = now
            self._log_count("AlterPartition still fails")

    def end(self) -> None:
        """Log the count of failures if more than one request failed, and start again at zero."""
        if self._errors.total() > 1:
            self._log_count("AlterPartition no longer fails")
        self._errors.clear()

    def _log_count(self, event: str) -> None:
        _log.info(
            event,
            attempts=self._errors.total(),
            seconds=round(self._now() - self._began, 1),
            errors=dict(self._errors),
        )


class IsrManager:
    """The manager of all ISRs that this broker leads; implements `IsrPort` for the partitions."""

    def __init__(
        self,
        broker_id: int,
        *,
        cache: MetadataCache,
        clock: Clock,
        max_lag_ms: Callable[[], int],
        metrics: ReplicaMetrics,
    ) -> None:
        """`max_lag_ms` returns `replica.lag.time.max.ms`."""
        self._broker_id = broker_id
        self._cache = cache
        self._max_lag_ms = max_lag_ms
        self.now = clock.monotonic
        self._expands = metrics.isr_expands.cell()
        self._shrinks = metrics.isr_shrinks.cell()
        self._failed = metrics.failed_isr_updates.cell()
        self._failure_log = _FailureLog(clock.monotonic)
        self._controller: IsrController | None = None
        self._broker_epoch: Callable[[], int] = lambda: -1
        self._partitions: Iterable[Partition] = ()
        self._proposals: Proposals = {}
        self._retries: dict[Partition, None] = {}
        self._refusals: dict[Partition, Counter[ErrorCode]] = {}
        """Refused proposals by error, since the partition's ISR changed last."""
        self._sender: asyncio.Task[None] | None = None

    def begin(
        self,
        controller: IsrController,
        broker_epoch: Callable[[], int],
        partitions: Iterable[Partition],
    ) -> None:
        """Send proposals from now on; `partitions` are all of this broker, led or not."""
        self._controller, self._broker_epoch = controller, broker_epoch
        self._partitions = partitions
        if self._proposals:
            self._send_soon()

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Review the ISRs twice per `replica.lag.time.max.ms`."""
        tasks.every("ISR review", lambda: self._max_lag_ms() // 2, self.review)

    async def stop(self) -> None:
        """Stop sending proposals."""
        self._controller = None
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.wait([sender])

    # -- called by partitions ---------------------------------------------------------------------

    def is_alive(self, replica: int) -> bool:
        """Whether the controller counts a broker as alive."""
        return replica in self._cache.brokers

    def awaits(self, replica: int, follower: Follower, leader_end: int) -> bool:
        """Whether the high watermark waits for a follower that is about to join the ISR."""
        return self.is_alive(replica) and follower.is_caught_up(
            leader_end, self.now(), self._max_lag
        )

    def maybe_expand(self, partition: Partition) -> None:
        """Propose all followers that may join, have fetched within the lag time and are alive."""
        state, oldest = partition.isr_state, self.now() - self._max_lag
        near = [
            replica
            for replica, follower in state.followers.items()
            if state.may_join(replica, partition.high_watermark)
            and follower.last_fetch.at >= oldest
        ]
        alive = [replica for replica in near if self.is_alive(replica)]
        if alive:
            self._propose(partition, (*state.isr, *alive))
        elif near:
            # It fetches already, but UpdateMetadata has not announced it as alive yet.
            self._retry_later(partition)

    async def review(self) -> None:
        """Propose ISRs without lagging members, and with the followers that may join."""
        now, max_lag = self.now(), self._max_lag
        self._refusals = {each: errors for each, errors in self._refusals.items() if each.is_leader}
        for partition in tuple(self._partitions):
            # Most partitions of a single broker have no follower.
            state = partition.isr_state
            if not state.followers or not partition.is_leader or state.proposed is not None:
                continue
            end = partition.log.log_end_offset
            self._shrink(partition, state.lagging(end, now, max_lag))
            if partition.lacks_replicas:
                self.maybe_expand(partition)
                partition.advance()

    def connection_closed(self, connection_id: int) -> None:
        """Note that a broker closed a connection: followers that fetched over it leave the ISR
        unless they fetch again within `RECONNECT_S`."""
        loop = asyncio.get_running_loop()
        loop.call_later(RECONNECT_S, self._drop_connection, connection_id, self.now())

    def _drop_connection(self, connection_id: int, closed_at: float) -> None:
        for partition in tuple(self._partitions):
            if not partition.is_leader:
                continue
            gone = partition.isr_state.drop_connection(connection_id, closed_at)
            if partition.isr_state.proposed is None:
                self._shrink(partition, gone)
            partition.advance()

    def _shrink(self, partition: Partition, replicas: Iterable[int]) -> None:
        out = set(replicas)
        if out:
            self._propose(
                partition, tuple(each for each in partition.isr_state.isr if each not in out)
            )

    @property
    def _max_lag(self) -> float:
        return self._max_lag_ms() / 1000

    def _retry_later(self, partition: Partition) -> None:
        if not self._retries:
            asyncio.get_running_loop().call_later(RETRY_S, self._retry)
        self._retries[partition] = None

    def _retry(self) -> None:
        partitions, self._retries = self._retries, {}
        for partition in partitions:
            self.maybe_expand(partition)

    # -- proposals to the controller, and its responses -------------------------------------------

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.isr_state.proposed = isr
        self._proposals[partition] = Proposal(
            isr, partition.leader_epoch, partition.partition_epoch
        )
        self._send_soon()

    def _send_soon(self) -> None:
        if self._controller is not None and (self._sender is None or self._sender.done()):
            self._sender = asyncio.get_running_loop().create_task(
                self._send_proposals(self._controller)
            )

    async def _send_proposals(self, controller: IsrController) -> None:
        backoff = Backoff(SHORTEST_BACKOFF_S, LONGEST_BACKOFF_S)
        while self._proposals:
            sent, self._proposals = self._proposals, {}
            try:
                again = await self._send(controller, _open_proposals(sent))
            except Exception as error:
                _log.error("sending ISR proposals failed", partitions=len(sent), exc_info=error)
                again = _open_proposals(sent)
            if not again:
                self._failure_log.end()
                backoff.failures = 0
                continue
            self._failed.value += len(again)
            self._proposals = {**again, **self._proposals}
            await asyncio.sleep(backoff.failed())

    async def _send(self, controller: IsrController, sent: Proposals) -> Proposals:
        """Send proposals and apply the responses; return the proposals whose outcome is unknown."""
        if not sent:
            return {}
        try:
            response = await controller.alter_partition(self._request(sent))
            code = ErrorCode.of(response.error_code)
        except KafkaError as error:
            code = error.code
        if code is not ErrorCode.NONE:
            self._failure_log.failed(len(sent), code.name)
            return sent
        self._failure_log.end()
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        return {
            partition: proposal
            for partition, proposal in _open_proposals(sent).items()
            if not self._apply_answer(partition, answers.get((partition.topic_id, partition.index)))
        }

    def _request(self, sent: Proposals) -> AlterPartitionRequest:
        topics: dict[bytes, TopicData] = {}
        for partition, proposal in sent.items():
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
        """Return the proposed broker epoch: after a restart a broker may lack records."""
        follower = partition.isr_state.followers.get(replica)
        return self._broker_epoch() if follower is None else follower.broker_epoch

    def _apply_answer(self, partition: Partition, answer: PartitionResponse | None) -> bool:
        """Apply the controller's answer; False where the outcome of the proposal stays unknown."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode.of(answer.error_code)
        if answer is not None and code is ErrorCode.NONE:
            if answer.leader_epoch == partition.leader_epoch:
                self._apply_isr(partition, answer.isr, answer.partition_epoch)
            return True
        self._count_refusal(partition, code)
        if code in _NOT_ATTEMPTED:
            self._failed.value += 1
            partition.proposal_refused(ineligible=code is ErrorCode.INELIGIBLE_REPLICA)
            self._retry_later(partition)
            return True
        if code in _OUTDATED:
            self._failed.value += 1
            return True
        return code is ErrorCode.INVALID_UPDATE_VERSION and self._apply_cached(partition)

    def _count_refusal(self, partition: Partition, code: ErrorCode) -> None:
        """Log the first refusal with each error; later ones, one a second, are only counted."""
        refusals = self._refusals.setdefault(partition, Counter())
        refusals[code] += 1
        if refusals[code] == 1:
            _log.info(
                "ISR proposal refused",
                topic=partition.topic,
                partition=partition.index,
                error=code.name,
            )

    def _apply_cached(self, partition: Partition) -> bool:
        """Take over a newer decision from the metadata cache, where its response was lost."""
        known = self._cache.partition(partition.topic, partition.index)
        if (
            known is None
            or known.leader_epoch != partition.leader_epoch
            or known.partition_epoch <= partition.partition_epoch
        ):
            return False
        self._apply_isr(partition, known.isr, known.partition_epoch)
        return True

    def _apply_isr(self, partition: Partition, isr: Iterable[int], partition_epoch: int) -> None:
        before = set(partition.isr_state.isr)
        now = set(isr)
        self._expands.value += bool(now - before)
        self._shrinks.value += bool(before - now)
        _log.info(
            "ISR changed",
            topic=partition.topic,
            partition=partition.index,
            before=sorted(before),
            now=sorted(now),
            refused=self._refusals.pop(partition, Counter()).total(),
        )
        partition.isr_changed(isr, partition_epoch)
        if partition.lacks_replicas:
            self.maybe_expand(partition)


def _open_proposals(proposals: Proposals) -> Proposals:
    """Return the proposals that no decision has overtaken."""
    return {
        partition: proposal
        for partition, proposal in proposals.items()
        if partition.isr_state.proposed is proposal.isr
    }
