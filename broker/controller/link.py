"""The controller's line to one broker: messages go in order, and nobody waits for a slow broker."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.controller.channel import Channel, ChannelClosed
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest

Message = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Report = Callable[[BrokerInfo, LeaderAndIsrResponse], None]

_log = get_logger(__name__)


class _Letter(NamedTuple):
    message: Message
    delivered: asyncio.Future[None]


class BrokerLink:
    """Sends to one incarnation of a broker until it is closed."""

    def __init__(
        self,
        broker: BrokerInfo,
        channel: Channel,
        answered: Report,
        failed: Callable[[Exception], None],
    ) -> None:
        """`answered` is told of every LeaderAndIsr answer before its message counts as delivered,
        `failed` of what no broker that works can do."""
        self.broker = broker
        self._channel = channel
        self._answered = answered
        self._failed = failed
        self._letters: asyncio.Queue[_Letter] = asyncio.Queue()
        self._carrier = asyncio.create_task(self._carry(), name=f"to broker {broker.id}")

    def send(self, message: Message) -> asyncio.Future[None]:
        """The future is done once the broker has answered, or cannot be reached any more."""
        delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._carrier.done():
            delivered.set_result(None)
        else:
            self._letters.put_nowait(_Letter(message, delivered))
        return delivered

    async def close(self) -> None:
        """Send nothing more; what waits for delivery is done."""
        self._carrier.cancel()
        await asyncio.wait([self._carrier])

    async def _carry(self) -> None:
        delivered = None
        try:
            while True:
                message, delivered = await self._letters.get()
                await self._deliver(message)
                _done(delivered)
        except ChannelClosed:
            _log.info("broker out of reach", broker=self.broker.id)
        except Exception as error:
            self._failed(error)
        finally:
            if delivered is not None:
                _done(delivered)
            while not self._letters.empty():
                _done(self._letters.get_nowait().delivered)

    async def _deliver(self, message: Message) -> None:
        match message:
            case LeaderAndIsrRequest():
                answer = await self._channel.leader_and_isr(message)
                self._complain(message, answer.error_code)
                self._answered(self.broker, answer)
            case UpdateMetadataRequest():
                self._complain(message, (await self._channel.update_metadata(message)).error_code)
            case StopReplicaRequest():
                self._complain(message, (await self._channel.stop_replica(message)).error_code)

    def _complain(self, message: Message, code: int) -> None:
        if code != ErrorCode.NONE:
            _log.warning(
                "broker refused the controller",
                broker=self.broker.id,
                request=type(message).__name__,
                error_code=code,
            )


def _done(delivered: asyncio.Future[None]) -> None:
    if not delivered.done():
        delivered.set_result(None)
