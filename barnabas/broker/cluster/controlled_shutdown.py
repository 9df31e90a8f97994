"""Controlled shutdown: other brokers take over leaderships before a broker stops."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.controller_client import ControllerClient
from barnabas.broker.observability.logging import get_logger
from barnabas.config.controller_keys import ShutdownKeys
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_log = get_logger(__name__)


class ControlledShutdown:
    """The controlled shutdown of this broker, with as many requests as the configuration allows."""

    def __init__(
        self,
        broker_id: int,
        controller: ControllerClient,
        cache: MetadataCache,
        config: Callable[[], ShutdownKeys],
        epoch: Callable[[], int],
    ) -> None:
        """`epoch` returns the broker's epoch: a broker that was paused registers again while it
        stops."""
        self._broker_id = broker_id
        self._epoch = epoch
        self._controller = controller
        self._cache = cache
        self._config = config
        self._metadata_changed = asyncio.Event()
        cache.on_change(self._metadata_changed.set)

    async def run(self) -> None:
        """Return when no leadership is left to move, no broker can take one, or all retries are
        used.

        A partition that was not moved has no leader until the broker's registration has ended.
        """
        config = self._config()
        if not config.controlled_shutdown_enable:
            return
        for _ in range(config.controlled_shutdown_max_retries):
            if self._cache.brokers.keys() <= {self._broker_id}:
                return
            self._metadata_changed.clear()
            try:
                remaining = await self._controller.controlled_shutdown(self._epoch())
            except KafkaError as error:
                # Metadata come from a new controller, or from one that sees a new registration.
                _log.info("leaderships not moved", reason=str(error))
                await self._pause(lambda: not self._metadata_changed.is_set())
                continue
            if not self._may_move(remaining):
                return
            _log.info("leaderships remain", partitions=len(remaining))
            await self._pause(partial(self._may_move, remaining))

    def _may_move(self, partitions: Sequence[TopicPartition]) -> bool:
        """Return whether another registered broker has a replica of one of these partitions."""
        return any(
            set(known.replicas) - set(known.offline_replicas) - {self._broker_id}
            for at in partitions
            if (known := self._cache.partition(*at)) is not None
        )

    async def _pause(self, useful: Callable[[], bool]) -> None:
        """Wait before the next attempt, at most as long as `useful` holds."""
        seconds = self._config().controlled_shutdown_retry_backoff_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while useful():
                    self._metadata_changed.clear()
                    await self._metadata_changed.wait()
