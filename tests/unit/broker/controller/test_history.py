"""Any history of shutdowns, crashes, restarts and ISR changes keeps the replication invariants."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import NewTopic
from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tests.unit.broker.controller.harness import FakeBroker, FakeCluster, open_cluster, until

TOPICS = {"careful": (1, 2, 3), "careless": (2, 3, 1), "sole": (3,)}
PATHS = {znodes.state_path(name, 0): name for name in TOPICS}


class History:
    """A cluster, and every state that its partitions have had."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.states: dict[str, LeaderAndIsr] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.lossy: set[tuple[str, int]] = set()
        self.controller_epoch = 0
        notify = cluster.store._notify
        # Check every transaction when it is applied.
        cluster.store._notify = lambda staged: (self._check(staged.changed), notify(staged))[1]  # type: ignore[method-assign, func-returns-value]

    def _check(self, changed: Any) -> None:
        for path in changed:
            if path == znodes.CONTROLLER_EPOCH:
                now = znodes.decode_controller_epoch(self.cluster.store.tree.node(path).data)
                assert now == self.controller_epoch + 1
                self.controller_epoch = now
            if path in PATHS and (node := self.cluster.store.tree.find(path)) is not None:
                self._check_state(PATHS[path], znodes.decode_state(node.data, node.version))

    def _check_state(self, topic: str, now: LeaderAndIsr) -> None:
        before = self.states.get(topic)
        assert now.isr
        assert set(now.isr) <= set(TOPICS[topic])
        assert now.leader == -1 or now.leader in now.isr
        assert now.controller_epoch == self.controller_epoch
        assert self.leaders.setdefault((topic, now.leader_epoch), now.leader) == now.leader
        if before is not None:
            assert now.partition_epoch == before.partition_epoch + 1
            assert now.leader_epoch in (before.leader_epoch, before.leader_epoch + 1)
            if now.leader not in (before.leader, -1) and topic not in self.cluster.unclean:
                assert now.leader in before.isr
                assert now.leader not in before.doubtful
        self.states[topic] = now

    async def kill(self, broker: int) -> None:
        if broker in self.cluster.brokers:
            await self.cluster.kill(broker)

    async def start(self, broker: int, restart: Restart) -> None:
        if broker not in self.cluster.brokers:
            await self.cluster.start(broker, restart=restart)

    async def lose(self, broker: int, restart: Restart) -> None:
        """End a session; the broker returns before the controller has found it missing."""
        if broker in self.cluster.brokers:
            known = self.cluster.brokers[broker]
            known.info = known.info._replace(restart=restart)
            await self.cluster.lose_session(broker)
            await self.cluster.renew_session(broker)

    async def ask(self, work: Callable[[FakeBroker], Awaitable[object]]) -> None:
        """Send a request to the active controller; refusals are fine."""
        for broker in list(self.cluster.brokers.values()):
            if broker.controller.active:
                try:
                    await work(broker)
                except KafkaError:
                    continue

    async def stop(self, broker: int) -> None:
        """Request a controlled shutdown and stop the broker."""
        if (known := self.cluster.brokers.get(broker)) is not None:
            await self.ask(
                lambda each: each.controller.controlled_shutdown(broker, known.info.epoch)
            )
            await self.cluster.kill(broker)

    async def propose(self, topic: str, members: frozenset[int], behind: int) -> None:
        """Propose an ISR as the leader, with its knowledge, which may be outdated."""
        state = self.states.get(topic)
        leader = None if state is None else self.cluster.brokers.get(state.leader)
        if state is None or leader is None:
            return
        isr = {state.leader, *members} & set(TOPICS[topic])
        epochs = {each.info.id: each.info.epoch for each in self.cluster.brokers.values()}
        data = PartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr
            ],
            partition_epoch=state.partition_epoch - behind,
        )
        topic_id = znodes.decode_topic(
            self.cluster.store.tree.node(znodes.topic_path(topic)).data
        ).topic_id
        request = AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=leader.info.epoch,
            topics=[TopicData(topic_id=topic_id, partitions=[data])],
        )
        await self.ask(lambda each: each.controller.alter_partition(request))

    def settled(self) -> bool:
        """Return whether every partition that can have a leader does, and all brokers know it."""
        alive = self.cluster.brokers
        for topic, state in self.states.items():
            able = set(state.isr) & alive.keys() - set(state.doubtful)
            if able and state.leader not in alive:
                return False
            for broker in alive.values():
                known = broker.cache.partition(topic, 0)
                if known is None or (known.leader, known.partition_epoch) != (
                    state.leader,
                    state.partition_epoch,
                ):
                    return False
        return True


brokers = st.sampled_from((1, 2, 3))
events = st.one_of(
    st.tuples(st.just("kill"), brokers),
    st.tuples(st.just("stop"), brokers),
    st.tuples(st.just("start"), brokers, st.sampled_from(Restart)),
    st.tuples(st.just("lose"), brokers, st.sampled_from(Restart)),
    st.tuples(
        st.just("propose"),
        st.sampled_from(sorted(TOPICS)),
        st.frozensets(brokers),
        st.sampled_from((0, 0, 0, 1)),
    ),
)


@settings(max_examples=40)
@given(st.lists(st.tuples(events, st.booleans()), max_size=14))
def test_random_history_keeps_the_invariants(history: list[tuple[tuple[Any, ...], bool]]) -> None:
    async def run() -> None:
        cluster = await open_cluster()
        cluster.unclean.add("careless")
        it = History(cluster)
        for broker in (1, 2, 3):
            await cluster.start(broker)
        await cluster.brokers[1].controller.create_topics(
            [NewTopic(name, assignments=[(0, ids)]) for name, ids in TOPICS.items()], timeout=5
        )
        for (event, *arguments), at_once in history:
            await getattr(it, event)(*arguments)
            if not at_once:
                await until(it.settled)
        for broker in (1, 2, 3):
            await it.start(broker, Restart.CLEAN)
        await until(it.settled)
        assert sum(each.controller.active for each in cluster.brokers.values()) == 1
        assert it.states["sole"].leader == 3
        assert it.states["careless"].leader != -1
        await cluster.close()
        assert not cluster.fatal

    asyncio.run(run())
