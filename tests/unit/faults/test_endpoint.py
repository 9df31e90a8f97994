"""The endpoint of faults: a page in a browser on this machine does not reach it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from barnabas.broker.server.network import bind_addresses
from barnabas.faults.http.endpoint import FaultsEndpoint
from barnabas.faults.http.operations import Operations, Processes
from barnabas.faults.levers import Brokers, Levers

TOKEN = "the-token-of-the-test"
CHANGE = '{"api": "EndTxn"}'
HEADERS = {
    "Host": "localhost:9500",
    "Content-Type": "application/json",
    "Authorization": f"Bearer {TOKEN}",
}


class Down:
    """One broker that does not run."""

    broker_ids = (1,)

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def reachable(self, broker: int) -> None:
        assert broker in self.broker_ids


@pytest.fixture
async def endpoint() -> AsyncIterator[int]:
    """Return the port of an endpoint whose user has named it `faults.test`."""
    levers = Levers(cast(Brokers, Down()))
    server = FaultsEndpoint(Operations(levers, cast(Processes, _Processes())), TOKEN, "faults.test")
    yield server.start(await bind_addresses("127.0.0.1", 0))
    await server.stop()


class _Processes:
    pause = resume = kill = stop = start = None


async def send(
    port: int, method: str, target: str, body: str = "", **headers: str | None
) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and body of an answer; a header that is None is left out."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {**HEADERS, "Content-Length": str(len(body)), **named}
    lines = [f"{name}: {value}" for name, value in sent.items() if value is not None]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join((f"{method} {target} HTTP/1.1", *lines, "", body)).encode())
    head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *rest = head.decode().split("\r\n")
    found = dict(line.lower().split(": ", 1) for line in rest)
    is_json = found["content-type"] == "application/json"
    return int(first.split()[1]), found, json.loads(answer) if is_json else answer


async def is_unchanged(port: int) -> bool:
    return (await send(port, "GET", "/v1/levers/1"))[0] == 404


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {"Host": "evil.example"}),
        (403, {"Host": "localhost.evil.example:9500"}),
        (403, {"Host": "127.0.0.1.evil.example"}),
        (403, {"Host": ""}),
        (403, {"Host": "localhost@evil.example"}),
        (400, {"Host": None}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "http://localhost:9500"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": ""}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-origin"}),
        (401, {"Authorization": None}),
        (401, {"Authorization": "Bearer other"}),
        (401, {"Authorization": f"Basic {TOKEN}"}),
        (415, {"Content_Type": None}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Type": "application/x-www-form-urlencoded"}),
    ],
)
async def test_request_that_a_page_could_send_changes_nothing(
    endpoint: int, status: int, headers: dict[str, str | None]
) -> None:
    if "Content_Type" in headers:
        headers = {"Content-Type": headers["Content_Type"]}
    found, sent, _ = await send(endpoint, "POST", "/v1/hold", CHANGE, **headers)
    assert found == status
    assert not any(name.startswith("access-control") for name in sent)
    assert await is_unchanged(endpoint)
    # Questions are refused for the same reasons, but need neither token nor body.
    if status == 403:
        assert (await send(endpoint, "GET", "/openapi.json", **headers))[0] == 403


@pytest.mark.parametrize("origin", [{"Origin": "http://evil.example"}, {}])
async def test_question_of_a_browser_gets_no_leave(endpoint: int, origin: dict[str, str]) -> None:
    asked = {"Access_Control_Request_Method": "POST", **origin}
    status, headers, _ = await send(endpoint, "OPTIONS", "/v1/hold", **asked)
    assert status == (403 if origin else 405)
    assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:1", "127.0.0.1:9500", "[::1]:9500", "10.0.0.7"),
        *("faults.test:9500", socket.gethostname()),
    ],
)
async def test_address_and_names_of_this_machine_are_served(endpoint: int, host: str) -> None:
    assert await is_unchanged(endpoint)
    status, headers, answer = await send(endpoint, "POST", "/v1/hold", CHANGE, Host=host)
    assert (status, answer) == (200, {"lever": 1})
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("status", "method", "target", "body"),
    [
        (400, "POST", "/v1/hold", "{"),
        (400, "POST", "/v1/hold", "[]"),
        (400, "POST", "/v1/hold", "[" * 60_000),
        (400, "POST", "/v1/hold", '{"api": "EndTxn", "number": true}'),
        (400, "POST", "/v1/jump-transaction-clock", '{"seconds": 1e999}'),
        (400, "GET", "/v1/leader?topic=t&partition=x", ""),
        (400, "GET", "/v1/leader", ""),
        (413, "POST", "/v1/hold", " " * 70_000),
        (404, "POST", "/v1/levers/1/release", ""),
        (404, "GET", "/v1/brokers/" + "9" * 20 + "/kill", ""),
        (404, "GET", "/", ""),
        (404, "GET", "/v1/levers/1/../../..", ""),
        (405, "GET", "/v1/hold", ""),
        (405, "POST", "/openapi.json", ""),
        (405, "DELETE", "/v1/levers/1", ""),
    ],
)
async def test_wrong_request_gets_a_line(
    endpoint: int, status: int, method: str, target: str, body: str
) -> None:
    found, _, answer = await send(endpoint, method, target, body)
    assert found == status
    assert b"\n" not in json.dumps(answer["error"] if status != 413 else "").encode()


async def test_levers_are_bounded(endpoint: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.faults.http.operations.MOST_LEVERS", 2)
    for number in (1, 2):
        assert (await send(endpoint, "POST", "/v1/hold", CHANGE))[2] == {"lever": number}
    status, _, answer = await send(endpoint, "POST", "/v1/hold", CHANGE)
    assert (status, answer["error"]) == (409, "2 levers are in force: release some")
    for number in range(1, 5):
        assert (await send(endpoint, "POST", f"/v1/levers/{number}/release"))[0] == 200
        assert (await send(endpoint, "POST", "/v1/hold", CHANGE))[0] == 200
    # The counts of the last two are remembered.
    assert [(await send(endpoint, "GET", f"/v1/levers/{each}"))[0] for each in (1, 4)] == [404, 200]


async def test_document_describes_every_operation_in_schemas_that_exist(endpoint: int) -> None:
    status, _, document = await send(endpoint, "GET", "/openapi.json", Authorization=None)
    assert (status, document["openapi"]) == (200, "3.1.0")
    schemas = document["components"]["schemas"]
    assert set(references(document)) == {f"#/components/schemas/{name}" for name in schemas}
    described = [
        operation for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len({each["operationId"] for each in described}) == len(described)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert ("security" in operation) == (method == "post"), path


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)
