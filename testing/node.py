"""One broker of a test's cluster, with levers on its requests, its lines and its clock."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.broker.app import Broker
from barnabas.broker.clock import Clock
from barnabas.broker.doors import real_doors
from barnabas.config.broker import BrokerConfig
from barnabas.testing.levers import Lever, Levers, api_key
from barnabas.testing.severable import SeverableNetwork
from barnabas.testing.standing import Call


class JumpingClock:
    """A clock that can be put forward."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = 0.0

    def jump(self, seconds: float) -> None:
        self._ahead += seconds

    def now_ms(self) -> int:
        return self._clock.now_ms() + int(self._ahead * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._ahead


class Node:
    """A broker on the running loop. Arguments and answers of its methods are plain JSON values, so
    that a test in another process can call them."""

    paused = False

    def __init__(self, properties: Mapping[str, str]) -> None:
        config = BrokerConfig.from_properties(properties)
        doors = real_doors(config)
        self._levers = Levers()
        self._network = SeverableNetwork(doors.network)
        self._clock = JumpingClock(doors.clock)
        inter_broker = config.inter_broker_listener().name
        self._for_clients = [
            each.address.port for each in config.resolved_listeners() if each.name != inter_broker
        ]
        self.broker = Broker(
            config,
            doors=dataclasses.replace(
                doors,
                network=self._network,
                transaction_clock=self._clock,
                around=self._levers.around,
            ),
        )

    async def start(self, calls: Iterable[Call] = ()) -> None:
        """Start with what these calls have done.

        Raises what keeps it from starting; nothing of it runs then.
        """
        for call in calls:
            await self.tell(call.method, **call.arguments)
        starting = asyncio.create_task(self.broker.start())
        try:
            await asyncio.shield(starting)
        except BaseException:
            # What it has opened it closes over lines that are whole.
            await self.release()
            starting.cancel()
            await asyncio.wait((starting,))
            raise

    async def stop(self) -> None:
        """Raises RuntimeError where the broker had failed before, so that a test learns of it."""
        await self.release()
        await self.broker.stop()
        if self.broker.failed.is_set():
            raise RuntimeError("a broker could not go on; its log says why")

    async def release(self) -> None:
        """Take every lever away, and mend every line."""
        self._levers.remove_all()
        self._network.mend()

    async def tell(self, method: str, **arguments: Any) -> None:
        """Have a method done."""
        await self.ask(method, **arguments)

    async def ask(self, method: str, **arguments: Any) -> Any:
        """What a method answers."""
        return await getattr(self, method)(**arguments)

    async def pull(self, number: int, api: int | str, **lever: Any) -> None:
        """Set a lever; its fields are those of `Lever`."""
        self._levers.pull(number, Lever(api_key(api), **lever))

    async def remove(self, number: int) -> None:
        self._levers.remove(number)

    async def arrived(self, number: int) -> None:
        await self._levers.arrived(number)

    async def touched(self, number: int) -> int:
        return self._levers.touched(number)

    async def cut(self, ports: Iterable[int], *, sending: bool, receiving: bool) -> None:
        """Cut the lines to other brokers, by the ports they listen on."""
        for port in ports:
            self._network.outgoing[port].cut(sending=sending, receiving=receiving)

    async def cut_clients(self) -> None:
        """Cut the lines that clients come in by."""
        for port in self._for_clients:
            self._network.incoming[port].cut()

    async def mend(self) -> None:
        self._network.mend()

    async def jump(self, seconds: float) -> None:
        """Put the clock of transactions forward."""
        self._clock.jump(seconds)

    async def knows(self, brokers: int) -> None:
        """Wait until it has been told of so many brokers."""
        await self._levers.knows(brokers)

    async def failed(self) -> None:
        """Wait until it cannot go on."""
        await self.broker.failed.wait()
