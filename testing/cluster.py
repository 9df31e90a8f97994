"""Three brokers for tests, replicated, with levers for what goes wrong in a cluster."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, permutations
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.testing.ensemble import BROKERS, TIMEOUT, Ensemble
from barnabas.testing.processes import BrokerDied, ProcessNode
from barnabas.testing.standing import Call

if TYPE_CHECKING:
    from barnabas.testing.node import Node

T = TypeVar("T")


class Cluster(Ensemble):
    """Running brokers: `with Cluster() as cluster: ... cluster.bootstrap_servers`.

    `configs` are Kafka's keys for every broker and win over `DEFAULTS`. The brokers have the ids 1,
    2, 3 and run in one thread; with `processes` each has a process of its own, which can be killed
    and paused. With `data_dir` the data stays; without, it goes with the cluster. Every method may
    be called from any thread, and returns when what it says is so.
    """

    # -- who does what ---------------------------------------------------------------------------

    @property
    def controller(self) -> int:
        """The broker that is the controller; waits until there is one."""
        return self._do(self._store.until(self._store.controller))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; waits until there is one, or TimeoutError."""
        try:
            return self._do(self._store.leader_of(topic, partition))
        except TimeoutError as error:
            raise TimeoutError(f"no broker leads {topic}-{partition}") from error

    def in_sync_of(self, topic: str, partition: int = 0) -> list[int]:
        """The brokers whose replicas of a partition are in sync; ValueError without such a one."""
        return self._do(_soon(lambda: list(self._store.state(topic, partition).isr)))

    def coordinator_of(self, *, group: str = "", transactional_id: str = "") -> int:
        """The broker that coordinates a group or a transactional id, whether or not any client has
        asked before."""
        return self.leader_of(*self._coordinating(group, transactional_id))

    def wait_until_in_sync(self, timeout: float = TIMEOUT) -> None:
        """Waits until every replica of every partition is in sync."""
        self._do(self._store.until(lambda: self._store.in_sync() or None), timeout)

    def _coordinating(self, group: str, transactional_id: str) -> tuple[str, int]:
        if bool(group) == bool(transactional_id):
            raise ValueError("either a group or a transactional id has a coordinator")
        from barnabas.client.cluster import GROUP, TRANSACTION
        from barnabas.testing.store import GROUPS, TRANSACTIONS

        internal, kind = (GROUPS, GROUP) if group else (TRANSACTIONS, TRANSACTION)
        return internal, self._do(self._partition_of(internal, group or transactional_id, kind))

    async def _partition_of(self, internal: str, key: str, kind: int) -> int:
        from barnabas.testing.moving import find_coordinator

        store = self._store
        if store.coordinating(internal, key) is None:
            await find_coordinator(self._reachable_servers, key, kind)
        return await store.until(lambda: store.coordinating(internal, key))

    @property
    def _reachable_servers(self) -> str:
        return ",".join(self.address_of(broker) for broker in self.running)

    # -- lines -----------------------------------------------------------------------------------

    def partition(self, *groups: Iterable[int], one_way: bool = False) -> None:
        """Cuts the lines between brokers of different groups; a broker in none keeps its own.

        With `one_way` only what the first group sends to the others is lost. Nothing is refused or
        reset: requests and answers do not arrive before `heal`. A broker that does not run is cut
        off when it starts; one that stops in order has its own lines whole while it does.
        """
        sides = [list(group) for group in groups]
        self._require(*chain.from_iterable(sides))
        pairs = [(sides[0], each) for each in sides[1:]] if one_way else permutations(sides, 2)
        for here, there in pairs:
            self._do(self._cut(here, there, one_way=one_way))

    def cut_clients(self, *brokers: int) -> None:
        """Cuts the lines between these brokers and all clients."""
        self._require(*brokers)
        self._do(self._sever(brokers, "cut_clients"))

    def cut_store(self, *brokers: int) -> None:
        """Cuts the lines between these brokers and the metadata store: in time they lose their
        sessions, and with them the controller's role."""
        self._require(*brokers)
        for broker in brokers:
            self._do(_soon(self._store.line(broker).cut))

    def isolate(self, broker: int) -> None:
        """Cuts a broker off from all others, from clients and from the metadata store."""
        self.cut_store(broker)
        self.cut_clients(broker)
        self.partition([broker], [each for each in self.broker_ids if each != broker])

    def heal(self) -> None:
        """Makes every line whole."""
        self._do(self._heal())

    async def _cut(self, here: list[int], there: list[int], *, one_way: bool) -> None:
        ports = [self._ports[each][BROKERS] for each in there]
        await self._sever(here, "cut", ports=ports, sending=True, receiving=not one_way)
        if one_way:
            # Who sends is one side of a connection; who answers on it is the other.
            ports = [self._ports[each][BROKERS] for each in here]
            await self._sever(there, "cut", ports=ports, sending=False, receiving=True)

    async def _sever(self, brokers: Iterable[int], method: str, **arguments: Any) -> None:
        for broker in brokers:
            self._standing.cut(broker, Call(method, arguments))
        await self._tell(brokers, method, **arguments)

    async def _heal(self) -> None:
        self._standing.heal()
        for broker in self.broker_ids:
            self._store.line(broker).mend()
        await self._tell(self.broker_ids, "mend")

    # -- requests --------------------------------------------------------------------------------

    def hold(self, api: int | str, number: int = 1, **matching: Any) -> "Held":
        """Holds one request of an API: the first, or the one of that number, that matches.

        It is taken from its connection and not looked at before `release`, also if its client goes
        away meanwhile. The API has Kafka's name or key. `matching` may have `client_id`, `topic`,
        `transactional_id`, which the request must have, and `broker`, the one that receives it.
        Brokers count by themselves; one that is started again has the lever too, and counts anew.
        """
        return Held(self, self._pull(api, matching, hold=True, first=number, times=1))

    def delay(
        self, api: int | str, seconds: float, *, times: int | None = None, **matching: Any
    ) -> "Lever":
        """Delays the requests of an API that match, or so many of them; see `hold`."""
        return Lever(self, self._pull(api, matching, seconds=seconds, times=times))

    def error(
        self, api: int | str, code: int | str, *, times: int | None = None, **matching: Any
    ) -> "Lever":
        """Refuses the requests of an API that match, or so many of them; see `hold`.

        They are answered with an error, its code or Kafka's name for it, and nothing is done.
        """
        from barnabas.protocol.errors import ErrorCode

        if isinstance(code, str) and code not in ErrorCode.__members__:
            raise ValueError(f"there is no error {code}")
        found = ErrorCode[code] if isinstance(code, str) else ErrorCode.of(code)
        return Lever(self, self._pull(api, matching, error=int(found), times=times))

    def _pull(self, api: int | str, matching: dict[str, Any], **lever: Any) -> int:
        """The lever's number. ValueError where there is no such API or broker."""
        from barnabas.testing.levers import api_key

        number, only = next(self._numbers), matching.pop("broker", None)
        if only is not None:
            self._require(only)
        call = Call("pull", {"number": number, "api": api_key(api), **matching, **lever})
        self._do(self._stand(number, self.broker_ids if only is None else [only], call))
        return number

    async def _stand(self, number: int, brokers: list[int], call: Call) -> None:
        self._standing.pull(number, brokers, call)
        try:
            await self._tell(brokers, call.method, **call.arguments)
        except BaseException:
            self._standing.remove(number)
            raise

    # -- time, sessions, leaders -----------------------------------------------------------------

    def jump_transaction_clock(self, seconds: float) -> None:
        """Puts the clock by which transactions time out forward, for all brokers."""
        self._do(self._jump(seconds))

    async def _jump(self, seconds: float) -> None:
        self._standing.jump(seconds)
        await self._tell(self.broker_ids, "jump", seconds=seconds)

    def expire_session(self, broker: int) -> None:
        """Ends a broker's session with the metadata store, as if the store had not heard it.

        RuntimeError where it has none.
        """
        self._require(broker)
        self._do(self._store.expire(broker))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Makes an in-sync replica of a partition its leader, and waits until it is.

        ValueError where there is no such partition, or the broker has no replica of it.
        """
        self._do(self._move_leader(topic, partition, to))

    def move_coordinator(self, to: int, *, group: str = "", transactional_id: str = "") -> None:
        """Makes a broker the coordinator of a group or of a transactional id."""
        self.move_leader(*self._coordinating(group, transactional_id), to)

    async def _move_leader(self, topic: str, partition: int, to: int) -> None:
        from barnabas.testing.moving import move_leader

        await move_leader(self._reachable_servers, self._store, topic, partition, to)

    # -- what levers ask -------------------------------------------------------------------------

    def remove_lever(self, number: int) -> None:
        """Takes a lever away from its brokers. Idempotent."""
        self._do(self._remove(number))

    def wait_for_lever(self, number: int, timeout: float) -> None:
        """Waits until a lever has touched a request anywhere; TimeoutError.

        RuntimeError where none that has the lever runs any more, or it was taken away.
        """
        self._do(self._first_arrival(number), timeout)

    def touched_by_lever(self, number: int) -> int:
        """How many requests a lever has touched; RuntimeError while one that has it is paused."""
        return self._do(self._touched(number))

    async def _remove(self, number: int) -> None:
        brokers = self._standing.brokers_with(number)
        self._standing.remove(number)
        await self._tell(brokers, "remove", number=number)

    async def _touched(self, number: int) -> int:
        total = 0
        for broker in self._standing.brokers_with(number):
            node = self._reachable(broker)
            if node is None:
                continue
            if node.paused:
                raise RuntimeError(f"broker {broker} is paused and cannot say: resume it first")
            with suppress(BrokerDied):
                total += await node.ask("touched", number=number)
        return total

    async def _first_arrival(self, number: int) -> None:
        asked: dict[Node | ProcessNode, asyncio.Future[Any]] = {}
        try:
            while True:
                self._changed.clear()
                nodes = [
                    node
                    for broker in self._standing.brokers_with(number)
                    if (node := self._reachable(broker)) is not None
                ]
                for node in nodes:
                    if node not in asked:
                        asked[node] = asyncio.ensure_future(node.ask("arrived", number=number))
                # A broker that has ended says nothing about the others.
                if await self._one_arrived([asked[node] for node in nodes]):
                    return
        finally:
            for wait in asked.values():
                wait.cancel()

    async def _one_arrived(self, waits: list[asyncio.Future[Any]]) -> bool:
        """Wait for the first of these, or for a broker that comes or goes.

        RuntimeError where none is left that could arrive.
        """
        left = [wait for wait in waits if not wait.done() or wait.exception() is None]
        if not left:
            raise RuntimeError("no broker that runs has this lever: nothing will be touched")
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((*left, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return any(wait.done() and wait.exception() is None for wait in left)


class Lever:
    """What was done to the requests of an API; as a context manager it ends with its block."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Waits until a request was touched; TimeoutError.

        RuntimeError once that cannot be: the lever was removed, or no broker that has it runs.
        """
        self._cluster.wait_for_lever(self._number, timeout)

    @property
    def touched(self) -> int:
        """How many requests it has touched, on brokers that run, since each of them started."""
        return self._cluster.touched_by_lever(self._number)

    def remove(self) -> None:
        """Touches nothing more. Idempotent."""
        self._cluster.remove_lever(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Held(Lever):
    """A request that is held, or will be."""

    def release(self) -> None:
        """Lets it go to its handler, as it came. Idempotent."""
        self.remove()


async def _soon(see: Callable[[], T]) -> T:
    """On the cluster's own loop."""
    return see()
