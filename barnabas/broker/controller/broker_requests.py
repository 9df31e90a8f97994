"""Requests of brokers to the active controller: ISR changes (AlterPartition) and
ControlledShutdown."""

from dataclasses import replace

from barnabas.broker.cluster.znodes import BrokerInfo, LeaderAndIsr
from barnabas.broker.controller.active_controller import ActiveController
from barnabas.broker.controller.rules.isr_changes import IsrProposal, apply_proposal
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResponse,
    TopicResponse,
)
from barnabas.protocol.topic_partition import TopicPartition

_BEHIND = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION)
"""Errors of a leader that has missed a decision; the controller sends the state again."""
_log = get_logger(__name__)


class BrokerRequests:
    """The handler of broker requests.

    All methods raise STALE_BROKER_EPOCH for another incarnation of a broker than the registered
    one, and BROKER_NOT_AVAILABLE for a broker that is not registered.
    """

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    def require(self, broker_id: int, broker_epoch: int) -> BrokerInfo:
        """Return the registered broker that sent the request."""
        broker = self._active.state.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if broker_epoch != broker.epoch:
            # The request is from an earlier run, or this controller has not seen the new
            # registration.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return broker

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships away from a broker that stops, and remove it from ISRs where possible.

        Return the partitions that it still leads although other brokers have replicas.
        """
        active, broker = self._active, self.require(broker_id, broker_epoch)
        active.state.leaving.add(broker_id)
        shared = [
            at
            for at in active.state.on_brokers({broker_id})
            if len(active.state.partition(at).replicas) > 1
        ]
        await active.send_changes(await active.decide(shared))
        remaining: list[TopicPartition] = []
        stopped: list[TopicPartition] = []
        for at in shared:
            leads = active.state.partition(at).leader == broker_id
            (remaining if leads else stopped).append(at)
        if stopped:
            active.send(broker_id, active.messages.stop_replicas(active.state, broker, stopped))
        _log.info("broker shutting down", broker=broker_id, remaining=len(remaining))
        return remaining

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Judge each proposal separately and apply those that are accepted."""
        self.require(request.broker_id, request.broker_epoch)
        each = self._active.slicer.each
        decisions: dict[TopicPartition, LeaderAndIsr] = {}
        refused: dict[tuple[bytes, int], ErrorCode] = {}
        behind: list[TopicPartition] = []
        async for topic in each(request.topics):
            async for data in each(topic.partitions):
                try:
                    proposal = IsrProposal.of(request.broker_id, data)
                    at = self._active.state.find(topic.topic_id, data.partition_index)
                    decision = self._accepted(at, proposal)
                except KafkaError as error:
                    # Not the error itself: its traceback is a cycle, which costs the collector.
                    refused[topic.topic_id, data.partition_index] = error.code
                    if error.code in _BEHIND:
                        behind.append(at)
                    continue
                if decision is not None:
                    decisions[at] = decision
        await self._active.persist(decisions)
        if decisions:
            await self._active.send_metadata(list(decisions))
        if behind:
            await self._active.resend_leaders(request.broker_id, behind)
        response = AlterPartitionResponse()
        async for topic in each(request.topics):
            answer = TopicResponse(topic_id=topic.topic_id, partitions=[])
            response.topics.append(answer)
            async for data in each(topic.partitions):
                code = refused.get((topic.topic_id, data.partition_index))
                answer.partitions.append(
                    self._state(topic.topic_id, data.partition_index)
                    if code is None
                    else PartitionResponse(partition_index=data.partition_index, error_code=code)
                )
        return response

    def _accepted(self, at: TopicPartition, proposal: IsrProposal) -> LeaderAndIsr | None:
        state = self._active.state
        decision = apply_proposal(state, state.partition(at), proposal)
        if decision is None:
            return None
        return replace(decision, controller_epoch=self._active.messages.epoch)

    def _state(self, topic_id: bytes, index: int) -> PartitionResponse:
        state = self._active.state
        decided = state.partition(state.find(topic_id, index)).state
        assert decided is not None
        return PartitionResponse(
            partition_index=index,
            leader_id=decided.leader,
            leader_epoch=decided.leader_epoch,
            isr=list(decided.isr),
            partition_epoch=decided.partition_epoch,
        )
