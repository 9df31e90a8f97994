"""Producer ids, unique in the cluster: brokers take them in blocks from the metadata store."""

import asyncio

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    StoreError,
)
from barnabas.broker.metadata.znodes import ProducerIdBlock
from barnabas.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
_REFILL_BELOW = BLOCK_SIZE // 10


class ProducerIdBlocks:
    """Hands out ids of this broker's block.

    A spare block is taken before the current one ends, so that a short loss of the store goes
    unnoticed. Ids of a block that were not handed out before a restart are never used.
    """

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._current = range(0)
        self._spare = range(0)
        self._turn = asyncio.Lock()

    async def next_id(self) -> int:
        """A producer id that nobody had before.

        Raises COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while the store is out of reach.
        """
        async with self._turn:
            if len(self._current) <= _REFILL_BELOW and not self._spare:
                await self._refill()
            if not self._current:
                self._current, self._spare = self._spare, range(0)
            producer_id = self._current[0]
            self._current = self._current[1:]
            return producer_id

    async def _refill(self) -> None:
        try:
            self._spare = await self._take_block()
        except StoreError as cause:
            if not self._current:
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    "No producer id can be given while the metadata store is out of reach.",
                ) from cause

    async def _take_block(self) -> range:
        while True:
            try:
                data, stat = await self._store.get(znodes.PRODUCER_ID_BLOCK)
                first = znodes.decode_producer_id_block(data).last + 1
                block = self._block(first)
                await self._store.set(znodes.PRODUCER_ID_BLOCK, block, stat.version)
            except NoNode:
                first = 0
                try:
                    await self._store.create(znodes.PRODUCER_ID_BLOCK, self._block(first))
                except NodeExists:
                    continue
            except BadVersion:
                continue
            return range(first, first + BLOCK_SIZE)

    def _block(self, first: int) -> bytes:
        block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
        return znodes.encode_producer_id_block(block)
