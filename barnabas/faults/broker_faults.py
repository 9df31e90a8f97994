"""The faults of one broker: on its requests, on its links and on its clock."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from barnabas.broker.platform import Platform
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.faults.request_faults import RequestFault, RequestFaults, api_key
from barnabas.faults.severable import SeverableNetwork


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


class BrokerFaults:
    """The faults of one broker, to be set from its event loop.

    Arguments and answers of the awaited methods are plain JSON values, so that another process can
    call them (`remote.py`).
    """

    def __init__(self, config: BrokerConfig, platform: Platform) -> None:
        self._requests = RequestFaults()
        self._network = SeverableNetwork(platform.network)
        self._clock = JumpingClock(platform.clock)
        inter_broker = config.inter_broker_listener().name
        self._for_clients = [
            each.address.port for each in config.resolved_listeners() if each.name != inter_broker
        ]
        self.platform = dataclasses.replace(
            platform,
            network=self._network,
            transaction_clock=self._clock,
            around=self._requests.around,
        )
        """The platform of a broker that has these faults."""

    async def release(self) -> None:
        """Remove every fault on requests, and mend every link."""
        self._requests.remove_all()
        self._network.mend()

    async def tell(self, method: str, **arguments: Any) -> None:
        """Call a method, and drop its answer."""
        await self.ask(method, **arguments)

    async def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method, and return its answer."""
        return await getattr(self, method)(**arguments)

    async def add_lever(self, number: int, api: int | str, **fault: Any) -> None:
        """Add a fault on requests; its fields are those of `RequestFault`."""
        self._requests.add(number, RequestFault(api_key(api), **fault))

    async def remove_lever(self, number: int) -> None:
        self._requests.remove(number)

    async def arrived(self, number: int) -> None:
        await self._requests.arrived(number)

    async def touched(self, number: int) -> int:
        return self._requests.touched(number)

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
        await self._requests.wait_for_brokers(count)
