"""The HTTP endpoint for operators, over real sockets."""

import asyncio
import gzip
import os
import ssl
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.slices import TURN_S
from barnabas.broker.observability.events import EventLog
from barnabas.broker.server import http_server
from barnabas.broker.server.http import MOST_NAMES, OPEN, Access, HttpEndpoint
from barnabas.broker.server.network import bind_addresses
from barnabas.config.key import ConfigError
from barnabas.metrics.registry import Registry
from barnabas.protocol.steps import in_steps
from tests.support.tls_records import RecordClient


def endpoint_of(
    registry: Registry,
    access: Access = OPEN,
    *,
    reasons: Sequence[str] = (),
    behind: Sequence[str] = (),
) -> HttpEndpoint:
    events = EventLog(1, SystemClock())
    return HttpEndpoint(
        registry, lambda: reasons, lambda: in_steps(str, behind), events.after, access
    )


async def start(endpoint: HttpEndpoint) -> int:
    return endpoint.start(await bind_addresses("127.0.0.1", 0))


@pytest.fixture
async def endpoint():
    registry = Registry()
    registry.counter("bytes_total", "Bytes.").cell().value += 3
    reasons: list[str] = []
    endpoint = endpoint_of(registry, reasons=reasons)
    port = await start(endpoint)
    yield port, reasons
    await endpoint.stop()


async def exchange(
    port: int, request: bytes, tls: ssl.SSLContext | None = None
) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
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


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name[]=bytes_total", {"bytes_total"}),
        ("name%5B%5D=size&name%5B%5D=bytes_total", {"bytes_total", "size"}),
        ("name[]=none", set()),
        ("name=size", {"bytes_total", "size"}),
        ("&".join(["name[]=size"] * 101), set()),
    ],
)
async def test_scrape_has_the_metrics_that_it_names(query, names):
    registry = Registry()
    registry.counter("bytes_total", "Bytes.").cell().value += 3
    registry.gauge("size", "Size.").cell().value = 4
    endpoint = endpoint_of(registry)
    head, body = await get(await start(endpoint), f"/metrics?{query}")
    assert head.startswith("HTTP/1.1 200 OK")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    assert {line.partition(" ")[0] for line in lines} == names
    await endpoint.stop()


@pytest.mark.parametrize(
    ("accepted", "gzipped"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("deflate, identity", False),
    ],
)
async def test_scrape_is_compressed_for_those_who_accept_it(endpoint, accepted, gzipped):
    port, _ = endpoint
    request = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accepted}\r\n\r\n"
    head, body = await exchange(port, request.encode())
    assert ("Content-Encoding: gzip" in head) == gzipped
    assert f"Content-Length: {len(body)}" in head
    assert b"bytes_total 3.0\n" in (gzip.decompress(body) if gzipped else body)


@pytest.mark.parametrize("accepted", ["", "Accept-Encoding: gzip\r\n"])
async def test_scrape_lets_other_tasks_run(accepted):
    registry, passed = Registry(), 0
    sizes = registry.gauge("size", "Size.", ("partition",))
    for partition in range(5000):
        sizes.cell(str(partition)).value = partition
    endpoint = endpoint_of(registry)
    port = await start(endpoint)

    request = f"GET /metrics HTTP/1.1\r\nHost: x\r\n{accepted}\r\n".encode()
    scrape = asyncio.ensure_future(exchange(port, request))
    while not scrape.done():
        passed += 1
        await asyncio.sleep(0)
    await endpoint.stop()

    assert passed >= 10
    _, body = scrape.result()
    assert (gzip.decompress(body) if accepted else body).count(b"\n") == 5002


async def test_readiness_follows_its_reasons(endpoint):
    port, reasons = endpoint
    assert (await get(port, "/readyz"))[1] == b"ready\n"
    reasons.append("log recovery is not done")
    head, body = await get(port, "/readyz")
    assert head.startswith("HTTP/1.1 503 ")
    assert body == b"log recovery is not done\n"
    assert (await get(port, "/healthz"))[1] == b"ok\n"


