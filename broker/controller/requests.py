"""The controller's messages, built from what it knows; pure."""

from collections.abc import Iterable
from itertools import groupby

from barnabas.broker.controller.state import ClusterState, Topic, TopicPartition
from barnabas.broker.metadata.cache import FULL, LEADER_DURING_DELETE
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

INCREMENTAL = 1
EPOCH_DURING_DELETE = -2
"""Leader epoch that goes with a deletion: no request of an older decision can undo it."""
_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Sender:
    """Who the messages come from: a controller of one epoch."""

    def __init__(self, controller_id: int, controller_epoch: int) -> None:
        self.id = controller_id
        self.epoch = controller_epoch

    def leader_and_isr(
        self,
        state: ClusterState,
        broker: BrokerInfo,
        partitions: Iterable[TopicPartition],
        *,
        full: bool,
    ) -> LeaderAndIsrRequest:
        """Leadership of those partitions of which the broker has a replica and that were decided.

        A full request has all of them: replicas it does not name are strays. One of a topic that is
        named without partitions is none: nobody knows what becomes of it.
        """
        topics = [
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=state.topics[name].topic_id,
                partition_states=[
                    self._leader_and_isr_state(state, at, broker)
                    for at in group
                    if broker.id in state.partition(at).replicas
                    and state.partition(at).state is not None
                ],
            )
            for name, group in groupby(partitions, key=lambda at: at.topic)
        ]
        topics = [topic for topic in topics if topic.partition_states]
        if full:
            topics += [LeaderAndIsrTopicState(topic_name=each) for each in sorted(state.unreadable)]
        return LeaderAndIsrRequest(
            controller_id=self.id,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch,
            type=FULL if full else INCREMENTAL,
            topic_states=topics,
            live_leaders=[
                LeaderAndIsrLiveLeader(
                    broker_id=each.id,
                    host_name=each.endpoints[0].host,
                    port=each.endpoints[0].port,
                )
                for each in state.brokers.values()
            ],
        )

    def update_metadata(
        self,
        state: ClusterState,
        broker: BrokerInfo,
        topics: list[UpdateMetadataTopicState],
        *,
        full: bool,
    ) -> UpdateMetadataRequest:
        """What the broker shall tell clients of these partitions, and who is alive."""
        return self._update_metadata(state, broker, topics, full=full)

    def metadata_states(
        self, state: ClusterState, partitions: Iterable[TopicPartition]
    ) -> list[UpdateMetadataTopicState]:
        """What all brokers are told alike of these partitions."""
        return [
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=state.topics[name].topic_id,
                partition_states=[self._metadata_state(state, at) for at in group],
            )
            for name, group in groupby(partitions, key=lambda at: at.topic)
        ]

    def forget_topics(
        self, state: ClusterState, broker: BrokerInfo, topics: Iterable[Topic]
    ) -> UpdateMetadataRequest:
        """Topics that are being deleted: no broker shall tell of them any more."""
        return self._update_metadata(
            state,
            broker,
            [
                UpdateMetadataTopicState(
                    topic_name=topic.name,
                    topic_id=topic.topic_id,
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=index,
                            controller_epoch=self.epoch,
                            leader=LEADER_DURING_DELETE,
                            leader_epoch=EPOCH_DURING_DELETE,
                            isr=[],
                            zk_version=0,
                            replicas=list(partition.replicas),
                        )
                        for index, partition in topic.partitions.items()
                    ],
                )
                for topic in topics
            ],
            full=False,
        )

    def delete_replicas(self, broker: BrokerInfo, topics: Iterable[Topic]) -> StopReplicaRequest:
        """Stop and delete the broker's replicas of these topics."""
        states = [
            StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=index,
                        leader_epoch=EPOCH_DURING_DELETE,
                        delete_partition=True,
                    )
                    for index, partition in topic.partitions.items()
                    if broker.id in partition.replicas
                ],
            )
            for topic in topics
        ]
        return StopReplicaRequest(
            controller_id=self.id,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch,
            topic_states=[topic for topic in states if topic.partition_states],
        )

    def stop_replicas(
        self,
        state: ClusterState,
        broker: BrokerInfo,
        partitions: Iterable[TopicPartition],
        *,
        delete: bool = False,
    ) -> StopReplicaRequest:
        """Stop, and keep or delete, the broker's replicas of these partitions."""
        return StopReplicaRequest(
            controller_id=self.id,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch,
            topic_states=[
                StopReplicaTopicState(
                    topic_name=name,
                    partition_states=[
                        StopReplicaPartitionState(
                            partition_index=at.partition,
                            leader_epoch=decided.leader_epoch,
                            delete_partition=delete,
                        )
                        for at in group
                        if (decided := state.partition(at).state) is not None
                    ],
                )
                for name, group in groupby(partitions, key=lambda at: at.topic)
            ],
        )

    def _leader_and_isr_state(
        self, state: ClusterState, at: TopicPartition, broker: BrokerInfo
    ) -> LeaderAndIsrPartitionState:
        partition = state.partition(at)
        assert partition.state is not None
        return LeaderAndIsrPartitionState(
            partition_index=at.partition,
            controller_epoch=partition.state.controller_epoch,
            leader=partition.state.leader,
            leader_epoch=partition.state.leader_epoch,
            isr=list(partition.state.isr),
            partition_epoch=partition.state.partition_epoch,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding),
            removing_replicas=list(partition.removing),
            # A replica may be created only where it cannot have existed before: on a broker that
            # was there when the partition got its first leader, or that is to get it only now.
            is_new=(partition.state.leader_epoch == 0 and broker.epoch < partition.created_at)
            or (broker.id in partition.adding and broker.id not in partition.state.isr),
        )

    def _metadata_state(
        self, state: ClusterState, at: TopicPartition
    ) -> UpdateMetadataPartitionState:
        partition = state.partition(at)
        decided = partition.state
        return UpdateMetadataPartitionState(
            partition_index=at.partition,
            controller_epoch=self.epoch,
            leader=partition.leader,
            leader_epoch=-1 if decided is None else decided.leader_epoch,
            isr=[] if decided is None else list(decided.isr),
            zk_version=-1 if decided is None else decided.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=sorted(set(partition.replicas) - state.online(partition)),
        )

    def _update_metadata(
        self,
        state: ClusterState,
        broker: BrokerInfo,
        topics: list[UpdateMetadataTopicState],
        *,
        full: bool,
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self.id,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch,
            type=FULL if full else INCREMENTAL,
            topic_states=topics,
            live_brokers=[
                UpdateMetadataBroker(
                    id=each.id,
                    rack=each.rack,
                    endpoints=[
                        UpdateMetadataEndpoint(
                            port=endpoint.port,
                            host=endpoint.host,
                            listener=endpoint.listener,
                            security_protocol=_SECURITY_PROTOCOLS[endpoint.security_protocol],
                        )
                        for endpoint in each.endpoints
                    ],
                )
                for each in state.brokers.values()
            ],
        )
