"""The connection to a broker at whose address something else answers."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.cluster import peers as peer_module
from barnabas.broker.cluster.cache import Endpoint
from barnabas.broker.cluster.peers import Peer, PeerUnreachable
from barnabas.broker.controller.controller_channel import RemoteBrokerClient
from barnabas.protocol.codec import encode
from barnabas.protocol.messages import api_versions, leader_and_isr
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
