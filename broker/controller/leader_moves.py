"""Leaderships that are moved on request, or to bring them back into balance, during one tenure."""

from collections.abc import Sequence

from barnabas.broker.controller.election import CAREFUL
from barnabas.broker.controller.preferred import (
    elect_preferred,
    elect_unclean,
    out_of_balance,
)
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.controller.topic_admin import Delivery
from barnabas.broker.metadata.znodes import LeaderAndIsr
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError

_log = get_logger(__name__)


class LeaderMoves:
    """Elections for another reason than that a leader is lost."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    async def elect(
        self, wanted: Sequence[TopicPartition] | None, *, unclean: bool
    ) -> tuple[dict[TopicPartition, KafkaError | None], Delivery]:
        """Elect the preferred leaders, or any leader, of the partitions that are named, or of all.

        Each election succeeds, with None, or fails alone.
        """
        answers: dict[TopicPartition, KafkaError | None] = {}
        decisions = {}
        for at in self._tenure.state.partitions() if wanted is None else wanted:
            try:
                decisions[at] = self._election(at, unclean)
                answers[at] = None
            except KafkaError as error:
                answers[at] = error
        await self._tenure.persist(decisions)
        return answers, self._tenure.tell(list(decisions)) if decisions else []

    async def balance(self, percentage: int) -> None:
        """Give leaderships back where more than `percentage` of a broker's are led elsewhere."""
        wanted = out_of_balance(self._tenure.state, percentage)
        if wanted:
            _log.info("leaders return to their preferred brokers", partitions=len(wanted))
        await self.elect(wanted, unclean=False)

    def _election(self, at: TopicPartition, unclean: bool) -> LeaderAndIsr:
        state = self._tenure.state
        topic = state.topics.get(at.topic)
        if topic is None:
            text = f"No such topic as {at.topic}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        partition = topic.partitions.get(at.partition)
        if partition is None:
            text = f"No such partition as {at.topic}-{at.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elect = elect_unclean if unclean else elect_preferred
        situation = state.situation(partition, CAREFUL)
        return elect(partition.replicas, partition.state, situation, self._tenure.sender.epoch)
