"""The state and the actions of the active controller in one controller epoch.

The order is always the same: decide (pure), write to the store guarded by the controller epoch,
change the state in memory, send requests to the brokers. A write that finds another epoch raises
`ControllerMovedError`: another broker is controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.topic_names import COMPACTED_TOPICS
from barnabas.broker.cluster.znodes import BrokerInfo, LeaderAndIsr
from barnabas.broker.controller.cluster_store import (
    ClusterStore,
    ControllerMovedError,
    install,
    next_state,
)
from barnabas.broker.controller.control_messages import ControlMessages
from barnabas.broker.controller.controller_channel import (
    BrokerClientFactory,
    ControllerChannelManager,
    LeaderAndIsrCallback,
)
from barnabas.broker.controller.controller_election import Term
from barnabas.broker.controller.pending_messages import Message
from barnabas.broker.controller.rules.cluster_state import ClusterState, ClusterTopic
from barnabas.broker.controller.rules.leader_election import (
    CLEAN_ONLY,
    ElectionInputs,
    ElectionPolicy,
    decide,
)
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import (
    BROKERS_CHANGED,
    ISR_CHANGED,
    LEADER_ELECTED,
    LEADER_LOST,
    UNCLEAN_ELECTION,
    EventKind,
    EventLog,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import Delete, MetadataStore, Op, OpResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataTopicState
from barnabas.protocol.topic_partition import TopicPartition


class ElectionCounts:
    """The number of leader elections of one broker, over all its terms as controller."""

    def __init__(self) -> None:
        self.elections = 0
        """Partitions that got a first or another leader."""
        self.unclean = 0
        """Elections of a replica that may lack acknowledged records."""

    def count(self, kind: EventKind | None) -> None:
        """Count a decision by the kind of its event."""
        self.elections += kind in (LEADER_ELECTED, UNCLEAN_ELECTION)
        self.unclean += kind is UNCLEAN_ELECTION


_log = get_logger(__name__)


class ActiveController:
    """The controller of one epoch: the cluster state and the actions that change it."""

    def __init__(
        self,
        store: MetadataStore,
        messages: ControlMessages,
        term: Term,
        *,
        slicer: Slicer,
        connect: BrokerClientFactory,
        policy: Callable[[str], Awaitable[ElectionPolicy]],
        counts: ElectionCounts,
        events: EventLog,
        on_leader_and_isr: LeaderAndIsrCallback,
        on_fatal: Callable[[Exception], None],
    ) -> None:
        """`policy` returns the election policy of a topic. `on_leader_and_isr` gets every
        LeaderAndIsr response. `on_fatal` gets errors that cannot happen between a broker and its
        own controller."""
        self.state = ClusterState()
        self.messages = messages
        self.store = store
        self.slicer = slicer
        self._cluster = ClusterStore(store, term, slicer)
        self._policy = policy
        self._counts = counts
        self.events = events
        self._channels = ControllerChannelManager(connect, on_leader_and_isr, on_fatal)
        self._ended = False

    async def load(self) -> list[ClusterTopic]:
        """Read the cluster from the store; return the topics whose deletion is unfinished.

        If every broker that is in sync anywhere has lost its registration, the store was down. The
        brokers that are not back yet are `missing` and keep their leaderships for a while.
        """
        self.state, deleting = await self._cluster.load()
        if self.store.session_timeout < inf and not self.state.established:
            self.state.missing = self.state.members() - self.state.brokers.keys()
        for broker in self.state.brokers.values():
            self._channels.open(broker)
        return deleting

    def abandon(self) -> None:
        """Write and send nothing more."""
        self._ended = True
        self._channels.close_all()

    async def close(self) -> None:
        """Do the same as `abandon`, and return when no request is in flight."""
        self.abandon()
        await self._channels.wait_closed()

    async def begin(self) -> None:
        """Decide on every partition and send the full state to every broker."""
        await self.decide(self.state.partitions())
        await self._send_everything(self.state.brokers)

    # -- brokers ----------------------------------------------------------------------------------

    async def refresh_brokers(self) -> None:
        """Read which brokers are registered, and elect leaders for the partitions of those that
        changed."""
        before, now = self.state.brokers, await self._cluster.live_brokers()
        gone = {each for each in before if each not in now or now[each].epoch != before[each].epoch}
        new = {each for each in now if each not in before or each in gone}
        if not gone and not new:
            return
        self.events.add(
            _log, BROKERS_CHANGED, alive=sorted(now), gone=sorted(gone), new=sorted(new)
        )
        if self.state.missing:
            # The store was down and all brokers are returning; one that leaves again is still
            # expected.
            self.state.missing = (self.state.missing | gone) - now.keys()
        self.state.brokers = now
        self.state.leaving -= gone
        for broker_id in gone:
            self._channels.close(broker_id)
        affected = list(self.state.on_brokers(gone | new))
        for broker_id in new:
            self._channels.open(now[broker_id])
            for at in affected:
                # A failed directory may work again after a restart.
                self.state.partition(at).offline.discard(broker_id)
        changed = await self.decide(affected)
        await self._send_everything(new)
        await self.send_changes(changed, [each for each in now if each not in new], shown=affected)

    async def give_up_missing(self) -> None:
        """Treat the brokers that are still missing as gone."""
        missing, self.state.missing = self.state.missing, frozenset()
        if missing:
            _log.info("brokers did not return", gone=sorted(missing))
            affected = list(self.state.on_brokers(missing))
            await self.send_changes(await self.decide(affected), shown=affected)

    # -- decisions --------------------------------------------------------------------------------

    async def decide(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Elect leaders where one is needed; return the partitions that changed."""
        decisions: dict[TopicPartition, LeaderAndIsr] = {}
        leaderless: list[TopicPartition] = []
        async for at in self.slicer.each(partitions):
            decision = self._decision(at, CLEAN_ONLY)
            if decision is not None:
                decisions[at] = decision
            partition = self.state.partition(at)
            if (decision or partition).leader == NO_LEADER and self.state.online(partition):
                leaderless.append(at)
        if leaderless:
            # Read topic configurations only for these partitions; most elections do not need them.
            topics = list(dict.fromkeys(at.topic for at in leaderless))
            found = await self._cluster.each(self._policy, topics)
            policies = dict(zip(topics, found, strict=True))
            async for at in self.slicer.each(leaderless):
                decision = self._decision(at, policies[at.topic])
                if decision is not None:
                    decisions[at] = decision
        await self.persist(decisions)
        return list(decisions)

    async def decide_and_send(self, partitions: Iterable[TopicPartition]) -> None:
        """Do the same as `decide`, and send the changes to the brokers."""
        changed = await self.decide(partitions)
        if changed:
            await self.send_changes(changed)

    async def persist(self, decisions: dict[TopicPartition, LeaderAndIsr]) -> None:
        """Write decisions to the store, then apply them to the state in memory."""
        judged, groups = [], []
        async for at, decided in self.slicer.each(decisions.items()):
            decision = self.state.mark_judged(decided)
            judged.append((at, decision))
            groups.append(next_state(at, self.state.partition(at), decision))
        results = await self.commit(groups)
        written = zip(judged, results, strict=True)
        with self.events.of_partitions(_log) as add:
            async for (at, decision), result in self.slicer.each(written):
                partition = self.state.partition(at)
                if (before := partition.state) is not None:
                    self._counts.count(_add_change(add, at, before, decision))
                install(partition, decision, result)

    async def commit(self, groups: Sequence[Sequence[Op]]) -> list[OpResult]:
        """See `ClusterStore.commit`."""
        if self._ended:
            raise ControllerMovedError("the term has ended")
        return await self._cluster.commit(groups)

    async def policy(self, topic: str) -> ElectionPolicy:
        """Return the election policy of a topic."""
        return await self._policy(topic)

    def election_inputs(
        self, at: TopicPartition, policy: ElectionPolicy = CLEAN_ONLY
    ) -> ElectionInputs:
        """Return the inputs of a leader election of this partition."""
        # The epoch of a coordinator's log fences markers and replies of its earlier run.
        return self.state.election_inputs(
            self.state.partition(at), policy, keeps_epoch=at.topic not in COMPACTED_TOPICS
        )

    def _decision(self, at: TopicPartition, policy: ElectionPolicy) -> LeaderAndIsr | None:
        partition = self.state.partition(at)
        return decide(
            partition.replicas,
            partition.state,
            self.election_inputs(at, policy),
            self.messages.epoch,
        )

    # -- requests to brokers ----------------------------------------------------------------------

    async def send_changes(
        self,
        changed: Sequence[TopicPartition],
        brokers: Iterable[int] | None = None,
        *,
        shown: Sequence[TopicPartition] | None = None,
    ) -> list[asyncio.Future[None]]:
        """Send changed partitions to brokers (all, unless named); return futures of delivery.

        `shown` are the partitions whose metadata changed, if they are more than `changed`.
        """
        names = list(self._channels) if brokers is None else brokers
        states = await self._metadata_states(changed if shown is None else shown)
        delivered = []
        async for broker_id in self.slicer.each(names):
            broker = self.state.brokers[broker_id]
            lead = await self._leader_and_isr(broker, changed, full=False)
            if lead.topic_states:
                self.send(broker_id, lead)
            update = self.messages.update_metadata(self.state, broker, states, full=False)
            delivered.append(self.send(broker_id, update))
        return delivered

    async def send_metadata(self, changed: Sequence[TopicPartition]) -> None:
        """Send metadata to all brokers for partitions whose leaders stay."""
        states = await self._metadata_states(changed)
        for broker in self.state.brokers.values():
            update = self.messages.update_metadata(self.state, broker, states, full=False)
            self.send(broker.id, update)

    async def resend_leaders(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Send the current state of partitions to one broker again."""
        broker = self.state.brokers[broker_id]
        lead = await self._leader_and_isr(broker, partitions, full=False)
        if lead.topic_states:
            self.send(broker_id, lead)

    def send(self, broker_id: int, message: Message) -> asyncio.Future[None]:
        return self._channels.send(broker_id, message)

    async def _send_everything(self, brokers: Iterable[int]) -> None:
        everything = list(self.state.partitions())
        states = await self._metadata_states(everything)
        for broker_id in brokers:
            broker = self.state.brokers[broker_id]
            lead = await self._leader_and_isr(broker, everything, full=True)
            self.send(broker_id, lead)
            update = self.messages.update_metadata(self.state, broker, states, full=True)
            self.send(broker_id, update)

    async def _metadata_states(
        self, partitions: Iterable[TopicPartition]
    ) -> list[UpdateMetadataTopicState]:
        return await self.slicer.run(self.messages.metadata_states(self.state, partitions))

    async def _leader_and_isr(
        self, broker: BrokerInfo, partitions: Iterable[TopicPartition], *, full: bool
    ) -> LeaderAndIsrRequest:
        return await self.slicer.run(
            self.messages.leader_and_isr(self.state, broker, partitions, full=full)
        )

    # -- responses of brokers ---------------------------------------------------------------------

    async def replicas_answered(self, broker: BrokerInfo, answer: LeaderAndIsrResponse) -> None:
        """Record which replicas a broker can serve or not, and elect other leaders."""
        if self.state.brokers.get(broker.id) != broker:
            # The next incarnation of the broker may have a repaired directory.
            return
        affected = []
        for topic in answer.topics:
            name = self.state.names.get(topic.topic_id)
            for each in topic.partition_errors:
                at = None if name is None else TopicPartition(name, each.partition_index)
                if at is None or at.partition not in self.state.topics[at.topic].partitions:
                    continue
                offline = self.state.partition(at).offline
                is_offline = each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                if is_offline == (broker.id in offline):
                    continue
                (offline.add if is_offline else offline.discard)(broker.id)
                affected.append(at)
        if affected:
            await self.send_changes(await self.decide(affected), shown=affected)

    async def log_dirs_failed(self) -> None:
        """Ask brokers that reported a failed directory which of their replicas still work."""
        for name in await self.store.children(znodes.LOG_DIR_EVENTS):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            data, _ = await self.store.get(path)
            try:
                broker = self.state.brokers.get(znodes.decode_log_dir_event(data))
            except znodes.ZnodeError as error:
                _log.error("log directory event damaged", reason=str(error))
                broker = None
            if broker is not None:
                await self.resend_leaders(broker.id, list(self.state.partitions()))
            await self.commit([[Delete(path)]])


def _add_change(
    add: Callable[..., None], at: TopicPartition, before: LeaderAndIsr, after: LeaderAndIsr
) -> EventKind | None:
    """Add the event of a decision about a partition that had a state, and return its kind."""
    isr = sorted(after.isr)
    if after.leader == before.leader:
        if isr == sorted(before.isr):
            return None
        add(ISR_CHANGED, at, before=sorted(before.isr), now=isr)
        return ISR_CHANGED
    clean = after.leader in before.isr and after.leader not in before.doubtful
    kind = LEADER_ELECTED if clean else UNCLEAN_ELECTION
    if after.leader == NO_LEADER:
        add(LEADER_LOST, at, before=before.leader, isr=isr)
        return LEADER_LOST
    add(kind, at, before=before.leader, leader=after.leader, isr=isr, epoch=after.leader_epoch)
    return kind
