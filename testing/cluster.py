"""A cluster of brokers for tests, with levers that inject faults."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, permutations
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.testing.active_faults import Call
from barnabas.testing.lifecycle import BROKERS, TIMEOUT, ClusterLifecycle
from barnabas.testing.processes import BrokerDied, ProcessNode

if TYPE_CHECKING:
    from barnabas.testing.node import Node

T = TypeVar("T")


class Cluster(ClusterLifecycle):
    """Running brokers: `with Cluster() as cluster: ... cluster.bootstrap_servers`.

    `configs` are Kafka's keys for every broker and win over `DEFAULTS`. The brokers have the ids 1,
    2, 3 and run in one thread; with `processes` each has a process of its own, which can be killed
    and paused. With `data_dir` the data stays; without, it is removed with the cluster. Methods may
    be called from any thread, and return when their effect has happened.

    With `secure` clients need TLS, and a password or a certificate; `users` and `rules` imply it.
    The user `admin` may do everything.
    """

    # -- roles -----------------------------------------------------------------------------------

    @property
    def controller(self) -> int:
        """The broker that is the controller; waits until there is one."""
        return self._do(self._store.until(self._store.controller))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition; wait until it has one. Raises TimeoutError."""
        try:
            return self._do(self._store.leader_of(topic, partition))
        except TimeoutError as error:
            raise TimeoutError(f"no broker leads {topic}-{partition}") from error

    def in_sync_of(self, topic: str, partition: int = 0) -> list[int]:
        """Return the ISR of a partition. Raises ValueError if the partition does not exist."""
        return self._do(_on_loop(lambda: list(self._store.state(topic, partition).isr)))

    def coordinator_of(self, *, group: str = "", transactional_id: str = "") -> int:
        """Return the coordinator of a group or of a transactional id; no client need have asked for
        it before."""
        return self.leader_of(*self._coordinating(group, transactional_id))

    def wait_until_in_sync(self, timeout: float = TIMEOUT) -> None:
        """Wait until every replica of every partition is in sync."""
        self._do(self._store.until(lambda: self._store.in_sync() or None), timeout)

    def _coordinating(self, group: str, transactional_id: str) -> tuple[str, int]:
        if bool(group) == bool(transactional_id):
            raise ValueError("either a group or a transactional id has a coordinator")
        from barnabas.client.cluster import GROUP, TRANSACTION
        from barnabas.testing.store import GROUPS, TRANSACTIONS

        internal, kind = (GROUPS, GROUP) if group else (TRANSACTIONS, TRANSACTION)
        return internal, self._do(self._partition_of(internal, group or transactional_id, kind))

    async def _partition_of(self, internal: str, key: str, kind: int) -> int:
        from barnabas.testing.leader_moves import find_coordinator

        store = self._store
        if store.coordinating(internal, key) is None:
            await find_coordinator(self._reachable_servers, key, kind)
        return await store.until(lambda: store.coordinating(internal, key))

    @property
    def _reachable_servers(self) -> str:
        return ",".join(self.address_of(broker) for broker in self.running)

    # -- links -----------------------------------------------------------------------------------

    def partition(self, *groups: Iterable[int], one_way: bool = False) -> None:
        """Cut the links between brokers of different groups; a broker in no group keeps its links.

        With `one_way` only the direction from the first group to the others is cut. Connections are
        neither refused nor reset: requests and answers do not arrive before `heal`. A broker that
        does not run is cut off when it starts; one that stops in order has whole links meanwhile.
        """
        sides = [list(group) for group in groups]
        self._require(*chain.from_iterable(sides))
        pairs = [(sides[0], each) for each in sides[1:]] if one_way else permutations(sides, 2)
        for here, there in pairs:
            self._do(self._cut(here, there, one_way=one_way))

    def cut_clients(self, *brokers: int) -> None:
        """Cut the links between these brokers and all clients."""
        self._require(*brokers)
        self._do(self._sever(brokers, "cut_clients"))

    def cut_store(self, *brokers: int) -> None:
        """Cut the links between these brokers and the metadata store: their sessions time out, and
        the controller among them loses its role."""
        self._require(*brokers)
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

    def hold(self, api: int | str, number: int = 1, **matching: Any) -> "Held":
        """Hold one request of an API: the first that matches, or the one of that number.

        The broker reads it from its connection and does not handle it before `release`, even if its
        client disconnects meanwhile. `api` is Kafka's name or key. `matching` may be `client_id`,
        `topic` and `transactional_id`, which the request must have, and `broker`, the one that
        receives it. Each broker counts its own requests, and starts at 1 again when it restarts.
        """
        return Held(self, self._add_lever(api, matching, hold=True, first=number, times=1))

    def delay(
        self, api: int | str, seconds: float, *, times: int | None = None, **matching: Any
    ) -> "Lever":
        """Delay all requests of an API that match, or the first `times` of them; see `hold`."""
        return Lever(self, self._add_lever(api, matching, seconds=seconds, times=times))

    def error(
        self, api: int | str, code: int | str, *, times: int | None = None, **matching: Any
    ) -> "Lever":
        """Refuse all requests of an API that match, or the first `times` of them; see `hold`.

        They are not handled, and answered with the error `code`, Kafka's code or name.
        """
        from barnabas.protocol.errors import ErrorCode

        if isinstance(code, str) and code not in ErrorCode.__members__:
            raise ValueError(f"there is no error {code}")
        found = ErrorCode[code] if isinstance(code, str) else ErrorCode.of(code)
        return Lever(self, self._add_lever(api, matching, error=int(found), times=times))

    def _add_lever(self, api: int | str, matching: dict[str, Any], **lever: Any) -> int:
        """Add a lever, and return its number. Raises ValueError for an unknown API or broker."""
        from barnabas.testing.request_faults import api_key

        number, only = next(self._numbers), matching.pop("broker", None)
        if only is not None:
            self._require(only)
        call = Call("add_lever", {"number": number, "api": api_key(api), **matching, **lever})
        self._do(self._apply_lever(number, self.broker_ids if only is None else [only], call))
        return number

    async def _apply_lever(self, number: int, brokers: list[int], call: Call) -> None:
        self._faults.add_lever(number, brokers, call)
        try:
            await self._tell(brokers, call.method, **call.arguments)
        except BaseException:
            self._faults.remove_lever(number)
            raise

    # -- time, sessions, leaders -----------------------------------------------------------------

    def jump_transaction_clock(self, seconds: float) -> None:
        """Advance the clock by which transactions time out, for all brokers."""
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

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make an in-sync replica of a partition its leader, and wait until it is.

        Raises ValueError if the partition does not exist, or the broker has no replica of it.
        """
        self._do(self._move_leader(topic, partition, to))

    def move_coordinator(self, to: int, *, group: str = "", transactional_id: str = "") -> None:
        """Make a broker the coordinator of a group or of a transactional id."""
        self.move_leader(*self._coordinating(group, transactional_id), to)

    async def _move_leader(self, topic: str, partition: int, to: int) -> None:
        from barnabas.testing.leader_moves import move_leader

        await move_leader(self._reachable_servers, self._store, topic, partition, to)

    # -- methods for levers ----------------------------------------------------------------------

    def remove_lever(self, number: int) -> None:
        """Remove a lever from its brokers. Idempotent."""
        self._do(self._remove(number))

    def wait_for_lever(self, number: int, timeout: float) -> None:
        """Wait until a lever has touched a request on any broker. Raises TimeoutError.

        Raises RuntimeError if no broker with the lever runs, or the lever was removed.
        """
        self._do(self._first_arrival(number), timeout)

    def touched_by_lever(self, number: int) -> int:
        """Return the number of requests that a lever has touched.

        Raises RuntimeError while a broker with the lever is paused.
        """
        return self._do(self._touched(number))

    async def _remove(self, number: int) -> None:
        brokers = self._faults.brokers_with_lever(number)
        self._faults.remove_lever(number)
        await self._tell(brokers, "remove_lever", number=number)

    async def _touched(self, number: int) -> int:
        total = 0
        for broker in self._faults.brokers_with_lever(number):
            node = self._reachable(broker)
            if node is None:
                continue
            if node.paused:
                raise RuntimeError(f"broker {broker} is paused and cannot answer: resume it first")
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

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Wait until a request was touched. Raises TimeoutError.

        Raises RuntimeError if the lever was removed, or no broker that has it runs.
        """
        self._cluster.wait_for_lever(self._number, timeout)

    @property
    def touched(self) -> int:
        """The number of requests touched, on the brokers that run, since each of them started."""
        return self._cluster.touched_by_lever(self._number)

    def remove(self) -> None:
        """Touch no further requests. Idempotent."""
        self._cluster.remove_lever(self._number)

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
