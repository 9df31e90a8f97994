"""One controller's time in office: what it knows, decides, writes down and tells.

The order is always the same: decide (pure), write to the store guarded by the controller's epoch,
change the state in memory, tell the brokers. A write that meets another version than expected means
that somebody else is in office: `Fenced`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from barnabas.broker.controller.channel import Connect
from barnabas.broker.controller.election import decide
from barnabas.broker.controller.link import BrokerLink, Message, Report
from barnabas.broker.controller.requests import Sender
from barnabas.broker.controller.state import ClusterState, Partition, Topic, TopicPartition
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import (
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SetData,
)
from barnabas.broker.metadata.znodes import BrokerInfo, LeaderAndIsr
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse

MAX_OPS = 1000
"""Operations after which a transaction is sent: ZooKeeper refuses those above a megabyte."""

_log = get_logger(__name__)


class Fenced(Exception):
    """Another broker is controller now."""


class Tenure:
    """The state and the means of the controller of one epoch."""

    def __init__(
        self,
        store: MetadataStore,
        sender: Sender,
        epoch_version: int,
        *,
        connect: Connect,
        unclean: Callable[[str], bool],
        report: Report,
        failed: Callable[[Exception], None],
    ) -> None:
        """`epoch_version` is the version of the controller epoch's node. `unclean` says whether a
        topic allows unclean elections. `report` gets what brokers answer to LeaderAndIsr,
        `failed` what must never happen between this broker and its own controller."""
        self.state = ClusterState()
        self.sender = sender
        self.store = store
        self._guard = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._connect = connect
        self._unclean = unclean
        self._report = report
        self._failed = failed
        self._links: dict[int, BrokerLink] = {}

    async def load(self) -> list[Topic]:
        """Read the cluster from the store; returns topics whose deletion is unfinished."""
        for topic in [await self._load_topic(name) for name in await self._children(znodes.TOPICS)]:
            self.state.add(topic)
        self.state.brokers = await self._live_brokers()
        for broker in self.state.brokers.values():
            self._open_link(broker)
        deleting = await self._children(znodes.DELETE_TOPICS)
        return [self.state.topics[name] for name in deleting if name in self.state.topics]

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()

    async def begin(self) -> None:
        """Decide on every partition and tell every broker everything."""
        await self.decide(self.state.partitions())
        self._tell_all(self.state.brokers)

    async def refresh_brokers(self) -> None:
        """Take note of who came and who went, and move leaderships accordingly."""
        before = self.state.brokers
        now = self.state.brokers = await self._live_brokers()
        gone = [each for each in before if each not in now or now[each].epoch != before[each].epoch]
        new = [each for each in now if each not in before or each in gone]
        for broker_id in gone:
            await self._links.pop(broker_id).close()
        for broker_id in new:
            self._open_link(now[broker_id])
            for at in self.state.partitions():
                # Directories that failed may work again after a restart.
                self.state.partition(at).offline.discard(broker_id)
        _log.info("brokers changed", alive=sorted(now), gone=sorted(gone), new=sorted(new))
        changed = await self.decide(self.state.partitions())
        self._tell_all(new)
        self.tell(changed, [each for each in now if each not in new])

    async def decide(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Choose leaders where one is needed; returns the partitions that changed."""
        decisions = []
        for at in partitions:
            partition = self.state.partition(at)
            decision = decide(
                partition.replicas,
                partition.state,
                self.state.online(partition),
                unclean=self._unclean(at.topic),
                restarted=self.state.restarted(partition),
                controller_epoch=self.sender.epoch,
            )
            if decision is not None:
                decisions.append((at, decision))
        await self._persist(decisions)
        return [at for at, _ in decisions]

    def tell(
        self, changed: Sequence[TopicPartition], brokers: Iterable[int] | None = None
    ) -> list[asyncio.Future[None]]:
        """Tell brokers (all, unless named) of partitions that changed; futures of delivery."""
        delivered = []
        for broker_id in list(self._links) if brokers is None else brokers:
            broker = self.state.brokers[broker_id]
            lead = self.sender.leader_and_isr(self.state, broker, changed, full=False)
            if lead.topic_states:
                self.send(broker_id, lead)
            update = self.sender.update_metadata(self.state, broker, changed, full=False)
            delivered.append(self.send(broker_id, update))
        return delivered

    def send(self, broker_id: int, message: Message) -> asyncio.Future[None]:
        return self._links[broker_id].send(message)

    async def replicas_answered(self, broker: BrokerInfo, answer: LeaderAndIsrResponse) -> None:
        """Take note of replicas that a broker could not serve, and find others to lead."""
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
            await self.decide(affected)
            self.tell(affected)

    async def log_dirs_failed(self) -> None:
        """Ask brokers that reported a failed directory which of their replicas still serve."""
        for name in await self._children(znodes.LOG_DIR_EVENTS):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            data, _ = await self.store.get(path)
            broker = self.state.brokers.get(znodes.decode_log_dir_event(data))
            if broker is not None:
                everything = self.state.partitions()
                self.send(
                    broker.id,
                    self.sender.leader_and_isr(self.state, broker, everything, full=False),
                )
            await self.commit([[Delete(path)]])

    async def commit(self, groups: Sequence[Sequence[Op]]) -> list[OpResult]:
        """Write in transactions of bounded size; returns the result of each group's last operation.

        Every transaction is guarded by the controller's epoch, and none splits a group. Groups may
        end up in several: what is left undone must be of the kind that a successor completes.
        Raises Fenced.
        """
        results: list[OpResult] = []
        ops: list[Op] = [self._guard]
        last: list[int] = []
        for group in groups:
            ops += group
            last.append(len(ops) - 1)
            if len(ops) > MAX_OPS or group is groups[-1]:
                done = await self._transact(ops)
                results += [done[index] for index in last]
                ops, last = [self._guard], []
        return results

    async def _transact(self, ops: Sequence[Op]) -> list[OpResult]:
        try:
            return await self.store.multi(ops)
        except (BadVersion, NoNode, NodeExists) as cause:
            raise Fenced from cause

    async def _persist(self, decisions: Sequence[tuple[TopicPartition, LeaderAndIsr]]) -> None:
        groups = []
        for at, decision in decisions:
            known = self.state.partition(at).state
            if known is None:
                groups.append(first_state(at, decision))
            else:
                path = znodes.state_path(at.topic, at.partition)
                groups.append([SetData(path, znodes.encode_state(decision), known.partition_epoch)])
        results = await self.commit(groups)
        for (at, decision), result in zip(decisions, results, strict=True):
            install(self.state.partition(at), decision, result)

    def _tell_all(self, brokers: Iterable[int]) -> None:
        everything = list(self.state.partitions())
        for broker_id in brokers:
            broker = self.state.brokers[broker_id]
            lead = self.sender.leader_and_isr(self.state, broker, everything, full=True)
            self.send(broker_id, lead)
            update = self.sender.update_metadata(self.state, broker, everything, full=True)
            self.send(broker_id, update)

    def _open_link(self, broker: BrokerInfo) -> None:
        self._links[broker.id] = BrokerLink(
            broker, self._connect(broker), self._report, self._failed
        )

    async def _load_topic(self, name: str) -> Topic:
        data, _ = await self.store.get(znodes.topic_path(name))
        topic = Topic.of(name, znodes.decode_topic(data))
        for index, partition in topic.partitions.items():
            try:
                data, stat = await self.store.get(znodes.state_path(name, index))
            except NoNode:
                continue
            install(partition, znodes.decode_state(data, stat.version), stat)
        return topic

    async def _live_brokers(self) -> dict[int, BrokerInfo]:
        brokers = {}
        for name in sorted(await self._children(znodes.BROKER_IDS), key=int):
            try:
                data, stat = await self.store.get(znodes.broker_path(int(name)))
            except NoNode:
                # It went between the two reads; the watch tells.
                continue
            brokers[int(name)] = znodes.decode_broker(int(name), data, stat.czxid)
        return brokers

    async def _children(self, path: str) -> list[str]:
        return await self.store.children(path)


def first_state(at: TopicPartition, decision: LeaderAndIsr) -> list[Op]:
    """The nodes of a partition that gets its first leader, below those of its topic."""
    return [
        Create(znodes.partition_path(at.topic, at.partition)),
        Create(znodes.state_path(at.topic, at.partition), znodes.encode_state(decision)),
    ]


def install(partition: Partition, decision: LeaderAndIsr, written: OpResult) -> None:
    """A decision has become true at the version of its node."""
    stat = written.stat if isinstance(written, Created) else written
    assert stat is not None
    partition.state = replace(decision, partition_epoch=stat.version)
    partition.decided_at = stat.mzxid
