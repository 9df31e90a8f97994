"""The requests of the controller to brokers, built from its state; pure."""

from collections.abc import Iterable
from functools import partial
from itertools import groupby

from barnabas.broker.cluster.cache import (
    EPOCH_DURING_DELETE,
    FULL,
    INCREMENTAL,
    LEADER_DURING_DELETE,
)
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.controller.rules.cluster_state import ClusterState, ClusterTopic
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
from barnabas.protocol.steps import Steps, in_steps
from barnabas.protocol.topic_partition import TopicPartition

_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class ControlMessages:
    """The builder of the requests of one controller epoch."""

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
    ) -> Steps[LeaderAndIsrRequest]:
        """Return the leadership of those partitions that have a replica on the broker and a leader.

        A full request has all of them: a replica that it does not name is a stray. A topic without
        partitions in it is unreadable, so the broker keeps its replicas.
        """
        topics = []
        for name, group in groupby(partitions, key=lambda at: at.topic):
            states = []
            for at in group:
                partition = state.partition(at)
                if broker.id in partition.replicas and partition.state is not None:
                    states.append(self._leader_and_isr_state(state, at, broker))
                yield None
            if states:
                topics.append(
                    LeaderAndIsrTopicState(
                        topic_name=name,
                        topic_id=state.topics[name].topic_id,
                        partition_states=states,
                    )
                )
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
        """Return the metadata of partitions and brokers, for the broker's clients."""
        return self._update_metadata(state, broker, topics, full=full)

    def metadata_states(
        self, state: ClusterState, partitions: Iterable[TopicPartition]
    ) -> Steps[list[UpdateMetadataTopicState]]:
        """Return the metadata of partitions, which is the same for all brokers."""
        topics = []
        for name, group in groupby(partitions, key=lambda at: at.topic):
            states = yield from in_steps(partial(self._metadata_state, state), group)
            topic_id = state.topics[name].topic_id
            topics.append(
                UpdateMetadataTopicState(
                    topic_name=name, topic_id=topic_id, partition_states=states
                )
            )
        return topics

    def forget_topics(
        self, state: ClusterState, broker: BrokerInfo, topics: Iterable[ClusterTopic]
    ) -> Steps[UpdateMetadataRequest]:
        """Return a request that removes topics being deleted from the broker's metadata."""
        states = yield from in_steps(self._deleted_topic, topics)
        return self._update_metadata(state, broker, states, full=False)

    def delete_replicas(
        self, broker: BrokerInfo, topics: Iterable[ClusterTopic]
    ) -> Steps[StopReplicaRequest]:
        """Return a request that stops and deletes the broker's replicas of these topics."""

        def delete(topic: ClusterTopic) -> StopReplicaTopicState:
            return StopReplicaTopicState(
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

        states = yield from in_steps(delete, topics)
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
        """Return a request that stops, and keeps or deletes, the broker's replicas of these
        partitions."""
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

    def _deleted_topic(self, topic: ClusterTopic) -> UpdateMetadataTopicState:
        return UpdateMetadataTopicState(
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
            # A replica may be created only if it cannot have existed before: the broker was
            # registered when the partition got its first leader, or the replica is being added now.
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
