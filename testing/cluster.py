"""Three brokers for tests, replicated, with levers for what goes wrong in a cluster."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import permutations
from typing import Any, Self, TypeVar

from barnabas.testing.ensemble import BROKERS, TIMEOUT, Ensemble
from barnabas.testing.processes import BrokerDied

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
        """The broker that leads a partition; waits until there is one."""
        return self._do(self._store.leader_of(topic, partition))

    def in_sync_of(self, topic: str, partition: int = 0) -> list[int]:
        """The brokers whose replicas of a partition are in sync."""
        return self._do(_soon(lambda: list(self._store.state(topic, partition).isr)))

    def coordinator_of(self, *, group: str = "", transactional_id: str = "") -> int:
        """The broker that coordinates a group or a transactional id."""
        return self.leader_of(*self._coordinating(group, transactional_id))

    def wait_until_in_sync(self, timeout: float = TIMEOUT) -> None:
        """Waits until every replica of every partition is in sync."""
        self._do(self._store.until(lambda: self._store.in_sync() or None), timeout)

    def _coordinating(self, group: str, transactional_id: str) -> tuple[str, int]:
        return self._do(_soon(lambda: self._store.coordinating(group, transactional_id)))

    # -- lines -----------------------------------------------------------------------------------

    def partition(self, *groups: Iterable[int], one_way: bool = False) -> None:
        """Cuts the lines between brokers of different groups; a broker in none keeps its own.

        With `one_way` only what the first group sends to the others is lost. Nothing is refused or
        reset: requests and answers do not arrive before `heal`.
        """
        sides = [list(group) for group in groups]
        pairs = [(sides[0], each) for each in sides[1:]] if one_way else permutations(sides, 2)
        for here, there in pairs:
            self._do(self._cut(here, there, one_way=one_way))

    def cut_clients(self, *brokers: int) -> None:
        """Cuts the lines between these brokers and all clients."""
        self._do(self._tell(brokers, "cut_clients"))

    def cut_store(self, *brokers: int) -> None:
        """Cuts the lines between these brokers and the metadata store: in time they lose their
        sessions, and with them the controller's role."""
        for broker in brokers:
            self._do(_soon(self._store.line(broker).cut))

    def isolate(self, broker: int) -> None:
        """Cuts a broker off from all others, from clients and from the metadata store."""
        self.cut_store(broker)
        self.cut_clients(broker)
        self.partition([broker], [each for each in self.running if each != broker])

    def heal(self) -> None:
        """Makes every line whole."""
        self._do(self._heal())

    async def _cut(self, here: list[int], there: list[int], *, one_way: bool) -> None:
        ports = [self._ports[each][BROKERS] for each in there]
        await self._tell(here, "cut", ports=ports, sending=True, receiving=not one_way)
        if one_way:
            # Who sends is one side of a connection; who answers on it is the other.
            ports = [self._ports[each][BROKERS] for each in here]
            await self._tell(there, "cut", ports=ports, sending=False, receiving=True)

    async def _heal(self) -> None:
        for broker in self.broker_ids:
            self._store.line(broker).mend()
        await self._tell(self.broker_ids, "mend")

    # -- requests --------------------------------------------------------------------------------

    def hold(self, api: int | str, number: int = 1, **matching: Any) -> "Held":
        """Holds one request of an API: the first, or the one of that number, that matches.

        It is taken from its connection and not looked at before `release`, also if its client goes
        away meanwhile. The API has Kafka's name or key. `matching` may have `client_id`, `topic`,
        `transactional_id`, which the request must have, and `broker`, the one that receives it.
        Brokers count by themselves.
        """
        return Held(self, *self._pull(api, matching, hold=True, first=number, times=1))

    def delay(
        self, api: int | str, seconds: float, *, times: int | None = None, **matching: Any
    ) -> "Lever":
        """Delays the requests of an API that match, or so many of them; see `hold`."""
        return Lever(self, *self._pull(api, matching, seconds=seconds, times=times))

    def error(
        self, api: int | str, code: int | str, *, times: int | None = None, **matching: Any
    ) -> "Lever":
        """Refuses the requests of an API that match, or so many of them; see `hold`.

        They are answered with an error, its code or Kafka's name for it, and nothing is done.
        """
        from barnabas.protocol.errors import ErrorCode

        found = ErrorCode[code] if isinstance(code, str) else ErrorCode.of(code)
        return Lever(self, *self._pull(api, matching, error=int(found), times=times))

    def _pull(
        self, api: int | str, matching: dict[str, Any], **lever: Any
    ) -> tuple[int, list[int]]:
        """The lever's number, and the brokers that have it."""
        number, only = next(self._numbers), matching.pop("broker", None)
        brokers = self.running if only is None else [only]
        self._do(self._tell(brokers, "pull", number=number, api=api, **matching, **lever))
        return number, brokers

    # -- time, sessions, leaders -----------------------------------------------------------------

    def jump_transaction_clock(self, seconds: float) -> None:
        """Puts the clock by which transactions time out forward, for all brokers that run."""
        self._do(self._tell(self.running, "jump", seconds=seconds))

    def expire_session(self, broker: int) -> None:
        """Ends a broker's session with the metadata store, as if the store had not heard it."""
        self._do(self._store.expire(broker))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Makes an in-sync replica of a partition its leader, and waits until it is."""
        self._do(self._move_leader(topic, partition, to))

    def move_coordinator(self, to: int, *, group: str = "", transactional_id: str = "") -> None:
        """Makes a broker the coordinator of a group or of a transactional id."""
        self.move_leader(*self._coordinating(group, transactional_id), to)

    async def _move_leader(self, topic: str, partition: int, to: int) -> None:
        from barnabas.testing.moving import move_leader

        servers = ",".join(self.address_of(broker) for broker in self.running)
        await move_leader(servers, self._store, topic, partition, to)

    # -- what levers ask -------------------------------------------------------------------------

    def remove_lever(self, number: int, brokers: list[int]) -> None:
        """Takes a lever away from those of its brokers that still run."""
        self._do(self._tell(brokers, "remove", number=number))

    def wait_for_lever(self, number: int, brokers: list[int], timeout: float) -> None:
        """Waits until a lever has touched a request anywhere; TimeoutError.

        RuntimeError where none that has the lever runs any more, or it was taken away.
        """
        self._do(self._first_arrival(number, brokers), timeout)

    def touched_by_lever(self, number: int, brokers: list[int]) -> int:
        """How many requests a lever has touched; RuntimeError while one that has it is paused."""
        return self._do(self._touched(number, brokers))

    async def _touched(self, number: int, brokers: list[int]) -> int:
        total = 0
        for broker in brokers:
            node = self._nodes.get(broker)
            if node is None:
                continue
            if node.paused:
                raise RuntimeError(f"broker {broker} is paused and cannot say: resume it first")
            with suppress(BrokerDied):
                total += await node.ask("touched", number=number)
        return total

    async def _first_arrival(self, number: int, brokers: list[int]) -> None:
        waits = {
            asyncio.ensure_future(self._nodes[broker].ask("arrived", number=number))
            for broker in brokers
            if broker in self._nodes
        }
        left = waits
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                # A broker that has ended says nothing about the others.
                if any(each.exception() is None for each in done):
                    return
        finally:
            for wait in left:
                wait.cancel()
        raise RuntimeError("no broker that runs has this lever: nothing will be touched")


class Lever:
    """What was done to the requests of an API; as a context manager it ends with its block."""

    def __init__(self, cluster: Cluster, number: int, brokers: list[int]) -> None:
        self._cluster = cluster
        self._number = number
        self._brokers = brokers

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Waits until a request was touched; TimeoutError.

        RuntimeError once that cannot be: the lever was removed, or no broker that has it runs.
        """
        self._cluster.wait_for_lever(self._number, self._brokers, timeout)

    @property
    def touched(self) -> int:
        """How many requests it has touched, on brokers that still run; see `pause`."""
        return self._cluster.touched_by_lever(self._number, self._brokers)

    def remove(self) -> None:
        """Touches nothing more. Idempotent."""
        self._cluster.remove_lever(self._number, self._brokers)

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
