"""The console as a server: who may ask it, what its answers allow, and what it asks the brokers."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.console import reads, shared
from barnabas.console.pages import groups
from barnabas.operations.answers.groups import DescribedGroup
from barnabas.operations.group_description import describe_groups
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.command_line import environment, niceness, run
from tests.support.ports import free_port
from tests.support.running_console import RunningConsole
from tests.support.waiting import until

METRICS = f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"metrics.listener": METRICS}) as broker:
        broker.create_topic("orders", partitions=3)
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers) as console:
        yield console


def requests(*apis: str) -> int:
    """Return how many requests of some APIs the broker has got."""
    with urllib.request.urlopen(f"http://{METRICS}/metrics") as answer:
        text = answer.read().decode()
    counted = rf'kafka_network_requestmetrics_requests_total\{{request="(?:{"|".join(apis)})".*\}}'
    return int(sum(map(float, re.findall(rf"^{counted} (\S+)$", text, re.M))))


def test_overview_counts_what_the_cluster_has(console: RunningConsole) -> None:
    words = console.get("/").words
    assert "Brokers 1" in words
    assert "Topics 1" in words
    assert "Partitions 3" in words


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example:8080",
        "127.0.0.1.rebound.example",
        "localhost.rebound.example:8080",
        "localhost:8080@rebound.example",
        "[::1]rebound.example",
        "[rebound.example]",
        "",
    ],
)
def test_host_that_is_not_ours_is_refused(console: RunningConsole, host: str) -> None:
    answered = console.request("/", headers={"Host": host})
    assert answered.status == 421
    assert "orders" not in answered.text


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "LOCALHOST:1", "[::1]:8080"])
def test_host_of_this_machine_is_served(console: RunningConsole, host: str) -> None:
    assert console.request("/", headers={"Host": host}).status == 200


def test_host_that_is_allowed_is_served(broker: Broker) -> None:
    with RunningConsole(broker.bootstrap_servers, allowed_hosts=("Console.example",)) as console:
        assert console.request("/", headers={"Host": "console.example:80"}).status == 200
        assert console.request("/", headers={"Host": "other.example:80"}).status == 421


def test_request_with_two_hosts_is_refused(console: RunningConsole) -> None:
    connection = http.client.HTTPConnection(console.host, timeout=60)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", "localhost")
    connection.putheader("Host", "rebound.example")
    connection.endheaders()
    assert connection.getresponse().status in (400, 421)
    connection.close()


@pytest.mark.parametrize("origin", ["http://rebound.example", "null", "http://localhost:1"])
def test_request_from_another_origin_is_refused(console: RunningConsole, origin: str) -> None:
    assert console.request("/", headers={"Origin": origin}).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_console_without_changes_takes_reads_only(console: RunningConsole, method: str) -> None:
    answered = console.request("/", method=method)
    assert answered.status == 405
    assert answered.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/static/console.css", "/nothing", "/live?"])
def test_every_answer_forbids_foreign_and_inline_code(console: RunningConsole, path: str) -> None:
    answered = console.request(path, method="HEAD" if path == "/live?" else "GET")
    policy = answered.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answered.headers["X-Content-Type-Options"] == "nosniff"
    assert answered.headers["Cache-Control"] == "no-store"
    assert "server" not in answered.headers


def test_page_has_no_inline_code_and_nothing_from_elsewhere(console: RunningConsole) -> None:
    answered = console.get("/")
    assert answered.code == []
    used = re.findall(r'(?:src|href)="(.*?)"', answered.text)
    assert all(re.match(r"/(?!/)|#", each) for each in used), used


def test_unknown_page_is_a_page(console: RunningConsole) -> None:
    answered = console.request("/<b>nothing</b>")
    assert answered.status == 404
    assert "Not Found" in answered.words


def test_static_files_are_whole_and_no_others_are_served(console: RunningConsole) -> None:
    assert "htmx" in console.get("/static/htmx.min.js").text
    assert "Zero-Clause BSD" in console.get("/static/htmx.LICENSE.txt").text
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/"):
        assert console.request(path).status == 404


def test_live_stream_ticks(console: RunningConsole) -> None:
    connection = http.client.HTTPConnection(console.host, timeout=60)
    connection.request("GET", "/live")
    response = connection.getresponse()
    assert response.headers.get_content_type() == "text/event-stream"
    lines = []
    while not lines or lines[-1] != b"data: 1\n":
        lines.append(response.readline())
    assert b"event: tick\n" in lines
    connection.close()


def test_metadata_is_asked_for_once_a_second_for_all_tabs(console: RunningConsole) -> None:
    before, began = requests("Metadata"), monotonic()
    with ThreadPoolExecutor(10) as tabs:
        # The broker's own metrics decide; the first pages may have an answer of before.
        while (asked := requests("Metadata") - before) < 2:
            list(tabs.map(lambda _: console.get("/"), range(10)))
            took = monotonic() - began
            assert took < 30
    # One request may have begun just before.
    assert asked <= took + 2, (asked, took)


def set_offsets(broker: Broker, groups: Iterable[str]) -> None:
    async def work() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            for group in groups:
                await GroupAdmin(cluster).set_offsets(group, {TopicPartition("orders", 0): 0})

    asyncio.run(work())


def test_list_of_groups_asks_a_broker_for_all_of_them_at_once(broker: Broker) -> None:
    """Half a dozen requests for each group were 5 % of a core, and other clients felt them."""
    set_offsets(broker, (f"list-{number:02d}" for number in range(20)))
    apis = "DescribeGroups", "ConsumerGroupDescribe", "OffsetFetch", "ListOffsets"
    with RunningConsole(broker.bootstrap_servers) as console:
        before = requests(*apis)
        assert console.get("/groups").words.count("classic Empty 0 0 0 0") == 20
        assert 4 <= requests(*apis) - before <= 6


def test_pages_share_one_look_at_all_partitions(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page asked for two offsets of all partitions, again and again: of 10,000, that took a
    broker 0.3 s each 10 s."""
    monkeypatch.setattr(shared, "_REST_S", 60.0)
    with RunningConsole(broker.bootstrap_servers) as console:
        before = requests("ListOffsets")
        for _ in range(2):
            until(lambda: "Checked" in console.get("/").words)
            until(lambda: " ago." in console.get("/transactions").words)
            monkeypatch.setattr(reads, "_SLOW_S", 0.0)
        assert requests("ListOffsets") - before == 2


