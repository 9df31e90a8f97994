"""The levers of a test cluster: faults on links, requests and clocks."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, permutations
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.testing.active_faults import Call
from barnabas.testing.arguments import check_number, check_seconds, check_text
from barnabas.testing.calls import TIMEOUT, refuse_running_loop
from barnabas.testing.lifecycle import BROKERS, ClusterLifecycle
from barnabas.testing.processes import BrokerDied, ProcessNode

if TYPE_CHECKING:
    from barnabas.testing.node import Node

T = TypeVar("T")
L = TypeVar("L", bound="Lever")


class ClusterLevers(ClusterLifecycle):
    """The levers of a cluster, which take milliseconds and wait for no client."""

    # -- links -----------------------------------------------------------------------------------

    def partition(self, *groups: Iterable[int], one_way: bool = False) -> None:
        """Cut the links between brokers of different groups; a broker in no group keeps its links.

        With `one_way` only the direction from the first group to the others is cut. Connections are
        neither refused nor reset: requests and answers do not arrive before `heal`. A broker that
        does not run is cut off when it starts; one that stops in order has whole links meanwhile.
        """
        sides = self._sides(groups)
        pairs = [(sides[0], each) for each in sides[1:]] if one_way else permutations(sides, 2)
        for here, there in pairs:
            self._do(self._cut(here, there, one_way=one_way))

    def cut_clients(self, *brokers: int) -> None:
        """Cut the links between these brokers and all clients."""
        self._require_some(brokers)
        self._do(self._sever(brokers, "cut_clients"))

    def cut_store(self, *brokers: int) -> None:
        """Cut the links between these brokers and the metadata store: their sessions time out, and
        the controller among them loses its role."""
        self._require_some(brokers)
        for broker in brokers:
            self._do(_on_loop(self._store.link(broker).cut))

    def isolate(self, broker: int) -> None:
        """Cut a broker off from all others, from clients and from the metadata store."""
        self.cut_store(broker)
        self.cut_clients(broker)
        self.partition([broker], [each for each in self.broker_ids if each != broker])

    def heal(self) -> None:
        """Make every link whole."""
        self._do(self._heal())

    def _sides(self, groups: Iterable[Iterable[int]]) -> list[list[int]]:
        """Return the groups of brokers. Raises ValueError if nothing would be cut."""
        sides = [list(group) for group in groups]
        brokers = list(chain.from_iterable(sides))
        self._require(*brokers)
        if len(sides) < 2 or not all(sides):
            raise ValueError("a partition has two groups of brokers or more, each with a broker")
        if len(set(brokers)) < len(brokers):
            raise ValueError("a broker is in one group of a partition alone")
        return sides

    def _require_some(self, brokers: Sequence[int]) -> None:
        if not brokers:
            raise ValueError("name the brokers that are cut off")
        self._require(*brokers)

    async def _cut(self, here: list[int], there: list[int], *, one_way: bool) -> None:
        ports = [self._ports[each][BROKERS] for each in there]
        await self._sever(here, "cut", ports=ports, sending=True, receiving=not one_way)
        if one_way:
            # Requests leave the side that connected, answers the other: cut both kinds.
            ports = [self._ports[each][BROKERS] for each in here]
            await self._sever(there, "cut", ports=ports, sending=False, receiving=True)

    async def _sever(self, brokers: Iterable[int], method: str, **arguments: Any) -> None:
        for broker in brokers:
            self._faults.add_cut(broker, Call(method, arguments))
        await self._tell(brokers, method, **arguments)

    async def _heal(self) -> None:
        self._faults.remove_cuts()
        for broker in self.broker_ids:
            self._store.link(broker).mend()
        await self._tell(self.broker_ids, "mend")

    # -- requests --------------------------------------------------------------------------------

    def hold(
        self,
        api: int | str,
        number: int = 1,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> "Held":
        """Hold one request of an API: the first that matches, or the one of that number.

        The broker reads it from its connection and does not handle it before `release`, even if its
        client disconnects meanwhile. `api` is Kafka's name or key. A request must have `client_id`,
        `topic` and `transactional_id`, if they are given, and `broker` is the one that receives it.
        Each broker counts its own requests, and starts at 1 again when it restarts.
        """
        check_number("the number of the request", number, 1)
        matching = {"client_id": client_id, "topic": topic, "transactional_id": transactional_id}
        return self._add_lever(Held, api, broker, matching, hold=True, first=number, times=1)

    def delay(
        self,
        api: int | str,
        seconds: float,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> "Lever":
        """Delay all requests of an API that match, or the first `times` of them; see `hold`.

        With 0 s it counts them, and changes nothing.
        """
        check_seconds("a delay", seconds)
        matching = {"client_id": client_id, "topic": topic, "transactional_id": transactional_id}
        return self._add_lever(Lever, api, broker, matching, seconds=seconds, times=times)

    def error(
        self,
        api: int | str,
        code: int | str,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> "Lever":
        """Refuse all requests of an API that match, or the first `times` of them; see `hold`.

        They are not handled, and answered with the error `code`, Kafka's code or name.
        """
        from barnabas.testing.request_faults import error_code

        matching = {"client_id": client_id, "topic": topic, "transactional_id": transactional_id}
        found = error_code(code)
        return self._add_lever(Lever, api, broker, matching, error=found, times=times)

    def _add_lever(
        self,
        kind: "type[L]",
        api: int | str,
        broker: int | None,
        matching: dict[str, str | None],
        **fault: Any,
    ) -> "L":
        """Add a lever. Raises ValueError for an unknown API or broker, TypeError for a condition
        of another type."""
        from barnabas.testing.request_faults import api_key

        if (times := fault.get("times")) is not None:
            check_number("times", times, 1)
        for name, value in matching.items():
            if value is not None:
                check_text(name, value)
        if broker is not None:
            self._require(broker)
        number = next(self._numbers)
        call = Call("add_lever", {"number": number, "api": api_key(api), **matching, **fault})
        brokers = self.broker_ids if broker is None else [broker]
        self._do(self._apply_lever(number, brokers, call))
        return kind(self, number, str(api))

    async def _apply_lever(self, number: int, brokers: list[int], call: Call) -> None:
        self._faults.add_lever(number, brokers, call)
        try:
            await self._tell(brokers, call.method, **call.arguments)
        except BaseException:
            self._faults.forget_lever(number)
            raise

    # -- time, sessions --------------------------------------------------------------------------

    def jump_transaction_clock(self, seconds: float) -> None:
        """Advance the clock by which transactions time out, for all brokers."""
        check_seconds("a jump of the clock", seconds)
        self._do(self._jump(seconds))

    async def _jump(self, seconds: float) -> None:
        self._faults.advance_clock(seconds)
        await self._tell(self.broker_ids, "jump", seconds=seconds)

    def expire_session(self, broker: int) -> None:
        """End a broker's session with the metadata store, as if it had timed out.

        Raises RuntimeError if the broker has no session.
        """
        self._require(broker)
        self._do(self._store.expire(broker))

    async def _remove(self, number: int) -> int | None:
        """Remove a lever, and return how many requests it has touched; None while a broker that
        had it is paused."""
        brokers = self._faults.brokers_with_lever(number)
        self._faults.remove_lever(number)
        await self._tell(brokers, "remove_lever", number=number)
        if any((node := self._reachable(each)) and node.paused for each in brokers):
            return None
        return await self._touched(number)

    async def _touched(self, number: int) -> int:
        """Return how many requests a lever has touched; the count of one that was removed is
        forgotten then. Raises RuntimeError while a broker that has it is paused."""
        asked = [
            (each, node)
            for each in self._faults.brokers_that_count(number)
            if (node := self._reachable(each)) is not None
        ]
        for broker, node in asked:
            if node.paused:
                raise RuntimeError(f"broker {broker} is paused and cannot answer: resume it first")
        total = 0
        for _, node in asked:
            with suppress(BrokerDied):
                total += await node.ask("touched", number=number)
        if not self._faults.brokers_with_lever(number):
            self._faults.forget_lever(number)
        return total

    async def _first_arrival(self, number: int) -> None:
        """Wait until a lever has touched a request on any broker.

        Raises RuntimeError if no broker with the lever runs, or the lever was removed.
        """
        asked: dict[Node | ProcessNode, asyncio.Future[Any]] = {}
        try:
            while True:
                self._changed.clear()
                nodes = [
                    node
                    for broker in self._faults.brokers_with_lever(number)
                    if (node := self._reachable(broker)) is not None
                ]
                for node in nodes:
                    if node not in asked:
                        asked[node] = asyncio.ensure_future(node.ask("arrived", number=number))
                # A broker that has ended tells nothing about the others.
                if await self._one_arrived([asked[node] for node in nodes]):
                    return
        finally:
            for wait in asked.values():
                wait.cancel()

    async def _one_arrived(self, waits: list[asyncio.Future[Any]]) -> bool:
        """Wait for the first of these, or until a broker starts or ends.

        Raises RuntimeError if no request can be touched any more.
        """
        left = [wait for wait in waits if not wait.done() or wait.exception() is None]
        if not left:
            raise RuntimeError("no broker that runs has this lever: no request will be touched")
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((*left, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return any(wait.done() and wait.exception() is None for wait in left)


class Lever:
    """A fault on the requests of an API; as a context manager it ends with its block."""

    def __init__(self, cluster: ClusterLevers, number: int, api: str) -> None:
        self._cluster = cluster
        self._number = number
        self._counted: int | None = None
        """The number of requests touched, if it is final."""
        self._removed = False
        self._late = f"no {api} request was touched"

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Wait until a request was touched. Raises TimeoutError.

        Raises RuntimeError if the lever was removed, or no broker that has it runs; also, at once,
        on a running event loop, whose clients could not send the request: await `arrived` there.
        """
        refuse_running_loop("wait()", "await held.arrived()")
        self._cluster._do(self._cluster._first_arrival(self._number), timeout, self._late)

    async def arrived(self, timeout: float = TIMEOUT) -> None:
        """Wait as `wait` does, and let the running event loop go on meanwhile."""
        work = self._cluster._first_arrival(self._number)
        await self._cluster._awaited(work, timeout, self._late)

    @property
    def touched(self) -> int:
        """The number of requests touched, on the brokers that run, since each of them started.

        It keeps its value when the lever is removed. Raises RuntimeError while a broker with the
        lever is paused.
        """
        if self._counted is not None:
            return self._counted
        found = self._cluster._do(self._cluster._touched(self._number))
        if self._removed:
            self._counted = found
        return found

    def remove(self) -> None:
        """Touch no further requests. Idempotent."""
        if not self._removed:
            self._counted = self._cluster._do(self._cluster._remove(self._number))
            self._removed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Held(Lever):
    """A request that is held, or will be."""

    def release(self) -> None:
        """Pass the request to its handler, unchanged. Idempotent."""
        self.remove()


async def _on_loop(see: Callable[[], T]) -> T:
    """Call a function on the cluster's loop."""
    return see()
