"""The faults of one broker: on its requests, on its links and on its clock."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from barnabas.broker.observability.events import FAULT_HEALED, FAULT_SET, EventLog
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.platform import Platform
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.faults.request_faults import RequestFault, RequestFaults, api_key
from barnabas.faults.severable import SeverableNetwork
from barnabas.protocol.apis import APIS
from barnabas.protocol.errors import ErrorCode

_log = get_logger(__name__)


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
        self._events = EventLog(config.broker_id, platform.clock)
        self._cut = False
        """Whether a link was cut and not mended since."""
        inter_broker = config.inter_broker_listener().name
        self._for_clients = [
            each.address.port for each in config.resolved_listeners() if each.name != inter_broker
        ]
        self.platform = dataclasses.replace(
            platform,
            network=self._network,
            transaction_clock=self._clock,
            around=self._requests.around,
            events=self._events,
        )
        """The platform of a broker that has these faults."""

    def _links_cut(self, links: str, **values: Any) -> None:
        self._cut = True
        self._events.add(_log, FAULT_SET, cut=f"the links {links}", **values)

    async def release(self) -> None:
        """Remove every fault on requests, and mend every link."""
        for number in self._requests.remove_all():
            self._events.add(_log, FAULT_HEALED, lever=number)
        await self.mend()

    async def tell(self, method: str, **arguments: Any) -> None:
        """Call a method, and drop its answer."""
        await self.ask(method, **arguments)

    async def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method, and return its answer."""
        return await getattr(self, method)(**arguments)

    async def add_lever(self, number: int, api: int | str, **fault: Any) -> None:
        """Add a fault on requests; its fields are those of `RequestFault`."""
        key = api_key(api)
        self._requests.add(number, RequestFault(key, **fault))
        given = {name: value for name, value in fault.items() if value not in (None, False)}
        if "error" in given:
            given["error"] = ErrorCode.of(given["error"]).name
        self._events.add(_log, FAULT_SET, lever=number, request=APIS[key].module, **given)

    async def remove_lever(self, number: int) -> None:
        if self._requests.remove(number):
            self._events.add(_log, FAULT_HEALED, lever=number)

    async def arrived(self, number: int) -> None:
        await self._requests.arrived(number)

    async def touched(self, number: int) -> int:
        return self._requests.touched(number)

    async def cut(self, ports: Sequence[int], *, sending: bool, receiving: bool) -> None:
        """Cut the links to other brokers, by the ports that those listen on."""
        self._links_cut("to other brokers", ports=ports)
        for port in ports:
            self._network.outgoing[port].cut(sending=sending, receiving=receiving)

    async def cut_clients(self) -> None:
        """Cut the links of the listeners for clients."""
        self._links_cut("of clients")
        for port in self._for_clients:
            self._network.incoming[port].cut()

    async def store_cut(self) -> None:
        """Note that the link to the metadata store, which this broker does not hold, was cut."""
        self._links_cut("to the metadata store")

    async def session_expired(self) -> None:
        """Note that the session with the metadata store was ended."""
        self._events.add(_log, FAULT_SET, session="ended")

    async def mend(self) -> None:
        self._network.mend()
        if self._cut:
            self._cut = False
            self._events.add(_log, FAULT_HEALED, links="all")

    async def jump(self, seconds: float) -> None:
        """Advance the clock by which transactions time out."""
        self._clock.jump(seconds)
        self._events.add(_log, FAULT_SET, transaction_clock=f"{seconds:+g} s")

    async def wait_for_brokers(self, count: int) -> None:
        """Wait until the controller has told this broker of so many brokers."""
        await self._requests.wait_for_brokers(count)
