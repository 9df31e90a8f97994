"""The connection to a broker at whose address something else answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.cluster import peers as peer_module
from barnabas.broker.cluster.cache import Endpoint
from barnabas.broker.cluster.peers import Peer, PeerUnreachable
from barnabas.broker.controller.controller_channel import RemoteBrokerClient
from barnabas.protocol.codec import encode
from barnabas.protocol.messages import api_versions, leader_and_isr, write_txn_markers
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest

REQUEST = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[], live_leaders=[])


async def serve_clients_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve as a listener without LeaderAndIsr."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    versions = [api_versions.ApiVersion(api_key=api_versions.API.key, min_version=0, max_version=4)]
    body = frame[4:8] + encode(api_versions.ApiVersionsResponse(api_keys=versions), 4)
    writer.write(len(body).to_bytes(4, "big") + body)
    await reader.read()
    writer.close()


async def serve_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def peer_of(server: asyncio.Server) -> Peer:
    at = Endpoint(*server.sockets[0].getsockname())
    return Peer(lambda: at, asyncio.get_running_loop().create_connection, client_id="broker-1")


@pytest.mark.parametrize("serve", [serve_clients_only, serve_nonsense])
async def test_server_without_broker_requests_is_unreachable(serve: Any) -> None:
    """Brokers with other listener names get requests that they cannot serve. A controller that
    treated this as a failure of its own would resign, and so would its successors."""
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        pauses = []
        for _ in range(2):
            with pytest.raises(PeerUnreachable):
                await peer.request(leader_and_isr.API, REQUEST, timeout=5)
            pauses.append(peer.backoff)
            await asyncio.sleep(peer.backoff)
        assert pauses[1] > pauses[0] > 0
        channel = RemoteBrokerClient(peer)
        telling = asyncio.create_task(channel.leader_and_isr(REQUEST))
        done, _ = await asyncio.wait([telling], timeout=0.05)
        assert not done, "until its registration is gone it may turn out to be a broker"
        telling.cancel()
        await asyncio.wait([telling])
        await channel.close()


@pytest.mark.parametrize("ends", ["abort", "close"])
async def test_connection_attempt_to_a_lost_broker_is_aborted(ends: str) -> None:
    """Its listener accepts connections and does not answer: seconds, after each failover."""
    heard = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        asking = asyncio.create_task(peer.request(leader_and_isr.API, REQUEST))
        await heard.wait()
        if ends == "abort":
            peer.abort()
        else:
            await peer.close()
        done, _ = await asyncio.wait([asking], timeout=peer_module.CONNECT_TIMEOUT_S / 2)
        assert done
        with pytest.raises(PeerUnreachable):
            await asking
        assert not peer.backoff, "it is tried again at once where it is now"


async def test_cancelled_first_request_leaves_no_connection_behind() -> None:
    heard, left = asyncio.Event(), asyncio.Event()

    async def see_it_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        # Read to the end of the data, or of the connection.
        await asyncio.wait([asyncio.ensure_future(reader.read())])
        left.set()
        writer.close()

    async with await asyncio.start_server(see_it_out, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        asking = asyncio.create_task(peer.request(leader_and_isr.API, REQUEST))
        await heard.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(peer_module.CONNECT_TIMEOUT_S / 2):
            await left.wait()


class MarkerLeader:
    """A server of WriteTxnMarkers that a test tells when to answer."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.connections = 0
        self.requests = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        api = write_txn_markers.API
        served = [api_versions.ApiVersion(api_key=api.key, min_version=0, max_version=2)]
        while size := await reader.read(4):
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            key = int.from_bytes(frame[:2], "big")
            if key == api.key:
                self.requests += 1
                await self.answers.wait()
                body = b"\0" + encode(write_txn_markers.WriteTxnMarkersResponse(markers=[]), 2)
            else:
                body = encode(api_versions.ApiVersionsResponse(api_keys=served), 4)
            body = frame[4:8] + body
            writer.write(len(body).to_bytes(4, "big") + body)
        writer.close()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()


class Answers:
    """The answers to submitted requests."""

    def __init__(self, peer: Peer) -> None:
        self.given: list[Any] = []
        self._peer = peer

    def submit(
        self,
        *,
        version: int = 2,
        timeout: float = 5.0,
        after: Callable[[], None] = lambda: None,
    ) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def then(response: Any) -> None:
            self.given.append(response)
            after()
            if not answer.done():
                answer.set_result(response)

        request = write_txn_markers.WriteTxnMarkersRequest(markers=[])
        api = write_txn_markers.API
        self._peer.submit(api, request, then, version=version, timeout=timeout)
        assert not answer.done(), "the caller has not returned yet"
        return answer


async def test_submitted_requests_open_the_connection_and_use_it() -> None:
    leader = MarkerLeader()
    async with await asyncio.start_server(leader.serve, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        answers = Answers(peer)
        for _ in range(3):
            assert (await answers.submit(timeout=0.5)).markers == []
        await asyncio.sleep(0.6)
        assert (await answers.submit()).markers == []
        assert (leader.connections, leader.requests) == (1, 4)
        await peer.close()
        assert await answers.submit() is None


async def test_submitted_request_without_answer_in_time_drops_the_connection() -> None:
    leader = MarkerLeader()
    async with await asyncio.start_server(leader.serve, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        answers = Answers(peer)
        await answers.submit()
        leader.answers.clear()
        next_ones = []

        def send_the_next() -> None:
            leader.answers.set()
            next_ones.append(answers.submit())

        assert await answers.submit(timeout=0.01, after=send_the_next) is None
        assert await next_ones[0] is not None
        assert leader.connections == 2
        assert len(answers.given) == 3, "each once"
        await peer.close()


async def test_submitted_request_is_lost_with_its_connection() -> None:
    leader = MarkerLeader()
    async with await asyncio.start_server(leader.serve, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        answers = Answers(peer)
        await answers.submit()
        leader.answers.clear()
        first, second = answers.submit(), answers.submit()
        peer.abort()
        assert (await first, await second) == (None, None)
        leader.answers.set()
        await answers.submit()
        leader.answers.clear()
        lost = answers.submit()
        leader.hang_up()
        assert await lost is None
        leader.answers.set()
        await peer.close()


async def test_submitted_request_that_cannot_be_sent_is_answered_with_none() -> None:
    leader = MarkerLeader()
    async with await asyncio.start_server(leader.serve, "127.0.0.1", 0) as server:
        peer = await peer_of(server)
        answers = Answers(peer)
        assert await answers.submit(version=99) is None, "by the connection's task"
        assert await answers.submit() is not None
        async with asyncio.timeout(1):
            assert await answers.submit(version=99) is None
        assert await answers.submit() is not None
        await peer.close()
