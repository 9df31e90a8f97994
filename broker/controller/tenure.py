"""One controller's time in office: what it knows, decides, writes down and tells.

The order is always the same: decide (pure), write to the store guarded by the controller's epoch,
change the state in memory, tell the brokers. A write that meets another epoch than its own means
that somebody else is in office: `Fenced`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf

from barnabas.broker.controller.channel import Connect
from barnabas.broker.controller.election import CAREFUL, ElectionPolicy, Situation, decide
from barnabas.broker.controller.gathering import Message
from barnabas.broker.controller.link import BrokerLink, Report
from barnabas.broker.controller.office import Term
from barnabas.broker.controller.register import Fenced, Register, install, next_state
from barnabas.broker.controller.requests import Sender
from barnabas.broker.controller.state import ClusterState, Topic, TopicPartition
from barnabas.broker.controller.statistics import ElectionCounts
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.store import Delete, MetadataStore, Op, OpResult
from barnabas.broker.metadata.znodes import BrokerInfo, LeaderAndIsr
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse

_log = get_logger(__name__)


class Tenure:
    """The state and the means of the controller of one epoch."""

    def __init__(
        self,
        store: MetadataStore,
        sender: Sender,
        term: Term,
        *,
        connect: Connect,
        policy: Callable[[str], Awaitable[ElectionPolicy]],
        counts: ElectionCounts,
        report: Report,
        failed: Callable[[Exception], None],
    ) -> None:
        """`policy` says what a topic wants of its elections. `report` gets what brokers answer to
        LeaderAndIsr, `failed` what must never happen between this broker and its own controller."""
        self.state = ClusterState()
        self.sender = sender
        self.store = store
        self._register = Register(store, term)
        self._connect = connect
        self._policy = policy
        self._counts = counts
        self._report = report
        self._failed = failed
        self._links: dict[int, BrokerLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._over = False

    async def load(self) -> list[Topic]:
        """Read the cluster from the store; returns topics whose deletion is unfinished.

        Where every broker that was in sync anywhere has lost its registration, it is the store that
        was away: those that are not back yet are `missing`, and keep their place for a while.
        """
        self.state, deleting = await self._register.load()
        if self.store.session_timeout < inf and not self.state.established:
            self.state.missing = self.state.members() - self.state.brokers.keys()
        for broker in self.state.brokers.values():
            self._open_link(broker)
        return deleting

    def abandon(self) -> None:
        """Write and send nothing more."""
        self._over = True
        for link in self._links.values():
            self._close_link(link)

    async def close(self) -> None:
        """As `abandon`; returns when nothing is under way."""
        self.abandon()
        if self._closing:
            await asyncio.wait(self._closing)

    async def begin(self) -> None:
        """Decide on every partition and tell every broker everything."""
        await self.decide(self.state.partitions())
        self._tell_all(self.state.brokers)

    # -- brokers come and go ---------------------------------------------------------------------

    async def refresh_brokers(self) -> None:
        """Take note of who came and who went, and move leaderships accordingly."""
        before, now = self.state.brokers, await self._register.live_brokers()
        gone = {each for each in before if each not in now or now[each].epoch != before[each].epoch}
        new = {each for each in now if each not in before or each in gone}
        if not gone and not new:
            return
        _log.info("brokers changed", alive=sorted(now), gone=sorted(gone), new=sorted(new))
        if self.state.missing:
            # All are on their way back: who goes once more does not go for good either.
            self.state.missing = (self.state.missing | gone) - now.keys()
        self.state.brokers = now
        self.state.leaving -= gone
        for broker_id in gone:
            self._close_link(self._links.pop(broker_id))
        affected = list(self.state.on_brokers(gone | new))
        for broker_id in new:
            self._open_link(now[broker_id])
            for at in affected:
                # Directories that failed may work again after a restart.
                self.state.partition(at).offline.discard(broker_id)
        changed = await self.decide(affected)
        self._tell_all(new)
        self.tell(changed, [each for each in now if each not in new], shown=affected)

    async def stop_waiting(self) -> None:
        """Whoever is still missing is gone."""
        missing, self.state.missing = self.state.missing, frozenset()
        if missing:
            _log.info("brokers did not come back", gone=sorted(missing))
            affected = list(self.state.on_brokers(missing))
            self.tell(await self.decide(affected), shown=affected)

    # -- deciding --------------------------------------------------------------------------------

    async def decide(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Choose leaders where one is needed; returns the partitions that changed."""
        decisions: dict[TopicPartition, LeaderAndIsr] = {}
        leaderless: list[TopicPartition] = []
        for at in partitions:
            decision = self._decision(at, CAREFUL)
            if decision is not None:
                decisions[at] = decision
            partition = self.state.partition(at)
            if (decision or partition).leader == NO_LEADER and self.state.online(partition):
                leaderless.append(at)
        if leaderless:
            # Only now what the topics say matters; most elections need not ask.
            topics = list(dict.fromkeys(at.topic for at in leaderless))
            found = await self._register.each(self._policy, topics)
            policies = dict(zip(topics, found, strict=True))
            for at in leaderless:
                decision = self._decision(at, policies[at.topic])
                if decision is not None:
                    decisions[at] = decision
        await self.persist(decisions)
        return list(decisions)

    async def decide_and_tell(self, partitions: Iterable[TopicPartition]) -> None:
        """As `decide`, and let the brokers know."""
        changed = await self.decide(partitions)
        if changed:
            self.tell(changed)

    async def persist(self, decisions: dict[TopicPartition, LeaderAndIsr]) -> None:
        """Write decisions down, and let them be true."""
        decisions = {at: self.state.judged(decision) for at, decision in decisions.items()}
        results = await self.commit(
            [
                next_state(at, self.state.partition(at), decision)
                for at, decision in decisions.items()
            ]
        )
        for (at, decision), result in zip(decisions.items(), results, strict=True):
            partition = self.state.partition(at)
            self._counts.decided(partition.state, decision)
            install(partition, decision, result)

    async def commit(self, groups: Sequence[Sequence[Op]]) -> list[OpResult]:
        """See `Register.commit`."""
        if self._over:
            raise Fenced("the term is over")
        return await self._register.commit(groups)

    async def policy(self, topic: str) -> ElectionPolicy:
        """What a topic wants of its elections."""
        return await self._policy(topic)

    def situation(self, at: TopicPartition, policy: ElectionPolicy = CAREFUL) -> Situation:
        """What an election of this partition's leader looks at."""
        return self.state.situation(self.state.partition(at), policy)

    def _decision(self, at: TopicPartition, policy: ElectionPolicy) -> LeaderAndIsr | None:
        partition = self.state.partition(at)
        return decide(
            partition.replicas, partition.state, self.situation(at, policy), self.sender.epoch
        )

    # -- telling ---------------------------------------------------------------------------------

    def tell(
        self,
        changed: Sequence[TopicPartition],
        brokers: Iterable[int] | None = None,
        *,
        shown: Sequence[TopicPartition] | None = None,
    ) -> list[asyncio.Future[None]]:
        """Tell brokers (all, unless named) of partitions that changed; futures of delivery.

        `shown` are those whose metadata changed, where there are more of them.
        """
        names = list(self._links) if brokers is None else brokers
        states = self.sender.metadata_states(self.state, changed if shown is None else shown)
        delivered = []
        for broker_id in names:
            broker = self.state.brokers[broker_id]
            lead = self.sender.leader_and_isr(self.state, broker, changed, full=False)
            if lead.topic_states:
                self.send(broker_id, lead)
            update = self.sender.update_metadata(self.state, broker, states, full=False)
            delivered.append(self.send(broker_id, update))
        return delivered

    def show(self, changed: Sequence[TopicPartition]) -> None:
        """Tell all brokers of partitions whose leaders go on as before."""
        states = self.sender.metadata_states(self.state, changed)
        for broker in self.state.brokers.values():
            update = self.sender.update_metadata(self.state, broker, states, full=False)
            self.send(broker.id, update)

    def remind(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """Tell one broker again what holds for partitions."""
        broker = self.state.brokers[broker_id]
        lead = self.sender.leader_and_isr(self.state, broker, partitions, full=False)
        if lead.topic_states:
            self.send(broker_id, lead)

    def send(self, broker_id: int, message: Message) -> asyncio.Future[None]:
        return self._links[broker_id].send(message)

    def _tell_all(self, brokers: Iterable[int]) -> None:
        everything = list(self.state.partitions())
        states = self.sender.metadata_states(self.state, everything)
        for broker_id in brokers:
            broker = self.state.brokers[broker_id]
            lead = self.sender.leader_and_isr(self.state, broker, everything, full=True)
            self.send(broker_id, lead)
            update = self.sender.update_metadata(self.state, broker, states, full=True)
            self.send(broker_id, update)

    def _open_link(self, broker: BrokerInfo) -> None:
        self._links[broker.id] = BrokerLink(
            broker, self._connect(broker), self._report, self._failed
        )

    def _close_link(self, link: BrokerLink) -> None:
        # Nobody waits for a broker that may be dead.
        task = asyncio.create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- what brokers answer ---------------------------------------------------------------------

    async def replicas_answered(self, broker: BrokerInfo, answer: LeaderAndIsrResponse) -> None:
        """Take note of replicas that a broker could not serve, and find others to lead."""
        if self.state.brokers.get(broker.id) != broker:
            # Its next run may have found the directory repaired.
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
            self.tell(await self.decide(affected), shown=affected)

    async def log_dirs_failed(self) -> None:
        """Ask brokers that reported a failed directory which of their replicas still serve."""
        for name in await self.store.children(znodes.LOG_DIR_EVENTS):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            data, _ = await self.store.get(path)
            try:
                broker = self.state.brokers.get(znodes.decode_log_dir_event(data))
            except znodes.ZnodeError as error:
                _log.error("notice of a failed directory is damaged", reason=str(error))
                broker = None
            if broker is not None:
                self.remind(broker.id, list(self.state.partitions()))
            await self.commit([[Delete(path)]])
