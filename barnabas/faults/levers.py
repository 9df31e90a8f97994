"""The levers of brokers on this host: faults on links, requests and clocks, and moves of roles.

`barnabas.testing` has them as methods of a cluster, `--faults` over HTTP.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain, count, permutations
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.faults.active_faults import ActiveFaults, NodeCall
from barnabas.faults.arguments import check_number, check_seconds, check_text
from barnabas.faults.remote import BrokerDied

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster as Client
    from barnabas.faults.store import Store


class ReachableBroker(Protocol):
    """A broker that takes calls of the methods of `BrokerFaults`."""

    paused: bool

    async def tell(self, method: str, **arguments: Any) -> None:
        """Call a method; do not wait for the answer while the broker is paused."""
        ...

    async def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method, and return its answer."""
        ...


class Brokers(Protocol):
    """The brokers of a cluster on this host, whether they run or not."""

    @property
    def broker_ids(self) -> Sequence[int]: ...

    @property
    def changed(self) -> asyncio.Event:
        """An event that is set when a broker starts or ends."""
        ...

    @property
    def store(self) -> "Store": ...

    def reachable(self, broker: int) -> ReachableBroker | None:
        """Return a broker; None if it neither runs nor starts."""
        ...

    def port_for_brokers(self, broker: int) -> int:
        """Return the port to which other brokers connect."""
        ...

    def client(self) -> "Client":
        """Return a client of the cluster that may do everything."""
        ...


