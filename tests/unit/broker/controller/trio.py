"""Three brokers, the first of which is the controller, and a topic led by the second."""

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    PartitionResponse,
    TopicData,
)
from tests.unit.broker.controller.harness import FakeCluster


class Trio(FakeCluster):
    """Three brokers, and requests of the leader of partition 0."""

    topic_id: bytes

    async def begin(self) -> None:
        for each in (1, 2, 3):
            await self.start(each)
        self.topic_id = await self.create("t", 2, 3, 1)

    async def create(self, name: str, *replicas: int) -> bytes:
        new = NewTopic(name, assignments=[(0, replicas)])
        answer = (await self.brokers[1].controller.create_topics([new], timeout=5))[name]
        assert isinstance(answer, CreatedTopic)
        return answer.topic_id

    def state(self, topic: str = "t") -> LeaderAndIsr:
        node = self.store.tree.node(znodes.state_path(topic, 0))
        return znodes.decode_state(node.data, node.version)

    async def propose(
        self,
        *isr: int,
        leader: int = 2,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        broker_epoch: int | None = None,
        topic_id: bytes | None = None,
        epochs: dict[int, int] | None = None,
        index: int = 0,
    ) -> PartitionResponse:
        known = {each.info.id: each.info.epoch for each in self.brokers.values()} | (epochs or {})
        data = PartitionData(
            partition_index=index,
            leader_epoch=leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=known.get(each, -1)) for each in isr
            ],
            partition_epoch=partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=known[leader] if broker_epoch is None else broker_epoch,
            topics=[TopicData(topic_id=topic_id or self.topic_id, partitions=[data])],
        )
        answer = await self.brokers[1].controller.alter_partition(request)
        return answer.topics[0].partitions[0]

    async def back_at_once(self, broker_id: int, how: Restart) -> None:
        """Register a broker again, after a run that ended in the given way, before its end is
        noticed."""
        await self.lose_session(broker_id)
        broker = self.brokers[broker_id]
        broker.info = broker.info._replace(restart=how)
        await self.renew_session(broker_id)
