"""A producer of random transactions, for the workloads W1, W3, W5 and W6."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from barnabas.client.cluster import TRANSACTION
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import Partition
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.recorder import OperationFailed
from barnabas.verify.wire.transactor import Transactor

PAUSE: Final = 0.005

Choose = Callable[[Random, str], list[tuple[Partition, list[Sent]]]]
"""A function that chooses the batches of a transaction."""


class ProducerLoop:
    """A producer that continues until the run stops, also after errors."""

    def __init__(
        self,
        context: Context,
        name: str,
        transactional_id: str,
        number: int,
        choose: Choose,
        *,
        aborts: float = 0.1,
        late: float = 0.3,
    ) -> None:
        """`aborts` is the share of aborted transactions, `late` that of late batches after them."""
        self._context = context
        self._name = name
        self._choose = choose
        self._aborts = aborts
        self._late = late
        self._chance = context.random(name)
        self._cluster = context.cluster()
        self._late_cluster = context.cluster()
        self._old: Connection | None = None
        self.transactor: Transactor = context.transactor(
            self._cluster, name, transactional_id, number
        )
        self._count = 0
        self._must_init = True
        self._ended: tuple[str, ProducerIdAndEpoch] | None = None
        """The last transaction, if its commit is to arrive a second time."""

    async def run(self) -> None:
        while not self._context.stopping.is_set():
            await self.step()
            await self._context.pause(PAUSE * self._chance.random())
        await self.rest()

    async def rest(self) -> None:
        """Abort an open transaction, if there is one."""
        if self._must_init:
            await self.take_over()

    async def step(self) -> None:
        """Run one transaction, or take over the id if that is necessary."""
        try:
            if self._must_init:
                await self.take_over()
            else:
                await self._transact()
        except OperationFailed:
            self._must_init = True
            self._ended = None

    async def take_over(self) -> None:
        """Initialise the producer again, which aborts an open transaction."""
        try:
            if self._context.options.delayed_ends:
                await self._open_late_connection()
            await self.transactor.init()
            self._must_init = False
        except OperationFailed:
            await self._context.pause(0.1)

    async def _open_late_connection(self) -> None:
        """Open a connection that is older than the one for all later requests."""
        try:
            self._old = await self._late_cluster.coordinator_connection(
                self.transactor.id, TRANSACTION
            )
        except (KafkaError, BrokerUnreachable, TimeoutError):
            self._old = None
        await self._cluster.close()

    async def _transact(self) -> None:
        transactor, chance = self.transactor, self._chance
        self._count += 1
        name = f"{self._name}-{self._count}"
        transactor.begin(name)
        batches = self._choose(chance, self._name)
        identity = transactor.identity
        if transactor.newer and len({at for at, _ in batches}) == len(batches):
            await self._send_at_once(batches)
        else:
            for at, records in batches:
                await transactor.send(at, records)
                await self._end_late()
        commit = chance.random() >= self._aborts
        last = batches[-1][0]
        sequence = transactor.next_sequence(last)
        await transactor.end(commit=commit)
        if commit and not transactor.newer and chance.random() < 0.3:
            self._ended = name, identity
        if not commit and chance.random() < self._late:
            sent = Sent(self._context.value(self._name), "late")
            refused = await transactor.send_late(
                self._late_cluster, name, last, sent, identity, sequence
            )
            self._must_init = not refused and not transactor.newer

    async def _send_at_once(self, batches: Sequence[tuple[Partition, list[Sent]]]) -> None:
        """Send to several partitions concurrently; raise the first error after all responses."""
        sends = (self.transactor.send(at, records) for at, records in batches)
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _end_late(self) -> None:
        ended, self._ended = self._ended, None
        is_old = self._old is not None and self._old.is_open
        if ended is not None and is_old and self._context.options.delayed_ends:
            await self.transactor.end_late(self._late_cluster, ended[1], ended[0])


def by_chance(
    context: Context, partitions: Sequence[Partition], *, keys: int = 0, most: int = 8
) -> Choose:
    """Return a choice of 1 to `most` batches of 1 to 3 records; with `keys` different keys."""

    def choose(chance: Random, proc: str) -> list[tuple[Partition, list[Sent]]]:
        return [
            (
                chance.choice(partitions),
                [
                    Sent(context.value(proc), f"k{chance.randrange(keys)}" if keys else None)
                    for _ in range(chance.randint(1, 3))
                ],
            )
            for _ in range(chance.randint(1, most))
        ]

    return choose
