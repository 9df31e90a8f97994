"""The chore that brings leaderships back into balance, on the broker that is controller."""

from collections.abc import Callable

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.rounds import Rounds
from barnabas.config.controller_keys import ControllerKeys


class LeaderBalance:
    """Looks at intervals whether brokers lead what they should."""

    def __init__(self, controller: Controller, config: Callable[[], ControllerKeys]) -> None:
        self._admin = ReplicaAdmin(controller)
        self._config = config

    def schedule(self, rounds: Rounds) -> None:
        """Put it on its round."""
        rounds.every(
            "leader balance",
            lambda: self._config().leader_imbalance_check_interval_seconds * 1000,
            self.balance,
        )

    async def balance(self) -> None:
        """Give leaderships back, where this broker is controller and wants it."""
        config = self._config()
        if config.auto_leader_rebalance_enable:
            await self._admin.balance_leaders(config.leader_imbalance_per_broker_percentage)
