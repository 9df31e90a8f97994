"""Controlled shutdown: before a broker stops, other brokers lead what it led."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from barnabas.broker.controller.reach import ToController
from barnabas.broker.controller.state import TopicPartition
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.config.shutdown_keys import ShutdownKeys
from barnabas.protocol.errors import KafkaError

_log = get_logger(__name__)


class Handover:
    """Asks the controller for leave to stop, as often as the configuration allows."""

    def __init__(
        self,
        broker_id: int,
        reach: ToController,
        cache: MetadataCache,
        config: Callable[[], ShutdownKeys],
    ) -> None:
        self._broker_id = broker_id
        self._reach = reach
        self._cache = cache
        self._config = config
        self._news = asyncio.Event()
        cache.on_change(self._news.set)

    async def run(self, broker_epoch: int) -> None:
        """Returns when there is nothing more to hand over, nobody to take it, or no patience left.

        What is not handed over has no leader until the broker's registration is gone.
        """
        config = self._config()
        if not config.controlled_shutdown_enable:
            return
        for _ in range(config.controlled_shutdown_max_retries):
            if self._cache.brokers.keys() <= {self._broker_id}:
                return
            asked = self._cache.controller_id
            try:
                remaining = await self._reach.controlled_shutdown(broker_epoch)
            except KafkaError as error:
                _log.info("leaderships not handed over", reason=str(error))
                await self._pause(partial(self._still_asking, asked))
                continue
            if not self._may_move(remaining):
                return
            _log.info("leaderships remain", partitions=len(remaining))
            await self._pause(partial(self._may_move, remaining))

    def _still_asking(self, controller_id: int) -> bool:
        """Whether nobody else has come into office."""
        return self._cache.controller_id == controller_id

    def _may_move(self, partitions: Sequence[TopicPartition]) -> bool:
        """Whether one of them has a replica on another broker that is alive."""
        return any(
            set(known.replicas) - set(known.offline_replicas) - {self._broker_id}
            for at in partitions
            if (known := self._cache.partition(*at)) is not None
        )

    async def _pause(self, useful: Callable[[], bool]) -> None:
        """Wait before the next attempt, no longer than that is of use."""
        seconds = self._config().controlled_shutdown_retry_backoff_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while useful():
                    self._news.clear()
                    await self._news.wait()
