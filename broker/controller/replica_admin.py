"""What an administrator may ask about replicas and leaders: each an event of the controller."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.leader_moves import LeaderMoves
from barnabas.broker.controller.reassigning import Reassigning
from barnabas.broker.controller.reassignment import Assignment
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.controller.topic_admin import Delivery
from barnabas.protocol.errors import KafkaError

Outcomes = dict[TopicPartition, KafkaError | None]
"""None where it was done."""


class ReplicaAdmin:
    """Everything raises NOT_CONTROLLER, and REQUEST_TIMED_OUT where its turn did not come within
    `timeout` seconds; the same time is given to the brokers to hear of what was done."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_factor_change: bool,
        timeout: float,
    ) -> Outcomes:
        """Begin to move partitions to other replicas, or, where they are None, go back."""

        async def alter(tenure: Tenure) -> tuple[Outcomes, Delivery]:
            return await Reassigning(tenure).alter(wanted, allow_factor_change=allow_factor_change)

        return await self._controller.deliver(alter, timeout)

    async def list_reassignments(
        self, topics: Mapping[str, Sequence[int]] | None, *, timeout: float
    ) -> dict[TopicPartition, Assignment]:
        """What is being reassigned, of all or of the partitions that are named."""

        async def find(tenure: Tenure) -> dict[TopicPartition, Assignment]:
            return Reassigning(tenure).ongoing(topics)

        return await self._controller.ask(find, timeout)

    async def balance_leaders(self, percentage: int) -> None:
        """If this broker is controller: give leaderships back where more than `percentage` of a
        broker's are led by others. Nobody waits until the brokers know."""

        async def balance(tenure: Tenure) -> None:
            await LeaderMoves(tenure).balance(percentage)

        with suppress(KafkaError):
            # Whoever is controller otherwise has a chore of its own.
            await self._controller.ask(balance)

    async def elect_leaders(
        self, wanted: Sequence[TopicPartition] | None, *, unclean: bool, timeout: float
    ) -> Outcomes:
        """Elect preferred leaders, or any leaders, of all partitions or of those named."""

        async def elect(tenure: Tenure) -> tuple[Outcomes, Delivery]:
            return await LeaderMoves(tenure).elect(wanted, unclean=unclean)

        return await self._controller.deliver(elect, timeout)
