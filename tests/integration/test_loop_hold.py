"""Requests of as many elements as a broker accepts, and of more, do not hold its event loop.

`python -m benchmarks.alone hold` has the figures; the bound here leaves room for a busy machine.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.cluster.registration import stored_epochs
from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.broker.security import cluster_acls
from barnabas.config.broker import AUTHORIZERS
from barnabas.protocol.codec import encode
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    create_acls,
    create_delegation_token,
    delete_acls,
    expect_producers,
    incremental_alter_configs,
    metadata,
)
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.describe_client_quotas import EntityData
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.schema import MAX_REQUEST_ELEMENTS, Api
from tests.support import raw
from tests.support.data_path import connected, running
from tests.support.garbage import without_collector
from tests.support.in_cluster import BROKERS, member, shared_metadata
from tests.support.large_messages import Path as ArrayPath
from tests.support.large_messages import around, arrays, large_message
from tests.support.machine import bound
from tests.support.named_users import KEYS

LONGEST_S = 0.05
"""The bound, in CPU time of the loop's thread. The handlers in one step take 0.1 to 0.9 s."""
ATTEMPTS = 3
"""A step that is too long is so each time; a busy machine is not."""
TOO_MANY = 400_000
OF_BROKERS = 200_000
"""Elements of requests between brokers. A controller may send a million."""
PARTS = 6
"""The cases are in several tests, which can run beside each other."""
NUMBER = 1_234_567
"""The number of the first element, found in its bytes and replaced."""
ANSWERED_WITHIN_S = 60


