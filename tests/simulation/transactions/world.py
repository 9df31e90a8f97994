"""One seed, one history: clients, brokers, and a network that delays, loses and reorders
messages."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any

from barnabas.coordinator.soon import ignore
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import LAST_CLIENT_EPOCH
from barnabas.coordinator.transaction.metadata import TransactionMetadata as Logged
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.records import TransactionRecord, encode_record
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.transactions.audit import Audit
from tests.simulation.transactions.broker import Brokers, Unfinished
from tests.simulation.transactions.client import TIMEOUT_MS, Client, LostError
from tests.simulation.transactions.two_phase import Handover, processes
from tests.support.coordinator.harness import WALL_MS

EVENTS = 4000
"""The number of events after which a history has failed to end."""


class CrashedError(BaseException):
    """The process ends here, in the middle of its work."""


class Where(Enum):
    """The party whose crash loses a message."""

    COORDINATOR = "coordinator"
    LEADER = "leader"
    CLIENT = "client"


@dataclass(frozen=True)
class Message:
    """An action that happens when the seed picks it."""

    what: str
    arrive: Callable[[], None]
    where: Where
    may_be_lost: bool = True


class World:
    """The whole state of a history, and its next event. Call `run` once."""

    def __init__(
        self,
        seed: int,
        *,
        guarded: bool = True,
        bumps: bool = True,
        faults: bool = True,
        crash_at: int | None = None,
        two_phase: bool = False,
    ) -> None:
        """`guarded` enables the guard of older connections, `bumps` whether clients take another
        epoch for the newer protocol; `crash_at` is the number of the write after which all brokers
        crash. With `two_phase`, tasks and drivers take the place of the clients (KIP-939)."""
        self.rng = rng = Random(seed)
        self.places: list[TopicPartition] = [("t", index) for index in range(rng.randint(1, 3))]
        self.registers = rng.random() < 0.3
        self.bumps = bumps
        self.abandons = 0.1 if faults else 0.0
        self.gives_up = rng.choice((0.0, 0.5))
        self._faults = faults
        self._crash_at = crash_at
        self._versions = rng.choice(([0], [1], [2], [2], [1, 2], [0, 1, 2]))
        self._two_phase = two_phase
        self.handover = Handover()
        if two_phase and 2 not in self._versions:
            self._versions = [2]
        self._inbox: list[Message] = []
        self._stalled: list[Message] = []
        """Requests that the network holds for very long."""
        self._work: set[asyncio.Future[Any]] = set()
        self._connections = 0
        self._crashed = False
        self._moves = 0
        self._quiet = False
        self.writes = 0
        self._trace = hashlib.sha256()
        self.brokers = Brokers(
            self.places,
            settings=TransactionSettings(fences_older_connections=guarded),
            wait_ms=rng.choice((0, 100)),
            # The seeds of histories with a known flaw are none of these.
            gathers=seed % 7 in (0, 1, 4),
            wrote=self._wrote,
            post_marker=self._post_marker,
        )
        self.brokers.version = self._versions[-1 if two_phase else 0]
        self.clients: list[Client] = []
        self.audit = Audit(self.brokers)

    @property
    def trace(self) -> str:
        """Return the history in short: the same for the same seed."""
        return self._trace.hexdigest()

    def coordinator(self) -> TransactionCoordinator:
        return self.brokers.coordinator

    def connect(self) -> int:
        """Return the number of a new connection."""
        self._connections += 1
        return self._connections

    # -- a run -----------------------------------------------------------------------------------

    async def run(self) -> "World":
        """Run all events, end the faults, and judge. Raises AssertionError."""
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self._fail(context.get("exception"), context["message"])
        )
        self._seed_log()
        await self.brokers.elect(1)
        self.clients = processes(self) if self._two_phase else self._producers()
        await self._live()
        await self._calm_down()
        self.audit.judge(self.clients)
        return self

    def _producers(self) -> list[Client]:
        names = self.rng.choice((("x", "x"), ("x", "y"), ("x",)))
        return [
            Client(self, f"c{at}", name, self.rng.randint(1, 8)) for at, name in enumerate(names)
        ]

    def _seed_log(self) -> None:
        """Create some ids near their last epoch."""
        if self.rng.random() < 0.3:
            old = Logged("x", 7, LAST_CLIENT_EPOCH - self.rng.randint(0, 3), TIMEOUT_MS, WALL_MS)
            key, value = encode_record(TransactionRecord("x", old))
            self.brokers.log.batches.append(build_batch([Record(0, WALL_MS, key, value)]))

    async def _live(self) -> None:
        for _ in range(EVENTS):
            await self._breathe()
            if self._crashed:
                await self._crash(everything=True)
            if all(each.task.done() for each in self.clients):
                return
            await self._happen()
            self.audit.look()
        raise AssertionError("the clients never come to an end")

    async def _happen(self) -> None:
        draw = self.rng.random()
        if self._stalled and draw < 0.04:
            self._inbox.append(self._stalled.pop(self.rng.randrange(len(self._stalled))))
        elif self._inbox and draw < 0.75:
            self._arrive(self._inbox.pop(self.rng.randrange(len(self._inbox))))
        elif draw < 0.85 or not self._faults:
            self._pass_ms(self.rng.choice((1, 10, 100)))
            self._give_up_waiting()
        else:
            await self._disturb()

    async def _disturb(self) -> None:
        log, draw = self.brokers.log, self.rng.randrange(12)
        if draw < 3:
            log.held = True
        elif draw < 7:
            log.release()
            log.refusal = None
        elif draw == 7:
            log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif draw == 8:
            self.brokers.version = self.rng.choice(self._versions)
        elif draw == 9:
            self._pass_ms(self.rng.choice((1000, TIMEOUT_MS)))
            await self.brokers.coordinator.abort_timed_out()
        elif draw == 10 and self.rng.random() < 0.3:
            await self._crash(everything=self.rng.random() < 0.5)

    def _pass_ms(self, milliseconds: int) -> None:
        self._note(f"{milliseconds} ms")
        with suppress(CrashedError):
            self.brokers.time.pass_ms(milliseconds)

    def _give_up_waiting(self) -> None:
        """Let a client time out, or close its connection."""
        client = self.rng.choice(self.clients)
        chance = 0.3 if self._inbox else 1.0
        if client.waits is not None and not client.waits.done() and self.rng.random() < chance:
            self._note(f"{client.name} gives up waiting")
            client.waits.set_exception(LostError())

    async def _breathe(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def _crash(self, *, everything: bool) -> None:
        """Crash the coordinator's broker, perhaps with all partitions, and elect another one."""
        self._note(f"crash, {everything=}")
        self._crashed = False
        for each in self._work:
            each.cancel()
        await self._breathe()
        if everything:
            self._forget(Where.COORDINATOR, Where.LEADER)
            for partition in self.brokers.partitions.values():
                partition.reload()
        else:
            self._forget(Where.COORDINATOR)
        log = self.brokers.log
        lost = sum(1 for _, _ in log.waiters)
        surviving = self.rng.randint(0, lost)
        self._moves += not everything
        # Every other coordinator whose partitions live on resigns in order.
        crashed = everything or self._moves % 2 == 0
        with suppress(CrashedError):
            await self.brokers.elect(surviving, crashed=crashed)
        await self._breathe()

    def _forget(self, *dead: Where) -> None:
        for messages in (self._inbox, self._stalled):
            messages[:] = [each for each in messages if each.where not in dead]

    async def _calm_down(self) -> None:
        """End the faults, and let time pass."""
        self._quiet = True
        self._inbox += self._stalled
        self._stalled.clear()
        for each in self.clients:
            each.task.cancel()
        self.brokers.log.refusal = None
        self.brokers.log.release()
        for _ in range(20):
            await self._breathe()
            if self._crashed:
                await self._crash(everything=True)
            while self._inbox:
                self.audit.look()
                self._arrive(self._inbox.pop(0))
                await self._breathe()
            self._pass_ms(TIMEOUT_MS)
            with suppress(CrashedError):
                await self.brokers.coordinator.abort_timed_out()
                self._abort_timeless()
            self.audit.look()
        for work in self._work:
            work.cancel()
        await self._breathe()

    def _abort_timeless(self) -> None:
        """Abort, as an operator does, what no driver has ended."""
        for txn in list(self.brokers.coordinator.transactions()):
            if txn.state is TransactionState.ONGOING and not txn.times_out:
                key, ask = txn.transactional_id, self.brokers.coordinator.init_producer_id
                request = InitProducerId(key, TIMEOUT_MS, None, "operator")
                with suppress(KafkaError):
                    ignore(self.handover.aborts(key, partial(ask, request)))

    # -- the network -----------------------------------------------------------------------------

    def post_request(
        self,
        client: Client,
        what: str,
        ask: Callable[[int], Any],
        connection: int,
        *,
        to_leader: bool,
    ) -> None:
        waits = client.waits

        def arrive() -> None:
            work = asyncio.ensure_future(_answered(lambda: ask(connection)))
            self._work.add(work)
            work.add_done_callback(lambda done: self._answer(client, what, waits, done))

        where = Where.LEADER if to_leader else Where.COORDINATOR
        self._post(Message(f"{client.name} {what}", arrive, where))

    def _answer(
        self,
        client: Client,
        what: str,
        waits: "asyncio.Future[Any] | None",
        done: "asyncio.Future[Any]",
    ) -> None:
        self._work.discard(done)
        if done.cancelled():
            return
        if (fault := done.exception()) is not None:
            self._fail(fault)
            return
        result = done.result()
        self.audit.answered(client, what, result)

        def arrive() -> None:
            if waits is None or waits.done():
                return
            if isinstance(result, KafkaError):
                waits.set_exception(result)
            else:
                waits.set_result(result)

        self._post(Message(f"{client.name} {what} -> {_text(result)}", arrive, Where.LEADER))

    def _post_marker(self, unfinished: Unfinished, place: TopicPartition) -> None:
        def arrive() -> None:
            draw = 1.0 if self._quiet or not self._faults else self.rng.random()
            if draw < 0.3:
                # The partition has no leader; or it has one, but its response is lost.
                if draw < 0.1:
                    self.brokers.write_marker(unfinished, place)
                self._post_marker(unfinished, place)
            elif self.brokers.write_marker(unfinished, place):
                self.brokers.marked(unfinished, place)

        what = f"marker {unfinished.markers.producer} {place}"
        self._post(Message(what, arrive, Where.LEADER, may_be_lost=False))

    def pause(self, where: Where = Where.CLIENT) -> "asyncio.Future[None]":
        """Wait until the seed continues."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._post(Message("pause", lambda: _resolve(future), where, may_be_lost=False))
        return future

    def way_back(self) -> "asyncio.Future[None]":
        """Wait for a response between brokers."""
        return self.pause(Where.LEADER)

    def _post(self, message: Message) -> None:
        self._inbox.append(message)

    def _arrive(self, message: Message) -> None:
        if self._faults and not self._quiet and message.may_be_lost:
            draw = self.rng.random()
            if draw < 0.06:
                self._note(f"lost: {message.what}")
                return
            if draw < 0.12:
                self._note(f"stalled: {message.what}")
                self._stalled.append(message)
                return
        self._note(message.what)
        with suppress(CrashedError):
            message.arrive()

    # -- writes ----------------------------------------------------------------------------------

    def _wrote(self, where: str) -> None:
        self.writes += 1
        self._note(f"write to {where}")
        if self._crashed or self.writes == self._crash_at:
            self._crashed = True
            raise CrashedError

    def _note(self, what: str) -> None:
        self._trace.update(what.encode() + b"\n")
        self.audit.story.append(what)

    def _fail(self, fault: BaseException | None, why: str = "") -> None:
        """Note an unexpected error, unless the process has died."""
        if not isinstance(fault, CrashedError):
            self.brokers.faults.append(fault or RuntimeError(why))


async def _answered(ask: Callable[[], Any]) -> Any:
    """Return the answer, or the error that it consists of."""
    try:
        answer = ask()
        return await answer if asyncio.isfuture(answer) or asyncio.iscoroutine(answer) else answer
    except KafkaError as error:
        return error


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _text(result: Any) -> str:
    return result.code.name if isinstance(result, KafkaError) else str(result)
