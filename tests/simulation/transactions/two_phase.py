"""Two-phase commit in the simulation (KIP-939).

Tasks write transactions and hand them over; drivers keep and end them. Tasks go on as zombies, and
drivers compete.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.coordinator.soon import Soon
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.producers import Initialised, InitProducerId
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.simulation.transactions.client import TIMEOUT_MS, Client, GaveUpError, Transaction

if TYPE_CHECKING:
    from tests.simulation.transactions.world import World

A = TypeVar("A")
SHORT_MS = TIMEOUT_MS // 5
PATIENCE = 50
"""The number of pauses in which a driver waits for the first transaction."""
_AGAIN = ErrorCode.UNSUPPORTED_VERSION
"""The answer below `transaction.version` 2, which an operator may raise again."""


class Prepared(Transaction):
    """A transaction that a task has written and a driver ends."""

    def __init__(self, name: str, transactional_id: str, *, two_phase: bool) -> None:
        super().__init__(name, newer=True)
        self.transactional_id = transactional_id
        self.producer: Producer | None = None
        self.timeless = two_phase
        """Whether time can no longer abort it, as a client knows."""
        self.kept = False
        """Whether a driver knows that it is kept."""
        self.may_commit = False
        """Whether a request that commits it was sent."""
        self.may_abort = False
        """Whether a request that aborts it was sent."""

    def tell(self, committed: bool) -> None:
        """Note an answer to EndTxn: two of them must agree."""
        assert self.told in (None, committed), f"{self.name} was told both outcomes"
        self.told = committed

    def judge(self, found: set[bool]) -> None:
        """Check that a request explains the outcome of the records."""
        assert self.may_commit or True not in found, f"{self.name} was committed by no request"
        if self.timeless:
            assert self.may_abort or False not in found, f"{self.name} was aborted by no request"


class Handover:
    """The transactions of all tasks, and those that were handed over to the drivers."""

    def __init__(self) -> None:
        self.all: list[Prepared] = []
        self.prepared: list[Prepared] = []
        self._waiting: Counter[str] = Counter()

    def begin(self, txn: Prepared) -> None:
        self.all.append(txn)
        txn.may_abort = self._waiting[txn.transactional_id] > 0

    def aborts(self, transactional_id: str, ask: Callable[[], Soon[A]]) -> Soon[A]:
        """Ask for InitProducerId without a keep: it aborts what is open, perhaps after a wait."""
        for txn in self.all:
            if txn.transactional_id == transactional_id:
                txn.may_abort = True
        answer = ask()
        if isinstance(answer, asyncio.Future):
            self._waiting[transactional_id] += 1
            answer.add_done_callback(lambda _: self._waiting.subtract([transactional_id]))
        return answer


class _Process(Client):
    """A task or a driver."""

    def __init__(self, world: "World", name: str, transactional_id: str, todo: int) -> None:
        super().__init__(world, name, transactional_id, todo)
        self._handover = world.handover

    async def _initialise(
        self,
        transactional_id: str,
        *,
        expected: Producer | None = None,
        two_phase: bool = False,
        keeps: bool = False,
    ) -> Initialised:
        timeout_ms = self._rng.choice((SHORT_MS, TIMEOUT_MS))
        request = InitProducerId(
            transactional_id, timeout_ms, expected, self.name, two_phase, keeps
        )
        coordinator = self.world.coordinator

        def ask(_connection: int) -> Soon[Initialised]:
            if keeps:
                return coordinator().init_producer_id(request)
            return self._handover.aborts(
                transactional_id, lambda: coordinator().init_producer_id(request)
            )

        what = f"init {two_phase=} {keeps=} {expected}"
        while True:
            try:
                return await self._ask(what, ask)  # type: ignore[no-any-return]
            except KafkaError as error:
                if error.code is not _AGAIN:
                    raise
                await self.world.pause()

    async def _finish(
        self, txn: Prepared | None, transactional_id: str, producer: Producer, *, commits: bool
    ) -> None:
        """End what `producer` may end; `txn` is the transaction that this is meant to be."""
        if txn is not None:
            txn.may_commit |= commits
            txn.may_abort |= not commits
        version = self._rng.choice((TV2, TV2, TV2, TV0))
        coordinator = self.world.coordinator
        await self._ask(
            f"end {commits} of {transactional_id} by {producer}, {version}",
            lambda connection: coordinator().end(
                EndTxn(transactional_id, producer, commits, version, None, connection)
            ),
        )
        if txn is not None:
            txn.tell(commits)


class Task(_Process):
    """A process that writes one transaction and hands it over; it may go on as a zombie."""

    async def _run(self) -> None:
        try:
            await self._work()
            self.ended = "done"
        except KafkaError as error:
            self.ended = error.code.name
        except GaveUpError:
            self.ended = "gave up"

    async def _work(self) -> None:
        rng, world = self._rng, self.world
        two_phase = rng.random() < 0.5
        began = await self._initialise(self.transactional_id, two_phase=two_phase)
        txn = Prepared(f"{self.name}.0", self.transactional_id, two_phase=two_phase)
        txn.producer = began.producer
        self.transactions.append(txn)
        self._handover.begin(txn)
        # An older client adds its partitions by itself.
        txn.newer = rng.random() < 0.8
        places = [rng.choice(world.places) for _ in range(rng.randint(1, 3))]
        await self._write(txn, began.producer, places)
        self._handover.prepared.append(txn)
        if rng.random() < 0.5:
            await self._haunt(txn, began.producer)

    async def _haunt(self, txn: Prepared, producer: Producer) -> None:
        """Go on with a transaction that was handed over."""
        rng = self._rng
        await self.world.pause()
        draw = rng.random()
        if draw < 0.4:
            place = rng.choice(self.world.places)
            await self._produce(txn, producer, place, f"{txn.name}.late".encode())
        elif draw < 0.7:
            was_kept = txn.kept
            await self._finish(txn, self.transactional_id, producer, commits=rng.random() < 0.5)
            assert not was_kept, f"{txn.name} was ended by the producer of its records"
        else:
            await self._initialise(self.transactional_id, expected=producer)


class Driver(_Process):
    """A process that keeps the transactions of tasks, and ends them."""

    async def _run(self) -> None:
        for _ in range(PATIENCE):
            if self._handover.prepared:
                break
            await self.world.pause()
        while self._todo and self._handover.prepared:
            self._todo -= 1
            txn = self._rng.choice(self._handover.prepared)
            try:
                await self._take(txn)
            except KafkaError as error:
                self.ended = error.code.name
        self.ended = "done"

    async def _take(self, txn: Prepared) -> None:
        rng = self._rng
        pins = rng.random() < 0.8
        kept = await self._initialise(txn.transactional_id, two_phase=pins, keeps=True)
        if kept.ongoing is None:
            return
        if kept.ongoing != txn.producer:
            other = next(
                (each for each in self._handover.all if each.producer == kept.ongoing), None
            )
            await self._finish(other, txn.transactional_id, kept.producer, commits=False)
            return
        txn.kept = True
        txn.timeless |= pins
        if rng.random() < 0.3:
            # Another driver goes on, or the same one with its next try.
            return
        await self._finish(txn, txn.transactional_id, kept.producer, commits=rng.random() < 0.6)


def processes(world: "World") -> list[Client]:
    """Return the tasks and drivers of a history."""
    rng = world.rng
    names = rng.choice((("x",), ("x", "y"), ("x", "x"), ("x", "x", "y")))
    tasks: list[Client] = [Task(world, f"t{at}", name, 1) for at, name in enumerate(names)]
    drivers = [Driver(world, f"d{at}", "", rng.randint(2, 6)) for at in range(rng.randint(1, 3))]
    return [*tasks, *drivers]
