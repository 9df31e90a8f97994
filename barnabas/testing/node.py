"""One broker of a test cluster, with its faults, on the running event loop."""

import asyncio
from collections.abc import Iterable, Mapping

from barnabas.broker.app import Broker
from barnabas.broker.platform import system_platform
from barnabas.config.broker import BrokerConfig
from barnabas.faults.active_faults import NodeCall
from barnabas.faults.broker_faults import BrokerFaults


class Node(BrokerFaults):
    """A broker on the running loop."""

    paused = False

    def __init__(self, properties: Mapping[str, str]) -> None:
        config = BrokerConfig.from_properties(properties)
        super().__init__(config, system_platform(config))
        self.broker = Broker(config, platform=self.platform)

    async def start(self, calls: Iterable[NodeCall] = ()) -> None:
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

    async def failed(self) -> None:
        """Wait until the broker has failed."""
        await self.broker.failed.wait()
