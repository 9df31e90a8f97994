"""The operations of the faults over HTTP."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, Protocol

from pydantic import BaseModel

from barnabas.faults.http import models
from barnabas.faults.levers import Levers

TIMEOUT: Final = 30.0
"""Seconds that each operation may take, except a wait with another timeout."""
MOST_LEVERS: Final = 1000
"""Levers in force at the same time, and released ones whose counts are remembered."""


class Processes(Protocol):
    """The brokers as processes, which can be killed and paused."""

    def states(self) -> list[models.BrokerState]: ...

    async def pause(self, broker: int) -> None: ...

    async def resume(self, broker: int) -> None: ...

    async def kill(self, broker: int) -> None: ...

    async def stop(self, broker: int) -> None: ...

    async def start(self, broker: int) -> None: ...


class Call(NamedTuple):
    """A request to one of the operations."""

    number: int
    """The number in the path, 0 without one."""
    body: Any
    """The model that the operation takes."""
    trusted: bool
    """Whether the request has the token."""


class Operation(NamedTuple):
    """An operation at a path."""

    method: Literal["GET", "POST"]
    path: str
    takes: type[BaseModel]
    returns: type[BaseModel]
    summary: str
    run: Callable[[Call], Awaitable[BaseModel]]

    @property
    def pattern(self) -> str:
        return re.sub(r"\{\w+\}", r"(\\d{1,9})", self.path)


class Operations:
    """The operations on one cluster, and the levers that they have set."""

    def __init__(self, levers: Levers, processes: Processes) -> None:
        self._levers = levers
        self._processes = processes
        self._set: dict[int, models.Lever] = {}
        """The levers in force, and those whose count is final."""
        self.table = [*self._of_requests(), *self._of_links(), *self._of_brokers()]

    def _of_requests(self) -> Iterable[Operation]:
        lever, nothing = models.Lever, models.Nothing
        yield Operation("POST", "/v1/hold", models.Hold, models.Added, "Hold", self._hold)
        yield Operation("POST", "/v1/delay", models.Delay, models.Added, "Delay", self._delay)
        yield Operation("POST", "/v1/error", models.Refuse, models.Added, "Refuse", self._refuse)
        path = "/v1/levers/{lever}"
        yield Operation("GET", path, nothing, lever, "Show a lever", self._show)
        yield Operation(
            *("POST", f"{path}/wait", models.Wait, lever),
            "Wait until the lever has touched a request",
            self._wait,
        )
        yield Operation(
            *("POST", f"{path}/release", nothing, lever),
            "End the lever; a request that it holds goes to its handler",
            self._release,
        )

    def _of_links(self) -> Iterable[Operation]:
        nothing = models.Nothing
        yield Operation(
            *("POST", "/v1/partition", models.Partition, nothing),
            "Cut the links between groups of brokers",
            self._partition,
        )
        yield Operation("POST", "/v1/cut", models.Cut, nothing, "Cut brokers off", self._cut)
        yield Operation("POST", "/v1/heal", nothing, nothing, "Make links whole", self._heal)
        yield Operation(
            *("POST", "/v1/jump-transaction-clock", models.Jump, nothing),
            "Let transactions time out sooner",
            self._jump,
        )

    def _of_brokers(self) -> Iterable[Operation]:
        nothing, one = models.Nothing, models.BrokerId
        yield Operation("GET", "/v1/brokers", nothing, models.Cluster, "Show all", self._brokers)
        processes = self._processes
        for name, summary, act in (
            ("pause", "Send SIGSTOP", processes.pause),
            ("resume", "Send SIGCONT", processes.resume),
            ("kill", "Send SIGKILL; the broker stays down until it is started", processes.kill),
            ("stop", "Stop in order; the broker stays down until it is started", processes.stop),
            ("start", "Start a broker that is down", processes.start),
            ("expire-session", "End the session with the store", self._levers.expire_session),
        ):
            path = f"/v1/brokers/{{broker}}/{name}"
            yield Operation("POST", path, nothing, nothing, summary, _on_broker(act))
        yield Operation(
            *("GET", "/v1/leader", models.TopicPartition, one),
            "Show the leader of a partition; wait until there is one",
            self._leader,
        )
        yield Operation(
            *("GET", "/v1/coordinator", models.Key, one),
            "Show the coordinator of a group or of a transactional id",
            self._coordinator,
        )
        yield Operation(
            *("POST", "/v1/move-leader", models.MoveLeader, nothing),
            "Make a replica in sync the leader",
            self._move_leader,
        )
        yield Operation(
            *("POST", "/v1/move-coordinator", models.MoveCoordinator, nothing),
            "Make a broker the coordinator",
            self._move_coordinator,
        )

    # -- requests --------------------------------------------------------------------------------

    async def _hold(self, call: Call) -> models.Added:
        return await self._add("hold", call.body, self._levers.hold)

    async def _delay(self, call: Call) -> models.Added:
        return await self._add("delay", call.body, self._levers.delay)

    async def _refuse(self, call: Call) -> models.Added:
        return await self._add("error", call.body, self._levers.error)

    async def _add(
        self,
        kind: Literal["hold", "delay", "error"],
        body: models.Touching,
        add: Callable[..., Awaitable[int]],
    ) -> models.Added:
        released = [number for number, each in self._set.items() if each.released]
        if len(self._set) - len(released) >= MOST_LEVERS:
            raise RuntimeError(f"{MOST_LEVERS} levers are in force: release some")
        for number in released[: max(0, len(released) - MOST_LEVERS)]:
            del self._set[number]
        number = await add(**body.model_dump())
        self._set[number] = models.Lever(
            lever=number, kind=kind, api=body.api, touched=0, released=False
        )
        return models.Added(lever=number)

    async def _show(self, call: Call) -> models.Lever:
        lever = self._lever(call.number)
        if not lever.released:
            lever.touched = await self._levers.touched(call.number)
        return lever

    async def _wait(self, call: Call) -> models.Lever:
        lever = self._lever(call.number)
        late = f"no {lever.api} request was touched within {call.body.timeout:g} s"
        if not lever.released:
            await _within(call.body.timeout, late, self._levers.first_arrival(call.number))
            return await self._show(call)
        if not lever.touched:
            raise RuntimeError("the lever was released: no request will be touched")
        return lever

    async def _release(self, call: Call) -> models.Lever:
        lever = self._lever(call.number)
        if not lever.released:
            touched = await self._levers.remove(call.number)
            if touched is None:
                raise RuntimeError("the lever ends when the broker that is paused is resumed")
            lever.touched, lever.released = touched, True
        return lever

    def _lever(self, number: int) -> models.Lever:
        if number not in self._set:
            raise LookupError(f"there is no lever {number}")
        return self._set[number]

    # -- links, time -----------------------------------------------------------------------------

    async def _partition(self, call: Call) -> models.Nothing:
        await self._levers.partition(*call.body.groups, one_way=call.body.one_way)
        return models.Nothing()

    async def _cut(self, call: Call) -> models.Nothing:
        cut = {
            "clients": self._levers.cut_clients,
            "store": self._levers.cut_store,
            "all": self._levers.isolate,
        }[call.body.off]
        await cut(*call.body.brokers)
        return models.Nothing()

    async def _heal(self, call: Call) -> models.Nothing:  # noqa: ARG002
        await self._levers.heal()
        return models.Nothing()

    async def _jump(self, call: Call) -> models.Nothing:
        await self._levers.jump_transaction_clock(call.body.seconds)
        return models.Nothing()

    # -- brokers and roles -----------------------------------------------------------------------

    async def _brokers(self, call: Call) -> models.Cluster:  # noqa: ARG002
        return models.Cluster(
            brokers=self._processes.states(), controller=self._levers.controller_now()
        )

    async def _leader(self, call: Call) -> models.BrokerId:
        topic, partition = call.body.topic, call.body.partition
        work = self._levers.leader_of(topic, partition)
        late = f"no broker leads {topic}-{partition} after {TIMEOUT:g} s"
        return models.BrokerId(broker=await _within(TIMEOUT, late, work))

    async def _coordinator(self, call: Call) -> models.BrokerId:
        group, transactional_id = call.body.group, call.body.transactional_id
        if not (call.trusted or self._levers.has_coordinator(group, transactional_id)):
            raise PermissionError("there is no coordinator yet, and to make one needs the token")
        work = self._levers.coordinator_of(group, transactional_id)
        late = f"there is no coordinator after {TIMEOUT:g} s"
        return models.BrokerId(broker=await _within(TIMEOUT, late, work))

    async def _move_leader(self, call: Call) -> models.Nothing:
        body = call.body
        work = self._levers.move_leader(body.topic, body.partition, body.to)
        await _within(TIMEOUT, f"broker {body.to} does not lead after {TIMEOUT:g} s", work)
        return models.Nothing()

    async def _move_coordinator(self, call: Call) -> models.Nothing:
        body = call.body
        work = self._levers.move_coordinator(body.to, body.group, body.transactional_id)
        await _within(TIMEOUT, f"broker {body.to} does not coordinate after {TIMEOUT:g} s", work)
        return models.Nothing()


def _on_broker(act: Callable[[int], Awaitable[None]]) -> Callable[[Call], Awaitable[BaseModel]]:
    async def run(call: Call) -> models.Nothing:
        work = act(call.number)
        await _within(TIMEOUT, f"broker {call.number} was not so far after {TIMEOUT:g} s", work)
        return models.Nothing()

    return run


async def _within(seconds: float, late: str, work: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(late) from error
