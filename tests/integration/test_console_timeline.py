"""The timeline of the console: the events of all brokers, by kind and by subject."""

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from barnabas.testing import Broker
from tests.support.levers import TOKEN, BrokersWithLevers, brokers_with_levers
from tests.support.ports import free_port
from tests.support.running_console import RunningConsole, confirmation
from tests.support.waiting import until
from tests.support.watched import Watched


@pytest.fixture(scope="module")
def cluster() -> Iterator[Watched]:
    with Watched() as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.wait_until_in_sync()
        yield cluster


@pytest.fixture(scope="module")
def console(cluster: Watched) -> Iterator[RunningConsole]:
    with RunningConsole(cluster.bootstrap_servers) as console:
        yield console


def test_timeline_has_the_events_of_all_brokers(console: RunningConsole) -> None:
    words = console.get("/timeline").words
    assert "are missing" not in words
    for broker in (1, 2, 3):
        assert f"broker_started broker {broker} broker started: " in words
    assert "controller elected: epoch 1" in words


def test_timeline_filters_by_kind_and_subject(cluster: Watched, console: RunningConsole) -> None:
    leader = cluster.leader_of("orders")
    cluster.move_leader("orders", 0, next(each for each in (1, 2, 3) if each != leader))
    until(lambda: "leader elected" in console.get("/timeline", q="ORDERS").words)
    page = console.get("/timeline", q="orders")
    assert "broker started: " not in page.words
    assert "/topic?name=orders" in page.links
    assert "controller elected: " not in console.get("/timeline", kind="leader_elected").words
    assert "0 events" in console.get("/timeline", kind="<b>").words
    assert "leader elected" in console.get("/timeline", q="orders", since="-1h").words
    assert "0 events" in console.get("/timeline", until="-1h").words
    assert console.request("/timeline?since=soon").status == 400


def test_events_of_a_killed_broker_stay_and_its_silence_is_said(
    cluster: Watched, console: RunningConsole
) -> None:
    killed = next(each for each in (1, 2, 3) if each != cluster.controller)
    started = f"broker_started broker {killed} broker started: "
    assert started in console.get("/timeline").words
    cluster.kill(killed)
    until(lambda: f"gone [{killed}]" in console.request("/timeline").words)
    words = console.get("/timeline").words
    assert started in words
    assert f"Events of broker {killed} are missing: " in words
    cluster.start_broker(killed)
    until(lambda: console.request("/timeline").words.count(started) == 2)
    assert "last_run killed" in console.get("/timeline").words


def test_events_are_read_with_the_token(tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text("scrape-me\n")
    keys = {
        "metrics.listener": f"127.0.0.1:{free_port()}",
        "metrics.listener.token.file": str(token),
    }
    with Broker(keys) as broker:
        with RunningConsole(broker.bootstrap_servers) as console:
            assert "401: a bearer token is needed" in console.get("/timeline").words
        with RunningConsole(broker.bootstrap_servers, token="scrape-me") as console:
            words = console.get("/timeline").words
    assert "broker started" in words
    assert "are missing" not in words


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Iterator[BrokersWithLevers]:
    with brokers_with_levers(tmp_path_factory.mktemp("faulty")) as brokers:
        yield brokers


def pull(console: RunningConsole, sentence: str, **parameters: object) -> None:
    """Ask for a lever, and confirm what the page says."""
    path = f"/lever?{urlencode(parameters)}"
    page = console.get(path)
    assert sentence in page.words
    address, fields = confirmation(page)
    done = console.post(address, **fields)
    assert done.status == 200, done.words
    assert f"Done. {sentence}" in done.words


def test_lever_is_pulled_seen_and_healed(faulty: BrokersWithLevers) -> None:
    servers, at = faulty
    options = {"allow_changes": True, "faults": at, "faults_token": TOKEN}
    with RunningConsole(servers, **options) as console:
        assert "1 running" in console.get("/timeline").words
        # While brokers are killed and cut off, a page may say that none has answered.
        pull(console, "Broker 2 will be killed", do="kill", broker=2)
        # A controller that is killed cannot say that it is gone; the next one says that it leads.
        seen = re.compile(r"gone \[2\], new \[\]|controller elected: epoch 2")
        until(lambda: seen.search(console.request("/timeline").words))
        assert "2 down" in console.get("/timeline").words
        pull(console, "Broker 2 will be started.", do="start", broker=2)
        until(lambda: "last_run killed" in console.request("/timeline").words)
        pull(console, "Broker 1 will be cut off from its clients", do="cut-clients", broker=1)
        until(lambda: "cut the links of clients" in console.request("/timeline").words)
        pull(console, "All links that were cut will be whole again.", do="heal")
        until(lambda: "fault healed: links all" in console.request("/timeline").words)
        fields = {"do": "error", "api": "EndTxn", "code": "NOT_COORDINATOR", "topic": "<b>"}
        pull(console, "Requests of EndTxn, topic <b>: Each is refused with NOT_COORD", **fields)
        until(lambda: "Release" in console.request("/timeline").words)
        (number,) = re.findall(r'name="lever" value="(\d+)"', console.get("/timeline").text)
        pull(console, f"Lever {number} will be released", do="release", lever=number)
        until(lambda: "Release" not in console.request("/timeline").words)
        path, kept = confirmation(console.request("/lever?do=kill&broker=7"))
        assert console.post("/lever?do=kill&broker=1", **kept).status == 403
        answered = console.post(path, **kept)
        assert (answered.status, "there is no broker 7" in answered.words) == (409, True)


def test_levers_are_offered_only_where_changes_are_allowed(faulty: BrokersWithLevers) -> None:
    servers, at = faulty
    with RunningConsole(servers, faults=at, faults_token=TOKEN) as console:
        assert "Levers" not in console.get("/timeline").words
        assert console.request("/lever?do=heal").status == 404
    with RunningConsole(servers, allow_changes=True) as console:
        assert "Levers" not in console.get("/timeline").words
        assert console.request("/lever?do=heal").status == 404
    with RunningConsole(servers, allow_changes=True, faults=at, faults_token="x" * 20) as console:
        path, fields = confirmation(console.get("/lever?do=heal"))
        answered = console.post(path, **fields)
        assert (answered.status, "needs Authorization" in answered.words) == (409, True)
        for wrong in ("do=dance", "do=jump&seconds=-1", "do=hold", "", "do=kill&broker=x"):
            assert console.request(f"/lever?{wrong}").status == 400
