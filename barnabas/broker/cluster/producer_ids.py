"""Producer ids, unique in the cluster: brokers allocate them in blocks from the metadata store."""

import asyncio

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.znodes import ProducerIdBlock, ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    StoreError,
)
from barnabas.coordinator.transaction.producer_ids import ProducerIdNeeded
from barnabas.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
_REFILL_BELOW = BLOCK_SIZE // 10
RETRY_S = 1.0
"""Seconds until another attempt to allocate a spare block."""
_log = get_logger(__name__)


class ProducerIdBlocks:
    """The blocks of producer ids of this broker.

    A spare block is allocated before the current one ends, so a short loss of the store has no
    effect. Ids that were not used before a restart are lost.
    """

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._current = range(0)
        self._spare = range(0)
        self._turn = asyncio.Lock()
        self._soon: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def have_spare(self) -> None:
        """Allocate a first block in the background.

        A broker that has not used an id yet must be able to do so while the store is down.
        """
        loop = asyncio.get_running_loop()
        if not self._spare and self._soon is None and loop.time() >= self._not_before:
            self._soon = loop.create_task(self._take_spare())

    def close(self) -> None:
        """Allocate no more blocks in advance."""
        if self._soon is not None:
            self._soon.cancel()

    def take(self) -> int:
        """Return an unused producer id; raise ProducerIdNeeded if the broker has none."""
        if not self._current:
            self._current, self._spare = self._spare, range(0)
            if not self._current:
                raise ProducerIdNeeded
        producer_id = self._current[0]
        self._current = self._current[1:]
        if len(self._current) <= _REFILL_BELOW:
            self.have_spare()
        return producer_id

    async def next_id(self) -> int:
        """Do the same as `take`, but allocate a block if needed. Raises the errors of `refill`."""
        while True:
            try:
                # The spare block is allocated in the background, because the store may be silent.
                return self.take()
            except ProducerIdNeeded:
                await self.refill()

    async def refill(self) -> None:
        """Allocate a block if the current one is used up.

        Raises COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while the store is unavailable.
        """
        async with self._turn:
            if self._current or self._spare:
                return
            try:
                self._spare = await self.allocate(self._broker_id)
            except StoreError as cause:
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    "No producer id can be allocated while the metadata store is unavailable.",
                ) from cause

    async def _take_spare(self) -> None:
        try:
            async with self._turn:
                if not self._spare:
                    self._spare = await self.allocate(self._broker_id)
        except (StoreError, ZnodeError) as error:
            # The next `take` tries again.
            self._not_before = asyncio.get_running_loop().time() + RETRY_S
            _log.warning("spare block of producer ids not allocated", reason=repr(error))
        finally:
            self._soon = None

    async def allocate(self, broker_id: int) -> range:
        """Allocate a block of ids for a broker, this one or another; raises StoreError."""
        while True:
            try:
                data, stat = await self._store.get(znodes.PRODUCER_ID_BLOCK)
                first = znodes.decode_producer_id_block(data).last + 1
                block = _block(broker_id, first)
                await self._store.set(znodes.PRODUCER_ID_BLOCK, block, stat.version)
            except NoNode:
                first = 0
                try:
                    await self._store.create(znodes.PRODUCER_ID_BLOCK, _block(broker_id, first))
                except NodeExists:
                    continue
            except BadVersion:
                continue
            return range(first, first + BLOCK_SIZE)


def _block(broker_id: int, first: int) -> bytes:
    block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
    return znodes.encode_producer_id_block(block)