def test_group_that_cannot_be_described_costs_its_own_row_only(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_offsets(broker, (f"row-{number}" for number in range(3)))

    async def describe(cluster: Cluster, names: Sequence[str]) -> dict[str, DescribedGroup]:
        if "row-1" in names:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "it is moving")
        return await describe_groups(cluster, names)

    monkeypatch.setattr(groups, "describe_groups", describe)
    with RunningConsole(broker.bootstrap_servers) as console:
        words = console.get("/groups", search="row-").words
    for group in ("row-0", "row-2"):
        assert f"{group} classic Empty 0 0 0 0" in words
    assert "it is moving" in words


def test_cluster_that_is_down_is_a_page_and_comes_back() -> None:
    port = free_port()
    with RunningConsole(f"127.0.0.1:{port}") as console:
        answered = console.request("/")
        assert answered.status == 502
        assert "The cluster does not answer" in answered.words
        with Broker(port=port):
            deadline = monotonic() + 30
            while console.request("/").status != 200:
                assert monotonic() < deadline


def test_command_says_its_address_yields_to_brokers_and_ends_at_sigterm(
    broker: Broker,
) -> None:
    arguments = ["console", "-b", broker.bootstrap_servers, "--port", "0", "--json"]
    command = [sys.executable, "-m", "barnabas", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(address) as answer:
            assert b"Overview" in answer.read()
        assert niceness(process.pid) == min(niceness(0) + 10, 19)
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_address_in_use_is_one_line(broker: Broker, console: RunningConsole) -> None:
    port = console.host.rpartition(":")[2]
    done = run("console", "-b", broker.bootstrap_servers, "--port", port)
    assert done.returncode == 1
    assert b"in use" in done.stderr
    assert done.stderr.count(b"\n") == 1
