"""The timeline of the console: the events of all brokers, by kind and by subject."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from tests.support.ports import free_port
from tests.support.running_console import RunningConsole
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


def test_events_of_a_killed_broker_stay_and_its_silence_is_said(
    cluster: Watched, console: RunningConsole
) -> None:
    killed = next(each for each in (1, 2, 3) if each != cluster.controller)
    started = f"broker_started broker {killed} broker started: "
    assert started in console.get("/timeline").words
    cluster.kill(killed)
    until(lambda: f"gone [{killed}]" in console.get("/timeline").words)
    words = console.get("/timeline").words
    assert started in words
    assert f"Events of broker {killed} are missing: " in words
    cluster.start_broker(killed)
    until(lambda: console.get("/timeline").words.count(started) == 2)
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
