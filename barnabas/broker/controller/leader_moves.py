"""Elections on request or for balance, by the active controller."""

from collections.abc import Sequence

from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.active_controller import ActiveController
from barnabas.broker.controller.rules.leader_election import CLEAN_ONLY
from barnabas.broker.controller.rules.preferred_leaders import (
    elect_preferred,
    elect_unclean,
    out_of_balance,
)
from barnabas.broker.controller.topic_admin import Delivery
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_log = get_logger(__name__)


class LeaderMoves:
    """The handler of elections whose cause is not a lost leader."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    async def elect(
        self, wanted: Sequence[TopicPartition] | None, *, unclean: bool
    ) -> tuple[dict[TopicPartition, KafkaError | None], Delivery]:
        """Elect the preferred leaders, or any leaders, of the named partitions or of all.

        Each election succeeds, with None, or fails separately.
        """
        answers: dict[TopicPartition, KafkaError | None] = {}
        decisions = {}
        everything = self._active.state.partitions()
        async for at in self._active.slicer.each(everything if wanted is None else wanted):
            try:
                decisions[at] = self._election(at, unclean)
                answers[at] = None
            except KafkaError as error:
                answers[at] = error.with_traceback(None)
        await self._active.persist(decisions)
        return answers, await self._active.send_changes(list(decisions)) if decisions else []

    async def balance(self, percentage: int) -> None:
        """Elect preferred leaders for brokers that lack more than `percentage` of their
        leaderships."""
        wanted = out_of_balance(self._active.state, percentage)
        if wanted:
            _log.info("preferred leaders elected", partitions=len(wanted))
        await self.elect(wanted, unclean=False)

    def _election(self, at: TopicPartition, unclean: bool) -> LeaderAndIsr:
        state = self._active.state
        topic = state.topics.get(at.topic)
        if topic is None:
            text = f"No such topic as {at.topic}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        partition = topic.partitions.get(at.partition)
        if partition is None:
            text = f"No such partition as {at.topic}-{at.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elect = elect_unclean if unclean else elect_preferred
        election_inputs = state.election_inputs(partition, CLEAN_ONLY)
        return elect(
            partition.replicas, partition.state, election_inputs, self._active.messages.epoch
        )
