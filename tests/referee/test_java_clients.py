"""Java's clients of the referee's release, and Kafka Streams, beside Apache Kafka itself."""

import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from barnabas.testing.broker import Broker
from tests.support.kafka import jvm
from tests.support.kafka.node import Kafka
from tests.support.kafka.resident import Resident
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("referee-tools")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    with jvm.start(tmp_path_factory.mktemp("java") / "errors") as process:
        yield process


class Site(NamedTuple):
    """A broker, and the port of its metrics; 0 for Kafka."""

    servers: str
    metrics: int


@pytest.fixture(scope="module")
def barnabas() -> Iterator[Site]:
    port = free_port()
    with Broker({"metrics.listener": f"127.0.0.1:{port}"}) as broker:
        yield Site(broker.bootstrap_servers, port)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as node:
        yield Site(node.bootstrap_servers, 0)


@pytest.fixture(params=["kafka", "barnabas"])
def site(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def count(site: Site, pattern: str) -> dict[str, float]:
    """Return the values of the metrics whose line begins with a pattern, by its group."""
    with urlopen(f"http://127.0.0.1:{site.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {found[0]: float(found[1]) for found in re.findall(rf"^{pattern} (\S+)$", text, re.M)}


def requests(site: Site, api: str) -> dict[str, float]:
    """Return the number of requests of an API by version."""
    name = "kafka_network_requestmetrics_requests_total"
    return count(site, rf'{name}\{{request="{api}",version="(\d+)"\}}')


def connections(site: Site) -> float:
    name = "kafka_server_socketservermetrics_connection_creation_total"
    return sum(count(site, rf'{name}\{{listener="(\w+)"\}}').values())


def create(java: Resident, site: Site, topic: str) -> None:
    java.call("create_topic", servers=site.servers, topic=topic, partitions=1, configs={})


def test_connection_of_java_costs_one_exchange(java: Resident, barnabas: Site) -> None:
    """Before ApiVersions 5 each connection had two: the first one was refused."""
    before = connections(barnabas), requests(barnabas, "ApiVersions")
    client = {"servers": barnabas.servers, "topic": "counted", "options": {}}
    read = java.call("exchange", clients=[client], count=3, seconds=0)
    assert read == [["0", "1", "2"]]
    opened = connections(barnabas) - before[0]
    asked = requests(barnabas, "ApiVersions")
    assert opened >= 4
    assert {version: n - before[1].get(version, 0) for version, n in asked.items()} == {"5": opened}


def test_offset_of_a_topic_that_was_created_again_does_not_count(
    java: Resident, site: Site
) -> None:
    for topic in ("again", "kept"):
        create(java, site, topic)
    offsets = java.call("recreate", servers=site.servers, topic="again", kept="kept", group="g")
    assert offsets == {"kept": 7}
    if site.metrics:
        assert requests(site, "TxnOffsetCommit") == {"6": 2}


def test_streams_copies_exactly_once(java: Resident, site: Site, tmp_path: Path) -> None:
    for topic in ("input", "output"):
        create(java, site, topic)
    messages = [
        {"value": b64encode(b"%d" % n).decode(), "headers": [], "timestamp": 1_700_000_000_000}
        for n in range(200)
    ]
    place = {"servers": site.servers, "topic": "input", "options": {}}
    java.call("write", **place, codec="none", messages=messages)
    read = java.call(
        "stream",
        servers=site.servers,
        input="input",
        output="output",
        count=200,
        directory=str(tmp_path),
    )
    assert read == [f"{n}!" for n in range(200)]
