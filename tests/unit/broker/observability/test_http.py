"""The endpoint for operators, over real sockets."""

import asyncio
from contextlib import suppress

import pytest

from barnabas.broker.observability.http import HttpEndpoint
from barnabas.metrics.registry import Registry


@pytest.fixture
async def endpoint():
    registry = Registry()
    registry.counter("bytes_total", "Bytes.").cell().value += 3
    reasons: list[str] = []
    endpoint = HttpEndpoint(registry, lambda: reasons)
    port = await endpoint.start("127.0.0.1", 0)
    yield port, reasons
    await endpoint.stop()


async def exchange(port: int, request: bytes) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    return head.decode(), body


async def get(port: int, path: str) -> tuple[str, bytes]:
    return await exchange(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_metrics_are_served_in_prometheus_format(endpoint):
    port, _ = endpoint
    head, body = await get(port, "/metrics?name=x")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "Content-Type: text/plain; version=0.0.4" in head
    assert b"bytes_total 3.0\n" in body


async def test_a_scrape_lets_other_work_pass():
    registry, passed = Registry(), 0
    sizes = registry.gauge("size", "Size.", ("partition",))
    for partition in range(5000):
        sizes.cell(str(partition)).value = partition
    endpoint = HttpEndpoint(registry, lambda: ())
    port = await endpoint.start("127.0.0.1", 0)

    scrape = asyncio.ensure_future(get(port, "/metrics"))
    while not scrape.done():
        passed += 1
        await asyncio.sleep(0)
    await endpoint.stop()

    assert passed >= 10
    assert scrape.result()[1].count(b"\n") == 5002


async def test_readiness_follows_its_reasons(endpoint):
    port, reasons = endpoint
    assert (await get(port, "/readyz"))[1] == b"ready\n"
    reasons.append("log recovery is not done")
    head, body = await get(port, "/readyz")
    assert head.startswith("HTTP/1.1 503 ")
    assert body == b"log recovery is not done\n"
    assert (await get(port, "/healthz"))[1] == b"ok\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        (b"nonsense\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000 + b"\r\n\r\n", "400"),
    ],
)
async def test_other_requests_are_answered_by_their_status(endpoint, request_bytes, status):
    port, _ = endpoint
    head, _ = await exchange(port, request_bytes)
    assert head.split(" ")[1] == status


async def test_a_head_request_gets_no_body(endpoint):
    port, _ = endpoint
    head, body = await exchange(port, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert "Content-Length: 3" in head
    assert body == b""


async def test_a_client_that_leaves_early_harms_nobody(endpoint):
    port, _ = endpoint
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /met")
    writer.transport.abort()
    assert (await get(port, "/healthz"))[1] == b"ok\n"


async def test_stopping_breaks_off_a_slow_client():
    endpoint = HttpEndpoint(Registry(), lambda: ())
    port = await endpoint.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n")
    await get(port, "/healthz")

    await endpoint.stop()

    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_crowd_of_slow_clients_does_not_take_the_descriptors_of_others(endpoint):
    port, _ = endpoint
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
    for _, writer in crowd:
        writer.write(b"GET /hea")
    async with asyncio.timeout(5):
        for reader, _ in crowd[64:]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
    for _, writer in crowd:
        writer.close()
    async with asyncio.timeout(5):
        while True:
            with suppress(ConnectionResetError):
                if (await get(port, "/healthz"))[0].startswith("HTTP/1.1 200"):
                    break
