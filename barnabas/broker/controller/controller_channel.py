"""The controller's connections to all brokers (ControllerChannelManager in Kafka).

Each broker has one channel: a queue of pending messages and a task that sends them in order, so a
slow broker delays no other broker and no decision of the controller.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from barnabas.broker.cluster.peers import Peer, PeerUnreachable
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.controller.pending_messages import Message, PendingMessages, Receipt
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leader_and_isr, stop_replica, update_metadata
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from barnabas.protocol.schema import Api

RETRY_S: Final = 0.1
"""Seconds until a message without a response is sent again."""
_log = get_logger(__name__)


class BrokerClient(Protocol):
    """A client of one incarnation of a broker, for the three requests that a controller sends.

    The controller uses the `ControlReceiver` of its own broker as the client of that broker. All
    methods raise BrokerClientClosed once the broker cannot be reached any more.
    """

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse: ...

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...

    async def close(self) -> None:
        """Send nothing more."""
        ...


class BrokerClientClosed(Exception):
    """The broker is gone; the end of its registration will follow."""


BrokerClientFactory = Callable[[BrokerInfo], BrokerClient]
LeaderAndIsrCallback = Callable[[BrokerInfo, LeaderAndIsrResponse], None]


class RemoteBrokerClient:
    """A `BrokerClient` over a connection to another broker, which it owns.

    It repeats a request until the broker answers, or until it is closed because the broker's
    registration is gone (as in Kafka). A broker may therefore get any of the three requests twice.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        answer: LeaderAndIsrResponse = await self._request(leader_and_isr.API, request)
        return answer

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        answer: UpdateMetadataResponse = await self._request(update_metadata.API, request)
        return answer

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        answer: StopReplicaResponse = await self._request(stop_replica.API, request)
        return answer

    async def close(self) -> None:
        await self._peer.close()

    async def _request(self, api: Api, request: object) -> Any:
        while True:
            try:
                answer = await self._peer.request(api, request)
            except PeerUnreachable:
                answer = None
            if answer is not None and answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR:
                return answer
            await asyncio.sleep(max(RETRY_S, self._peer.backoff))


class ControllerChannel:
    """The channel to one incarnation of a broker: pending messages, sent in order until `close`."""

    def __init__(
        self,
        broker: BrokerInfo,
        client: BrokerClient,
        on_leader_and_isr: LeaderAndIsrCallback,
        on_fatal: Callable[[Exception], None],
    ) -> None:
        """`on_leader_and_isr` gets every LeaderAndIsr response before its message counts as
        delivered. `on_fatal` gets errors that no working broker can cause."""
        self.broker = broker
        self._client = client
        self._on_leader_and_isr = on_leader_and_isr
        self._on_fatal = on_fatal
        self._pending = PendingMessages()
        self._not_empty = asyncio.Event()
        self._sender = asyncio.create_task(self._run(), name=f"to broker {broker.id}")

    def send(self, message: Message) -> asyncio.Future[None]:
        """Queue a message; the future is done when the broker has answered or is unreachable."""
        delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._sender.done():
            delivered.set_result(None)
        else:
            self._pending.add(message, delivered)
            self._not_empty.set()
        return delivered

    async def close(self) -> None:
        """Send nothing more; the futures of pending messages are done."""
        self._sender.cancel()
        await asyncio.wait([self._sender])
        await self._client.close()

    async def _run(self) -> None:
        receipts: list[Receipt] = []
        try:
            while True:
                await self._not_empty.wait()
                self._not_empty.clear()
                while self._pending:
                    message, receipts = self._pending.take()
                    await self._deliver(message)
                    _complete(receipts)
        except BrokerClientClosed:
            _log.info("broker unreachable", broker=self.broker.id)
        except Exception as error:
            self._on_fatal(error)
        finally:
            _complete(receipts)
            _complete(self._pending.clear())

    async def _deliver(self, message: Message) -> None:
        match message:
            case LeaderAndIsrRequest():
                answer = await self._client.leader_and_isr(message)
                self._log_error(message, answer.error_code)
                self._on_leader_and_isr(self.broker, answer)
            case UpdateMetadataRequest():
                self._log_error(message, (await self._client.update_metadata(message)).error_code)
            case StopReplicaRequest():
                self._log_error(message, (await self._client.stop_replica(message)).error_code)

    def _log_error(self, message: Message, code: int) -> None:
        if code != ErrorCode.NONE:
            _log.warning(
                "broker refused controller request",
                broker=self.broker.id,
                request=type(message).__name__,
                error_code=code,
            )


class ControllerChannelManager:
    """The channels of one active controller, by broker id."""

    def __init__(
        self,
        connect: BrokerClientFactory,
        on_leader_and_isr: LeaderAndIsrCallback,
        on_fatal: Callable[[Exception], None],
    ) -> None:
        """See `ControllerChannel` for the two callbacks."""
        self._connect = connect
        self._on_leader_and_isr = on_leader_and_isr
        self._on_fatal = on_fatal
        self._channels: dict[int, ControllerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[int]:
        return iter(self._channels)

    def open(self, broker: BrokerInfo) -> None:
        """Open a channel to a broker that has registered."""
        self._channels[broker.id] = ControllerChannel(
            broker, self._connect(broker), self._on_leader_and_isr, self._on_fatal
        )

    def send(self, broker_id: int, message: Message) -> asyncio.Future[None]:
        """See `ControllerChannel.send`."""
        return self._channels[broker_id].send(message)

    def close(self, broker_id: int) -> None:
        """Close one channel in a separate task: the broker may be dead, or slow to respond."""
        self._close(self._channels.pop(broker_id))

    def close_all(self) -> None:
        """Close every channel in the background; `wait_closed` waits for the end."""
        for channel in self._channels.values():
            self._close(channel)

    async def wait_closed(self) -> None:
        """Wait until every channel that was closed has ended."""
        if self._closing:
            await asyncio.wait(self._closing)

    def _close(self, channel: ControllerChannel) -> None:
        task = asyncio.create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _complete(receipts: Iterable[Receipt]) -> None:
    for receipt in receipts:
        if not receipt.done():
            receipt.set_result(None)
