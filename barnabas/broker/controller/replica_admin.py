"""Admin requests about replicas and leaders; each is an event of the controller."""

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from math import inf

from barnabas.broker.controller.active_controller import ActiveController
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.leader_moves import LeaderMoves
from barnabas.broker.controller.reassignments import Reassignments
from barnabas.broker.controller.rules.reassignment import Assignment
from barnabas.broker.controller.topic_admin import Delivery
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.config.controller_keys import ControllerKeys
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition

Outcomes = dict[TopicPartition, KafkaError | None]
"""None for a partition whose request succeeded."""


class ReplicaAdmin:
    """The handler of admin requests about replicas.

    All methods raise NOT_CONTROLLER, and REQUEST_TIMED_OUT if the event did not start within
    `timeout` seconds. They wait for the brokers up to the same time.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_factor_change: bool,
        timeout: float,
    ) -> Outcomes:
        """Start reassignments, or cancel them where the replicas are None."""

        async def alter(active: ActiveController) -> tuple[Outcomes, Delivery]:
            return await Reassignments(active).alter(
                wanted, allow_factor_change=allow_factor_change
            )

        return await self._controller.deliver(alter, timeout)

    async def list_reassignments(
        self, topics: Mapping[str, Container[int]] | None, *, timeout: float
    ) -> dict[TopicPartition, Assignment]:
        """Return the reassignments in progress, of the named partitions or of all.

        As in Kafka, a request without time to wait is answered: kafka-go sends 0.
        """

        async def find(active: ActiveController) -> dict[TopicPartition, Assignment]:
            return await Reassignments(active).ongoing(topics)

        return await self._controller.ask(find, timeout if timeout > 0 else inf)

    async def balance_leaders(self, percentage: int) -> None:
        """Give leaderships back where other brokers lead more than `percentage` of a broker's
        partitions, if this broker is controller. Do not wait until the brokers know."""

        async def balance(active: ActiveController) -> None:
            await LeaderMoves(active).balance(percentage)

        with suppress(KafkaError):
            # The controller of the cluster runs this task itself.
            await self._controller.ask(balance)

    async def elect_leaders(
        self, wanted: Sequence[TopicPartition] | None, *, unclean: bool, timeout: float
    ) -> Outcomes:
        """Elect preferred leaders, or any leaders, of the named partitions or of all."""

        async def elect(active: ActiveController) -> tuple[Outcomes, Delivery]:
            return await LeaderMoves(active).elect(wanted, unclean=unclean)

        return await self._controller.deliver(elect, timeout)


class LeaderBalance:
    """The periodic task that restores preferred leaders (Kafka's auto leader rebalance)."""

    def __init__(self, controller: Controller, config: Callable[[], ControllerKeys]) -> None:
        self._admin = ReplicaAdmin(controller)
        self._config = config

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the task."""
        tasks.every(
            "leader balance",
            lambda: self._config().leader_imbalance_check_interval_seconds * 1000,
            self.balance,
        )

    async def balance(self) -> None:
        """Restore preferred leaders, if this broker is controller and the task is enabled."""
        config = self._config()
        if config.auto_leader_rebalance_enable:
            await self._admin.balance_leaders(config.leader_imbalance_per_broker_percentage)