class Probe:
    """The longest CPU time of the loop's thread between two ticks of a timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest, self._seen = 0.0, time.thread_time()
        self._tick()

    def _see(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._seen)
        self._seen = now

    def _tick(self) -> None:
        self._see()
        self._timer = self._loop.call_later(0.001, self._tick)

    def longest(self) -> float:
        """Return the longest time since the last call."""
        self._see()
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        self._timer.cancel()


Cases = Iterable[tuple[Api, int, ArrayPath]]
Fill = Callable[[Any], None]
"""Sets the fields of a request that the smallest values would have refused."""


def newest() -> Cases:
    """Yield the first and the innermost array of the newest version of each API of clients."""
    return _cases(lambda row: row.clients[-1:])


def oldest() -> Cases:
    """Yield the first and the innermost array of the oldest version of each API of clients."""
    return _cases(lambda row: row.clients[:1])


def of_brokers() -> Cases:
    """Yield the arrays of the newest version of each API that only brokers may use, and that has an
    answer."""

    def newest(row: ApiRow) -> range:
        answered = row.api is not expect_producers.API
        return row.versions[-1:] if answered and row.versions != row.clients else range(0)

    return _cases(newest)


def all_versions() -> Cases:
    """Yield the first and the innermost array of each version of each API of clients."""
    return _cases(lambda row: row.clients)


def _cases(versions: Callable[[ApiRow], range]) -> Cases:
    for row in API_TABLE:
        for version in versions(row):
            paths = list(arrays(row.api.request, version))
            for path in dict.fromkeys([*paths[:1], *sorted(paths, key=len)[-1:]]):
                yield row.api, version, path


def as_it_is(request: Any) -> None:
    """Change nothing."""
    del request


def small_body(
    api: Api, version: int, path: ArrayPath, elements: int, fill: Fill = as_it_is
) -> bytes:
    request: Any = large_message(
        api.request, version, path, elements, distinct=True, first_number=NUMBER
    )
    if isinstance(request, ProduceRequest):
        request.acks = 1
    if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
        for resource in request.resources:
            # To judge the configurations of 100,000 topics takes long: `judged` does one of each.
            resource.resource_type = 0
    fill(request)
    return bytes(encode(request, version))


def body(
    api: Api,
    version: int,
    path: ArrayPath,
    elements: int,
    *,
    distinct: bool,
    tags: bytes = b"",
    fill: Fill = as_it_is,
) -> bytes:
    """Return a request of many elements; to encode it in the usual way takes a second.

    `tags` take the place of the empty section of tagged fields at the end of each element.
    """
    one, two = (small_body(api, version, path, count, fill) for count in (1, 2))
    at = next(place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    end = at + 1 + len(two) - len(one)
    count = elements - around(path)
    if api.is_flexible(version):
        start, length = at, uvarint(count + 1)
    else:
        start, length = at - 3, count.to_bytes(4)
    element = one[at + 1 : end]
    if tags:
        element = element[:-1] + tags
    parts = [element] * count
    if distinct:
        text, number = str(NUMBER).encode(), NUMBER.to_bytes(4)
        parts = [
            element.replace(text, b"%d" % each).replace(number, each.to_bytes(4))
            for each in range(NUMBER, NUMBER + count)
        ]
    return b"".join([one[:start], length, *parts, one[end:]])


def uvarint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def ask(port: int, api: Api, version: int, request: bytes) -> bool:
    """Send a request; return whether it is answered. Otherwise the connection is closed."""
    with raw.Connection("127.0.0.1", port, "hold", ANSWERED_WITHIN_S) as connection:
        try:
            connection.post_bytes(api, version, request)
            connection.take()
        except (raw.Closed, ConnectionError):
            return False
        return True


async def longest_holds(
    directory: Path, cases: Cases, elements: int, *, distinct: bool, tags: bytes = b""
) -> dict[str, float]:
    """Send each case to a broker; return the longest time, where it is over the bound."""
    async with running(directory) as broker:
        requests = (
            (api, version, path, body(api, version, path, elements, distinct=distinct, tags=tags))
            for api, version, path in cases
        )
        return await holds_of(broker.port, requests)


async def holds_of(
    port: int, requests: Iterable[tuple[Api, int, ArrayPath, bytes]]
) -> dict[str, float]:
    held: dict[str, float] = {}
    with without_collector():
        probe = Probe()
        for api, version, path, request in requests:
            longest = []
            while len(longest) < ATTEMPTS:
                probe.longest()
                await asyncio.to_thread(ask, port, api, version, request)
                longest.append(probe.longest())
                if longest[-1] <= bound(LONGEST_S):
                    break
            else:
                name = f"{api.name} v{version} {'.'.join(each.name for each in path)}"
                held[name] = min(longest)
        probe.stop()
    return held


@pytest.mark.parametrize("part", range(PARTS))
async def test_most_elements_do_not_hold_the_loop(part: int, tmp_path: Path) -> None:
    cases = islice(newest(), part, None, PARTS)
    assert not await longest_holds(tmp_path, cases, MAX_REQUEST_ELEMENTS, distinct=True)


@pytest.mark.parametrize("part", range(PARTS))
async def test_equal_elements_in_old_versions_do_not_hold_the_loop(
    part: int, tmp_path: Path
) -> None:
    cases = islice(oldest(), part, None, PARTS)
    assert not await longest_holds(tmp_path, cases, MAX_REQUEST_ELEMENTS, distinct=False)


async def test_too_many_elements_do_not_hold_the_loop_in_any_version(tmp_path: Path) -> None:
    assert not await longest_holds(tmp_path, all_versions(), TOO_MANY, distinct=False)


async def test_tagged_fields_of_many_elements_do_not_hold_the_loop(tmp_path: Path) -> None:
    """Each element has ten fields that no version knows; all together are too many."""
    cases = (
        (api, version, path)
        for api, version, path in newest()
        if api.is_flexible(version) and (path[-1].type.item or path[-1].type).struct is not None
    )
    tags = bytes([10, *(byte for tag in range(100, 110) for byte in (tag, 0))])
    assert not await longest_holds(tmp_path, cases, MAX_REQUEST_ELEMENTS, distinct=False, tags=tags)


async def test_tagged_fields_of_a_header_do_not_hold_the_loop(tmp_path: Path) -> None:
    count = 2_000_000
    # API, version, correlation id, no client id, and fields without bytes.
    header = (
        metadata.API.key.to_bytes(2) + (12).to_bytes(2) + bytes(4) + b"\xff\xff" + uvarint(count)
    )
    frame = header + count * b"\x64\x00"
    async with running(tmp_path) as broker:
        with without_collector():
            probe = Probe()
            await asyncio.to_thread(send_frame, broker.port, frame)
            longest = probe.longest()
            probe.stop()
    assert longest <= bound(LONGEST_S)


def send_frame(port: int, frame: bytes) -> None:
    """Send a frame, and wait until the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWERED_WITHIN_S) as peer:
        with suppress(ConnectionError):
            peer.sendall(len(frame).to_bytes(4) + frame)
            peer.recv(1)


RESOURCES = (
    (ConfigResourceType.TOPIC, "t"),
    (ConfigResourceType.BROKER, "0"),
    (ConfigResourceType.BROKER, ""),
    (ConfigResourceType.BROKER_LOGGER, "0"),
    (ConfigResourceType.CLIENT_METRICS, "m"),
    (ConfigResourceType.GROUP, "g"),
)
JUDGED_KEYS = 60_000
"""So many keys are judged; the texts of 100,000 are too long together."""