async def test_sync_state_follows_the_partitions_and_names_some_of_them():
    behind, reasons = [], ["starting or stopping"]
    endpoint = endpoint_of(Registry(), reasons=reasons, behind=behind)
    port = await start(endpoint)
    head, body = await get(port, "/syncz")
    assert (head.split(" ")[1], body) == ("503", b"starting or stopping\n")
    reasons.clear()
    head, body = await get(port, "/syncz")
    assert (head.split(" ")[1], body) == ("200", b"in sync\n")
    behind += ["t-0", "t-1"]
    head, body = await get(port, "/syncz")
    assert (head.split(" ")[1], body) == ("503", b"t-0 is not in sync\nt-1 is not in sync\n")
    behind += [f"t-{index}" for index in range(2, 5000)]
    _, body = await get(port, "/syncz")
    lines = body.decode().splitlines()
    assert len(lines) == MOST_NAMES + 1
    assert lines[-1] == f"{5000 - MOST_NAMES} partitions are not in sync"
    await endpoint.stop()


async def test_names_of_partitions_are_for_those_who_have_the_token(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    endpoint = endpoint_of(Registry(), Access(token=str(token)), behind=["secret-topic-0"])
    port = await start(endpoint)
    head, body = await get(port, "/syncz")
    assert (head.split(" ")[1], body) == ("503", b"1 partitions are not in sync\n")
    request = b"GET /syncz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n"
    assert (await exchange(port, request))[1] == b"secret-topic-0 is not in sync\n"
    await endpoint.stop()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        (b"nonsense\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000 + b"\r\n\r\n", "400"),
    ],
)
async def test_other_requests_get_their_status(endpoint, request_bytes, status):
    port, _ = endpoint
    head, _ = await exchange(port, request_bytes)
    assert head.split(" ")[1] == status


