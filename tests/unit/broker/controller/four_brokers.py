"""A cluster of four brokers with a topic to reassign, and the ISR proposals of its leaders."""

from collections.abc import Sequence

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import NewTopic
from barnabas.broker.cluster.znodes import LeaderAndIsr, TopicAssignment
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.controller.rules.reassignment import Assignment
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.mem_files import MemFiles
from tests.unit.broker.controller.harness import FakeCluster

AT = TopicPartition("t", 0)


class Cluster(FakeCluster):
    """A cluster of four; the broker that started first is controller."""

    @classmethod
    async def of_four(cls, *replicas: Sequence[int]) -> "Cluster":
        """Create a cluster with a topic whose partitions have these replicas."""
        cluster = cls(await open_store(MemFiles(), "/metadata", InlineOffload()))
        for broker in (1, 2, 3, 4):
            await cluster.start(broker)
        assignments = list(enumerate(replicas))
        await cluster.controller.create_topics([NewTopic("t", assignments=assignments)], timeout=5)
        return cluster

    @property
    def controller(self) -> Controller:
        return next(each for each in self.brokers.values() if each.controller.active).controller

    @property
    def admin(self) -> ReplicaAdmin:
        return ReplicaAdmin(self.controller)

    async def reassign(
        self, replicas: Sequence[int] | None, at: TopicPartition = AT, *, factor_may: bool = True
    ) -> KafkaError | None:
        answers = await self.admin.alter_reassignments(
            {at: replicas}, allow_factor_change=factor_may, timeout=5
        )
        return answers[at]

    async def ongoing(self) -> dict[TopicPartition, Assignment]:
        return await self.admin.list_reassignments(None, timeout=5)

    async def state(self, at: TopicPartition = AT) -> LeaderAndIsr:
        data, stat = await self.read(znodes.state_path(*at))
        return znodes.decode_state(data, stat)

    async def assignment(self) -> TopicAssignment:
        return znodes.decode_topic((await self.read(znodes.topic_path("t")))[0])

    async def read(self, path: str) -> tuple[bytes, int]:
        session = self.store.session()
        data, stat = await session.get(path)
        await session.close()
        return data, stat.version

    async def in_sync(self, *isr: int, at: TopicPartition = AT) -> int:
        """Propose an ISR as the leader; return the error of the answer."""
        state, topic = await self.state(at), await self.assignment()
        leader = self.brokers[state.leader]
        answer = await self.controller.alter_partition(
            AlterPartitionRequest(
                broker_id=leader.info.id,
                broker_epoch=leader.info.epoch,
                topics=[
                    TopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            PartitionData(
                                partition_index=at.partition,
                                leader_epoch=state.leader_epoch,
                                new_isr_with_epochs=[
                                    BrokerState(
                                        broker_id=each, broker_epoch=self.brokers[each].info.epoch
                                    )
                                    for each in isr
                                ],
                                partition_epoch=state.partition_epoch,
                            )
                        ],
                    )
                ],
            )
        )
        return answer.topics[0].partitions[0].error_code
