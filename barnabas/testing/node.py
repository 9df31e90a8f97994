"""One broker of a test cluster, with faults on its requests, its links and its clock."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.broker.app import Broker
from barnabas.broker.clock import Clock
from barnabas.broker.platform import system_platform
from barnabas.config.broker import BrokerConfig
from barnabas.testing.active_faults import Call
from barnabas.testing.request_faults import RequestFault, RequestFaults, api_key
from barnabas.testing.severable import SeverableNetwork


class JumpingClock:
    """A clock that can jump forward."""

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
    """A broker on the running loop.

    Arguments and answers of its methods are plain JSON values, so that a test in another process
    can call them.
    """

    paused = False

    def __init__(self, properties: Mapping[str, str]) -> None:
        config = BrokerConfig.from_properties(properties)
        platform = system_platform(config)
        self._faults = RequestFaults()
        self._network = SeverableNetwork(platform.network)
        self._clock = JumpingClock(platform.clock)
        inter_broker = config.inter_broker_listener().name
        self._for_clients = [
            each.address.port for each in config.resolved_listeners() if each.name != inter_broker
        ]
        self.broker = Broker(
            config,
            platform=dataclasses.replace(
                platform,
                network=self._network,
                transaction_clock=self._clock,
                around=self._faults.around,
            ),
        )

    async def start(self, calls: Iterable[Call] = ()) -> None:
        """Make these calls, then start the broker.

        Raises the error that prevented the start; nothing of the broker runs then.
        """
        for call in calls:
            await self.tell(call.method, **call.arguments)
        starting = asyncio.create_task(self.broker.start())
        try:
            await asyncio.shield(starting)
        except BaseException:
            # The broker closes its connections, which needs whole links.
            await self.release()
            starting.cancel()
            await asyncio.wait((starting,))
            raise

    async def stop(self) -> None:
        """Stop the broker. Raises RuntimeError if it had failed before."""
        await self.release()
        await self.broker.stop()
        if self.broker.failed.is_set():
            raise RuntimeError("a broker has failed; its log says why")

    async def release(self) -> None:
        """Remove every fault on requests, and mend every link."""
        self._faults.remove_all()
        self._network.mend()

    async def tell(self, method: str, **arguments: Any) -> None:
        """Call a method, and drop its answer."""
        await self.ask(method, **arguments)

    async def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method, and return its answer."""
        return await getattr(self, method)(**arguments)

    async def add_lever(self, number: int, api: int | str, **fault: Any) -> None:
        """Add a fault on requests; its fields are those of `RequestFault`."""
        self._faults.add(number, RequestFault(api_key(api), **fault))

    async def remove_lever(self, number: int) -> None:
        self._faults.remove(number)

    async def arrived(self, number: int) -> None:
        await self._faults.arrived(number)

    async def touched(self, number: int) -> int:
        return self._faults.touched(number)

    async def cut(self, ports: Iterable[int], *, sending: bool, receiving: bool) -> None:
        """Cut the links to other brokers, by the ports that those listen on."""
        for port in ports:
            self._network.outgoing[port].cut(sending=sending, receiving=receiving)

    async def cut_clients(self) -> None:
        """Cut the links of the listeners for clients."""
        for port in self._for_clients:
            self._network.incoming[port].cut()

    async def mend(self) -> None:
        self._network.mend()

    async def jump(self, seconds: float) -> None:
        """Advance the clock by which transactions time out."""
        self._clock.jump(seconds)

    async def wait_for_brokers(self, count: int) -> None:
        """Wait until the controller has told this broker of so many brokers."""
        await self._faults.wait_for_brokers(count)

    async def failed(self) -> None:
        """Wait until the broker has failed."""
        await self.broker.failed.wait()