async def test_head_request_gets_no_body(endpoint):
    port, _ = endpoint
    head, body = await exchange(port, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert "Content-Length: 3" in head
    assert body == b""


async def test_client_that_disconnects_early_harms_no_other(endpoint):
    port, _ = endpoint
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /met")
    writer.transport.abort()
    assert (await get(port, "/healthz"))[1] == b"ok\n"


async def test_stop_aborts_a_slow_client():
    endpoint = endpoint_of(Registry())
    port = await start(endpoint)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\n")
    await get(port, "/healthz")

    await endpoint.stop()

    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_oldest_slow_clients_make_way_and_leave_descriptors_for_others(endpoint):
    port, _ = endpoint
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
    for _, writer in crowd:
        writer.write(b"GET /hea")
    async with asyncio.timeout(1):
        for reader, _ in crowd[:16]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert (await get(port, "/healthz"))[1] == b"ok\n"
    for _, writer in crowd:
        writer.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTT", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_probes_are_answered_while_two_thousand_slow_clients_connect(endpoint, sent):
    port, _ = endpoint
    stop = asyncio.Event()

    async def come_again() -> None:
        while not stop.is_set():
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                crowd.append(writer)

    crowd: list[asyncio.StreamWriter] = []
    comers = [asyncio.create_task(come_again()) for _ in range(8)]
    answered = 0
    async with asyncio.timeout(30):
        while len(crowd) < 2000:
            for path, body in (("/livez", b"ok\n"), ("/readyz", b"ready\n")):
                async with asyncio.timeout(1):
                    assert (await get(port, path))[1] == body
                answered += 1
    stop.set()
    await asyncio.gather(*comers)
    assert answered >= 4
    for writer in crowd:
        writer.close()


async def test_head_of_a_request_has_a_deadline(endpoint, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    port, _ = endpoint
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\r\n")
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 1) == b""
    writer.close()


# -- TLS and the token -----------------------------------------------------------------------------


def certify(directory: Path, name: str) -> Access:
    """Write a certificate for localhost and its key; return their files."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    return Access(str(certificate), str(key))


def record_client(access: Access, directory: Path) -> RecordClient:
    authority = Path(access.certificate).read_text()
    return RecordClient(authority, directory, ssl.TLSVersion.TLSv1_3)


async def test_probes_and_scrapes_over_tls_and_a_renewed_certificate(tmp_path):
    served, renewed = certify(tmp_path, "served"), certify(tmp_path, "renewed")
    trusts_old = ssl.create_default_context(cafile=served.certificate)
    trusts_new = ssl.create_default_context(cafile=renewed.certificate)
    endpoint = endpoint_of(Registry(), served)
    port = await start(endpoint)
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"

    assert (await exchange(port, request, trusts_old))[1] == b"ok\n"
    half_shaken = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
    assert (await exchange(port, request, trusts_old))[1] == b"ok\n"
    os.replace(renewed.certificate, served.certificate)
    assert (await exchange(port, request, trusts_old))[1] == b"ok\n", "the key is of the old one"
    os.replace(renewed.key, served.key)
    assert (await exchange(port, request, trusts_new))[1] == b"ok\n"
    with pytest.raises(ssl.SSLError):
        await exchange(port, request, trusts_old)

    for _, writer in half_shaken:
        writer.close()
    await endpoint.stop()


async def test_handshakes_of_a_crowd_share_the_loop_with_others(tmp_path, monkeypatch):
    """Each takes most of a turn: 64 signatures of RSA-4096 in one iteration were 300 ms."""
    loop, shake_hands = asyncio.get_running_loop(), ssl.SSLObject.do_handshake
    taken, answers = [0], []

    def slow(side: ssl.SSLObject) -> None:
        if side.server_side:
            taken[-1] += 1
            time.sleep(TURN_S * 0.8)
        shake_hands(side)

    def tick() -> None:
        taken.append(0)
        if not answers:
            loop.call_soon(tick)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", slow)
    access = certify(tmp_path, "served")
    trusts = ssl.create_default_context(cafile=access.certificate)
    endpoint = endpoint_of(Registry(), access)
    port = await start(endpoint)
    tick()
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    answers += await asyncio.gather(*(exchange(port, request, trusts) for _ in range(20)))
    await endpoint.stop()
    assert {body for _, body in answers} == {b"ok\n"}
    assert sum(taken) >= 20
    assert max(taken) <= 2


async def test_flood_of_key_updates_is_cut(tmp_path):
    access = certify(tmp_path, "served")
    endpoint = endpoint_of(Registry(), access)
    port = await start(endpoint)
    client = record_client(access, tmp_path)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(client.shake_hands())
    while not client.done:
        writer.write(client.shake_hands(await reader.read(1 << 16)))
    writer.write(b"".join(client.key_update() for _ in range(2000)))
    replies = 0
    async with asyncio.timeout(http_server.HEAD_SECONDS / 2):
        with suppress(ConnectionResetError):
            while received := await reader.read(1 << 16):
                replies += len(received)
    assert replies <= 8192
    writer.close()
    await endpoint.stop()


async def test_metrics_ask_for_the_token_of_the_file_and_probes_do_not(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    endpoint = endpoint_of(Registry(), Access(token=str(token)))
    port = await start(endpoint)

    async def scrape(credentials: str) -> str:
        head, _ = await exchange(
            port, f"GET /metrics HTTP/1.1\r\nHost: x\r\n{credentials}\r\n".encode()
        )
        return head.split(" ")[1]

    head, body = await get(port, "/metrics")
    assert head.startswith("HTTP/1.1 401")
    assert "WWW-Authenticate: Bearer" in head
    assert body == b"a bearer token is needed\n"
    assert await scrape("Authorization: Bearer first\r\n") == "200"
    assert await scrape("Authorization: Bearer firs\r\n") == "401"
    assert await scrape("Authorization: Basic first\r\n") == "401"
    for path in ("/livez", "/healthz", "/readyz"):
        assert (await get(port, path))[0].startswith("HTTP/1.1 200")
    token.write_text("second")
    assert await scrape("Authorization: Bearer first\r\n") == "401"
    assert await scrape("Authorization: Bearer second\r\n") == "200"
    token.unlink()
    assert await scrape("Authorization: Bearer second\r\n") == "200"
    assert await scrape("Authorization: Bearer \r\n") == "401"
    await endpoint.stop()


def test_endpoint_refuses_files_without_content(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    with pytest.raises(ConfigError, match="has no token"):
        endpoint_of(Registry(), Access(token=str(empty)))
    with pytest.raises(ConfigError, match="certificate and its key"):
        endpoint_of(Registry(), Access(str(empty), str(empty)))
    with pytest.raises(FileNotFoundError):
        endpoint_of(Registry(), Access(token=str(tmp_path / "missing")))


async def test_stacks_show_threads_and_tasks_without_values() -> None:
    async def waiting_for_nothing(secret: str) -> None:
        await asyncio.sleep(60 if secret else 0)

    waiting = [asyncio.create_task(waiting_for_nothing("hunter2")) for _ in range(3)]
    endpoint = endpoint_of(Registry())
    port = await start(endpoint)
    head, body = await exchange(port, b"GET /stacks HTTP/1.0\r\n\r\n")
    for each in waiting:
        each.cancel()
    await endpoint.stop()
    assert "200 OK" in head
    text = body.decode()
    assert text.startswith("threads\n\n")
    assert "\n\nMainThread\n    " in text
    assert "\n3 task(s)\n    tests/unit/broker/server/test_http.py:" in text
    assert "waiting_for_nothing" in text
    assert "hunter2" not in text
