"""What brokers ask of the controller during one tenure: in-sync sets, and leave to stop."""

from dataclasses import replace

from barnabas.broker.controller.in_sync_changes import Proposal, accepted
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.metadata.znodes import BrokerInfo, LeaderAndIsr
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResponse,
    TopicResponse,
)

_BEHIND = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION)
"""Refusals of leaders that have missed a decision: they are told again."""
_log = get_logger(__name__)


class BrokerRequests:
    """All methods raise STALE_BROKER_EPOCH for another incarnation of a broker than is known, and
    BROKER_NOT_AVAILABLE for one that is not registered."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    def require(self, broker_id: int, broker_epoch: int) -> BrokerInfo:
        """The broker that asks, if it is the one that is registered."""
        broker = self._tenure.state.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if broker_epoch != broker.epoch:
            # Of an earlier run, or of one whose registration this controller has yet to take in.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return broker

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Let a broker stop: others lead what it led, and it leaves the in-sync sets it can.

        Returns what it still leads though other brokers have replicas.
        """
        tenure, broker = self._tenure, self.require(broker_id, broker_epoch)
        tenure.state.leaving.add(broker_id)
        shared = [
            at
            for at in tenure.state.on_brokers({broker_id})
            if len(tenure.state.partition(at).replicas) > 1
        ]
        tenure.tell(await tenure.decide(shared))
        remaining: list[TopicPartition] = []
        stopped: list[TopicPartition] = []
        for at in shared:
            leads = tenure.state.partition(at).leader == broker_id
            (remaining if leads else stopped).append(at)
        if stopped:
            tenure.send(broker_id, tenure.sender.stop_replicas(tenure.state, broker, stopped))
        _log.info("broker is stopping", broker=broker_id, remaining=len(remaining))
        return remaining

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Judge each proposal by itself, and make those true that are accepted."""
        self.require(request.broker_id, request.broker_epoch)
        decisions: dict[TopicPartition, LeaderAndIsr] = {}
        refused: dict[tuple[bytes, int], KafkaError] = {}
        behind: list[TopicPartition] = []
        for topic in request.topics:
            for data in topic.partitions:
                proposal = Proposal.of(request.broker_id, data)
                try:
                    at = self._tenure.state.find(topic.topic_id, data.partition_index)
                    decision = self._accepted(at, proposal)
                except KafkaError as error:
                    refused[topic.topic_id, data.partition_index] = error
                    if error.code in _BEHIND:
                        behind.append(at)
                    continue
                if decision is not None:
                    decisions[at] = decision
        await self._tenure.persist(decisions)
        if decisions:
            self._tenure.show(list(decisions))
        if behind:
            self._tenure.remind(request.broker_id, behind)
        return self._answer(request, refused)

    def _accepted(self, at: TopicPartition, proposal: Proposal) -> LeaderAndIsr | None:
        state = self._tenure.state
        decision = accepted(state, state.partition(at), proposal)
        if decision is None:
            return None
        return replace(decision, controller_epoch=self._tenure.sender.epoch)

    def _answer(
        self, request: AlterPartitionRequest, refused: dict[tuple[bytes, int], KafkaError]
    ) -> AlterPartitionResponse:
        return AlterPartitionResponse(
            topics=[
                TopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionResponse(
                            partition_index=data.partition_index,
                            error_code=refused[topic.topic_id, data.partition_index].code,
                        )
                        if (topic.topic_id, data.partition_index) in refused
                        else self._state(topic.topic_id, data.partition_index)
                        for data in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _state(self, topic_id: bytes, index: int) -> PartitionResponse:
        state = self._tenure.state
        decided = state.partition(state.find(topic_id, index)).state
        assert decided is not None
        return PartitionResponse(
            partition_index=index,
            leader_id=decided.leader,
            leader_epoch=decided.leader_epoch,
            isr=list(decided.isr),
            partition_epoch=decided.partition_epoch,
        )