async def test_judged_configurations_do_not_hold_the_loop(tmp_path: Path) -> None:
    requests = []
    for api in (alter_configs.API, incremental_alter_configs.API):
        version = api.versions[-1]
        (path,) = (each for each in arrays(api.request, version) if len(each) == 2)
        for kind, name in RESOURCES:

            def fill(request: Any, kind: int = kind, name: str = name) -> None:
                (resource,) = request.resources
                resource.resource_type, resource.resource_name = kind, name
                request.validate_only = isinstance(request, AlterConfigsRequest)

            data = body(api, version, path, JUDGED_KEYS, distinct=True, fill=fill)
            requests.append((api, version, path, data))
    async with running(tmp_path) as broker:
        async with connected(broker) as client:
            await client.create("t")
        assert not await holds_of(broker.port, requests)


def new_rules(request: Any) -> None:
    """Make the elements of CreateAcls valid rules."""
    for each in request.creations:
        each.resource_type, each.resource_pattern_type = 2, 3
        each.operation = each.permission_type = 3
        each.principal = f"User:{each.principal}"


def filters(request: Any) -> None:
    """Make the elements of DeleteAcls valid filters of one name each."""
    for each in request.filters:
        each.resource_type_filter, each.pattern_type_filter = 2, 3
        each.principal_filter = each.host_filter = None
        each.operation = each.permission_type = 1


def all_rules(request: Any) -> None:
    """Make the elements of DeleteAcls filters of all rules."""
    filters(request)
    for each in request.filters:
        each.resource_name_filter = None


def quotas_of_users(request: Any) -> None:
    """Make the elements of AlterClientQuotas valid changes."""
    request.validate_only = True
    for number, each in enumerate(request.entries, NUMBER):
        each.entity = [EntityData(entity_type="user", entity_name=f"n{number}")]
        each.ops = [alter_client_quotas.OpData(key="producer_byte_rate", value=1.0, remove=False)]


async def test_changes_of_rules_and_quotas_do_not_hold_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rules are created, the others are refused."""
    monkeypatch.setattr(cluster_acls, "MAX_BYTES", 256 << 10)
    most = MAX_REQUEST_ELEMENTS
    cases: list[tuple[Api, Fill, int, bool]] = [
        (create_acls.API, new_rules, most, False),
        (create_acls.API, new_rules, most, True),
        (delete_acls.API, all_rules, most, False),
        (delete_acls.API, filters, 20_000, True),
        (delete_acls.API, all_rules, 1, False),
        (alter_client_quotas.API, quotas_of_users, most // 3, True),
    ]
    requests = []
    for api, fill, elements, distinct in cases:
        version = api.versions[-1]
        path = next(arrays(api.request, version))
        data = body(api, version, path, elements, distinct=distinct, fill=fill)
        requests.append((api, version, path, data))
    async with running(
        tmp_path, authorizer_class_name=AUTHORIZERS[0], super_users="User:ANONYMOUS"
    ) as broker:
        assert not await holds_of(broker.port, requests)


async def test_renewers_of_a_token_do_not_hold_the_loop(tmp_path: Path) -> None:
    api, version = create_delegation_token.API, 3
    (path,) = arrays(api.request, version)

    def fill(request: Any) -> None:
        request.owner_principal_name = ""
        for each in request.renewers:
            each.principal_type = "User"

    data = body(api, version, path, MAX_REQUEST_ELEMENTS, distinct=True, fill=fill)
    answers: list[Any] = []

    def come_in_and_ask(port: int) -> None:
        with raw.Connection("127.0.0.1", port, "hold", ANSWERED_WITHIN_S) as connection:
            for request in (
                SaslHandshakeRequest(mechanism="PLAIN"),
                SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice"),
            ):
                connection.post(request, 1)
                assert connection.take().error_code == 0
            connection.post_bytes(api, version, data)
            answers.append(connection.take().error_code)

    async with running(tmp_path, KEYS) as broker:
        with without_collector():
            probe, longest = Probe(), []
            for _ in range(ATTEMPTS):
                await asyncio.to_thread(come_in_and_ask, broker.port)
                longest.append(probe.longest())
            probe.stop()
    assert answers == ATTEMPTS * [ErrorCode.INVALID_REQUEST]
    assert min(longest) <= bound(LONGEST_S)


@pytest.mark.parametrize("forged", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
async def test_requests_of_brokers_do_not_hold_the_loop(
    distinct: bool, forged: bool, tmp_path: Path
) -> None:
    """They may have ten times as many elements; a controller's own epochs are the worst case."""
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path) as broker,
    ):
        epochs = await stored_epochs(store.session(), 0)

        def fill(request: Any) -> None:
            for name, value in epochs._asdict().items():
                if hasattr(request, f"{name}_epoch"):
                    setattr(request, f"{name}_epoch", value + forged)

        requests = (
            (api, version, path, body(api, version, path, count, distinct=distinct, fill=fill))
            for api, version, path in of_brokers()
            if (count := min(OF_BROKERS, api.max_elements))
        )
        assert not await holds_of(broker.ports[BROKERS], requests)