class Levers:
    """The levers of a cluster, and the faults that are in force in it.

    All methods raise ValueError or TypeError for arguments that could have no effect.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._faults = ActiveFaults()
        self._numbers = count(1)

    def forget(self) -> None:
        """Forget all faults: the brokers were stopped."""
        self._faults = ActiveFaults()

    def calls_before_start(self, broker: int) -> list[NodeCall]:
        """Return the calls that give a broker the faults in force, to be made before it starts."""
        return self._faults.calls_before_start(broker)

    def require(self, *brokers: int) -> None:
        """Raise ValueError for a broker that does not exist."""
        for broker in brokers:
            if broker not in self._brokers.broker_ids:
                raise ValueError(f"there is no broker {broker}")

    async def _tell(self, brokers: Iterable[int], method: str, **arguments: Any) -> None:
        """Call a method on those of the brokers that run or start, concurrently."""
        nodes = [node for each in brokers if (node := self._brokers.reachable(each)) is not None]

        async def call(node: ReachableBroker) -> None:
            # A dead broker needs no call.
            with suppress(BrokerDied):
                await node.tell(method, **arguments)

        await asyncio.gather(*map(call, nodes))

    # -- links -----------------------------------------------------------------------------------

    async def partition(self, *groups: Iterable[int], one_way: bool = False) -> None:
        """Cut the links between brokers of different groups; with `one_way` only the direction
        from the first group to the others."""
        sides = [list(group) for group in groups]
        brokers = list(chain.from_iterable(sides))
        self.require(*brokers)
        if len(sides) < 2 or not all(sides):
            raise ValueError("a partition has two groups of brokers or more, each with a broker")
        if len(set(brokers)) < len(brokers):
            raise ValueError("a broker is in one group of a partition alone")
        await self._partition(sides, one_way=one_way)

    async def cut_clients(self, *brokers: int) -> None:
        """Cut the links between these brokers and all clients."""
        self._require_some(brokers)
        await self._sever(brokers, "cut_clients")

    async def cut_store(self, *brokers: int) -> None:
        """Cut the links between these brokers and the metadata store."""
        self._require_some(brokers)
        for broker in brokers:
            self._brokers.store.link(broker).cut()
        await self._tell(brokers, "store_cut")

    async def isolate(self, *brokers: int) -> None:
        """Cut each of these brokers off from all others, from clients and from the store."""
        await self.cut_store(*brokers)
        await self.cut_clients(*brokers)
        for broker in brokers:
            others = [each for each in self._brokers.broker_ids if each != broker]
            await self._partition([[broker], others], one_way=False)

    async def heal(self) -> None:
        """Make every link whole."""
        self._faults.remove_cuts()
        self._brokers.store.mend()
        await self._tell(self._brokers.broker_ids, "mend")

    def _require_some(self, brokers: Sequence[int]) -> None:
        if not brokers:
            raise ValueError("name the brokers that are cut off")
        self.require(*brokers)

    async def _partition(self, sides: list[list[int]], *, one_way: bool) -> None:
        pairs = [(sides[0], each) for each in sides[1:]] if one_way else permutations(sides, 2)
        for here, there in pairs:
            await self._cut(here, there, one_way=one_way)

    async def _cut(self, here: list[int], there: list[int], *, one_way: bool) -> None:
        ports = list(map(self._brokers.port_for_brokers, there))
        await self._sever(here, "cut", ports=ports, sending=True, receiving=not one_way)
        if one_way:
            # Requests leave the side that connected, answers the other: cut both kinds.
            ports = list(map(self._brokers.port_for_brokers, here))
            await self._sever(there, "cut", ports=ports, sending=False, receiving=True)

    async def _sever(self, brokers: Iterable[int], method: str, **arguments: Any) -> None:
        for broker in brokers:
            self._faults.add_cut(broker, NodeCall(method, arguments))
        await self._tell(brokers, method, **arguments)

    # -- requests --------------------------------------------------------------------------------

    async def hold(self, api: int | str, number: int = 1, **where: Any) -> int:
        """Hold one request of an API, and return the number of the lever.

        `where` are the conditions of a request: client_id, topic, transactional_id and broker.
        """
        check_number("the number of the request", number, 1)
        return await self._add(api, where, hold=True, first=number, times=1)

    async def delay(
        self, api: int | str, seconds: float, *, times: int | None = None, **where: Any
    ) -> int:
        """Delay requests of an API, and return the number of the lever."""
        check_seconds("a delay", seconds)
        return await self._add(api, where, seconds=seconds, times=times)

    async def error(
        self, api: int | str, code: int | str, *, times: int | None = None, **where: Any
    ) -> int:
        """Refuse requests of an API, and return the number of the lever."""
        from barnabas.faults.request_faults import error_code

        return await self._add(api, where, error=error_code(code), times=times)

    async def _add(self, api: int | str, where: dict[str, Any], **fault: Any) -> int:
        from barnabas.faults.request_faults import api_key

        if fault["times"] is not None:
            check_number("times", fault["times"], 1)
        broker = where.pop("broker", None)
        if broker is not None:
            self.require(broker)
        for name, value in where.items():
            if value is not None:
                check_text(name, value)
        number = next(self._numbers)
        call = NodeCall("add_lever", {"number": number, "api": api_key(api), **where, **fault})
        brokers = self._brokers.broker_ids if broker is None else [broker]
        self._faults.add_lever(number, brokers, call)
        try:
            await self._tell(brokers, call.method, **call.arguments)
        except BaseException:
            self._faults.forget_lever(number)
            raise
        return number

    async def remove(self, number: int) -> int | None:
        """Remove a lever, and return how many requests it has touched; None while a broker that
        had it is paused. A request that it holds goes to its handler."""
        brokers = self._faults.brokers_with_lever(number)
        self._faults.remove_lever(number)
        await self._tell(brokers, "remove_lever", number=number)
        if any((node := self._brokers.reachable(each)) and node.paused for each in brokers):
            return None
        return await self.touched(number)

    async def touched(self, number: int) -> int:
        """Return how many requests a lever has touched; the count of one that was removed is
        forgotten then. Raises RuntimeError while a broker that has it is paused."""
        asked = [
            (each, node)
            for each in self._faults.brokers_that_count(number)
            if (node := self._brokers.reachable(each)) is not None
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

    async def first_arrival(self, number: int) -> None:
        """Wait until a lever has touched a request on any broker.

        Raises RuntimeError if no broker with the lever runs, or the lever was removed.
        """
        asked: dict[ReachableBroker, asyncio.Future[Any]] = {}
        try:
            while True:
                self._brokers.changed.clear()
                nodes = [
                    node
                    for broker in self._faults.brokers_with_lever(number)
                    if (node := self._brokers.reachable(broker)) is not None
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
        changed = asyncio.ensure_future(self._brokers.changed.wait())
        try:
            await asyncio.wait((*left, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return any(wait.done() and wait.exception() is None for wait in left)

    # -- time, sessions --------------------------------------------------------------------------

    async def jump_transaction_clock(self, seconds: float) -> None:
        """Advance the clock by which transactions time out, for all brokers."""
        check_seconds("a jump of the clock", seconds)
        self._faults.advance_clock(seconds)
        await self._tell(self._brokers.broker_ids, "jump", seconds=seconds)

    async def expire_session(self, broker: int) -> None:
        """End a broker's session with the metadata store, as if it had timed out.

        Raises RuntimeError if the broker has no session.
        """
        self.require(broker)
        await self._brokers.store.expire(broker)
        await self._tell([broker], "session_expired")

    # -- roles -----------------------------------------------------------------------------------

    async def controller(self) -> int:
        """Return the controller; wait until there is one."""
        return await self._brokers.store.until(self._brokers.store.controller)

    def controller_now(self) -> int | None:
        """Return the controller, None while an election is open."""
        return self._brokers.store.controller()

    async def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; wait until it has one."""
        return await self._brokers.store.leader_of(topic, partition)

    async def coordinator_of(self, group: str, transactional_id: str) -> int:
        """Return the coordinator of a group or of a transactional id."""
        return await self.leader_of(*await self._coordinating(group, transactional_id))

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make an in-sync replica of a partition its leader, and wait until it is."""
        from barnabas.faults.leader_moves import move_leader

        self.require(to)
        async with self._brokers.client() as client:
            await move_leader(client, self._brokers.store, topic, partition, to)

    async def move_coordinator(self, to: int, group: str, transactional_id: str) -> None:
        """Make a broker the coordinator of a group or of a transactional id."""
        self.require(to)
        await self.move_leader(*await self._coordinating(group, transactional_id), to)

    def has_coordinator(self, group: str, transactional_id: str) -> bool:
        """Return whether the internal topic exists, whose leaders coordinate."""
        internal, key = _internal(group, transactional_id)
        return self._brokers.store.coordinating(internal, key) is not None

    async def _coordinating(self, group: str, transactional_id: str) -> tuple[str, int]:
        """Return the partition whose leader coordinates; create the internal topic."""
        internal, key = _internal(group, transactional_id)
        store = self._brokers.store
        if store.coordinating(internal, key) is None:
            from barnabas.client.cluster import GROUP, TRANSACTION

            kind = GROUP if group else TRANSACTION
            async with self._brokers.client() as client:
                await client.retrying(lambda: client.coordinator(key, kind))
        return internal, await store.until(lambda: store.coordinating(internal, key))


def _internal(group: str, transactional_id: str) -> tuple[str, str]:
    """Return the internal topic of a group or of a transactional id, and its key there."""
    if bool(group) == bool(transactional_id):
        raise ValueError("either a group or a transactional id has a coordinator")
    return (CONSUMER_OFFSETS, group) if group else (TRANSACTION_STATE, transactional_id)
