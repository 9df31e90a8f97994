"""The controller's line to one broker: messages go in order, and nobody waits for a slow broker."""

import asyncio
from collections.abc import Callable, Iterable

from barnabas.broker.controller.channel import Channel, ChannelClosed
from barnabas.broker.controller.gathering import Gathered, Message, Receipt
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest

Report = Callable[[BrokerInfo, LeaderAndIsrResponse], None]

_log = get_logger(__name__)


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
        self._waiting = Gathered()
        self._news = asyncio.Event()
        self._carrier = asyncio.create_task(self._carry(), name=f"to broker {broker.id}")

    def send(self, message: Message) -> asyncio.Future[None]:
        """The future is done once the broker has answered, or cannot be reached any more."""
        delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._carrier.done():
            delivered.set_result(None)
        else:
            self._waiting.add(message, delivered)
            self._news.set()
        return delivered

    async def close(self) -> None:
        """Send nothing more; what waits for delivery is done."""
        self._carrier.cancel()
        await asyncio.wait([self._carrier])
        await self._channel.close()

    async def _carry(self) -> None:
        receipts: list[Receipt] = []
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    message, receipts = self._waiting.take()
                    await self._deliver(message)
                    _done(receipts)
        except ChannelClosed:
            _log.info("broker out of reach", broker=self.broker.id)
        except Exception as error:
            self._failed(error)
        finally:
            _done(receipts)
            _done(self._waiting.clear())

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


def _done(receipts: Iterable[Receipt]) -> None:
    for receipt in receipts:
        if not receipt.done():
            receipt.set_result(None)
