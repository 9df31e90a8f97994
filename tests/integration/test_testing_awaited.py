"""The awaited form of `Broker` and `Cluster`, and the blocking form on a running event loop."""

import asyncio
import gc
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from barnabas.testing import AsyncBroker, AsyncCluster, Broker, Cluster

DEADLINE = 20.0
AT_ONCE = 1.0
"""Seconds that a refusal may take, on a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        yield cluster


async def test_client_on_the_same_loop_sends_the_request_that_is_held() -> None:
    async with Cluster() as cluster:
        topic = await cluster.create_topic()
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            with cluster.hold("Produce", topic=topic) as held:
                sending = asyncio.create_task(producer.send_and_wait(topic, b"1"))
                await held.arrived(DEADLINE)
                assert not sending.done()
                assert held.touched == 1
            assert (await sending).offset == 0
        assert [each.value for each in await cluster.records(topic, 1)] == [b"1"]


async def test_blocking_wait_on_the_loop_of_the_client_is_refused_at_once(cluster: Cluster) -> None:
    """It stopped the client that was to be held, and ended after 30 s with TimeoutError()."""
    with cluster.hold("DescribeCluster", client_id="absent") as held:
        began = time.monotonic()
        with pytest.raises(
            RuntimeError, match=r"wait\(\) .*event loop.* `await held\.arrived\(\)`"
        ):
            held.wait()
        assert time.monotonic() - began < AT_ONCE


WAITS: dict[str, Callable[[Cluster], object]] = {
    "controller": lambda c: c.controller,
    "leader_of": lambda c: c.leader_of("orders"),
    "coordinator_of": lambda c: c.coordinator_of(group="g"),
    "wait_until_in_sync": lambda c: c.wait_until_in_sync(),
    "start_broker": lambda c: c.start_broker(1),
    "stop_broker": lambda c: c.stop_broker(1),
    "move_leader": lambda c: c.move_leader("orders", 0, 1),
    "move_coordinator": lambda c: c.move_coordinator(1, group="g"),
    "create_topic": lambda c: c.create_topic("never"),
    "produce": lambda c: c.produce("orders", b"never"),
    "records": lambda c: c.records("orders"),
    "lag": lambda c: c.lag("g"),
    "to_read": lambda c: c.to_read("g"),
    "wait_for_group": lambda c: c.wait_for_group("g"),
}


@pytest.mark.parametrize("name", WAITS)
async def test_blocking_call_on_a_running_loop_names_the_awaited_one(
    cluster: Cluster, name: str
) -> None:
    # What earlier tests have left is not the call's.
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match=rf"{name}.* `await cluster\.aio\.{name}"):
            WAITS[name](cluster)
        # A coroutine that is never awaited warns when it is collected.
        gc.collect()
    assert await cluster.aio.records("orders") == []
    assert cluster.running == [1, 2]


def is_awaited(owner: type, name: str) -> bool:
    found = inspect.getattr_static(owner, name)
    return inspect.iscoroutinefunction(found.fget if isinstance(found, property) else found)


@pytest.mark.parametrize(("blocking", "awaited"), [(Cluster, AsyncCluster), (Broker, AsyncBroker)])
def test_both_forms_have_the_same_methods_and_arguments(blocking: type, awaited: type) -> None:
    def public(owner: type) -> set[str]:
        return {name for name in dir(owner) if not name.startswith("_")} - {"aio"}

    assert public(blocking) == public(awaited)
    waits = {name for name in public(awaited) if is_awaited(awaited, name)}
    helpers = {"create_topic", "produce", "records", "lag", "to_read", "wait_for_group"}
    assert waits - {"start", "stop"} == (set(WAITS) if blocking is Cluster else helpers)
    for name in public(awaited):
        ours, theirs = (inspect.getattr_static(each, name) for each in (blocking, awaited))
        if not isinstance(ours, property) and name not in ("start", "stop"):
            assert inspect.signature(ours) == inspect.signature(theirs), name
        if name in waits:
            assert ours.__doc__ == theirs.__doc__, name


async def test_levers_and_waits_of_the_awaited_form_act_on_the_same_brokers(
    cluster: Cluster,
) -> None:
    aio = cluster.aio
    leader = await aio.leader_of("orders")
    other = 3 - leader
    await aio.move_leader("orders", 0, other)
    assert await aio.leader_of("orders") == other
    await aio.move_coordinator(other, group="g")
    assert await aio.coordinator_of(group="g") == other
    await aio.stop_broker(leader)
    assert cluster.running == aio.running == [other]
    await aio.start_broker(leader)
    await aio.wait_until_in_sync()
    assert sorted(aio.in_sync_of("orders")) == [1, 2]
    assert await aio.controller in cluster.running
    aio.cut_clients(other)
    aio.heal()
    assert aio.bootstrap_servers == cluster.bootstrap_servers


async def test_timeout_says_which_event_did_not_happen(cluster: Cluster) -> None:
    with cluster.hold("DescribeCluster", client_id="absent") as held:
        with pytest.raises(TimeoutError, match=r"no DescribeCluster request was touched within 0"):
            await held.arrived(0.1)
        with pytest.raises(TimeoutError, match=r"no DescribeCluster request was touched within 0"):
            await asyncio.to_thread(held.wait, 0.1)
    with pytest.raises(TimeoutError, match=r"orders has 0 records, not 1 within 0\.3 s"):
        await cluster.aio.records("orders", 1, timeout=0.3)


async def test_cancelled_wait_ends_at_once(cluster: Cluster) -> None:
    with cluster.hold("DescribeCluster", client_id="absent") as held:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await held.arrived()
        assert time.monotonic() - began < AT_ONCE


@pytest.mark.parametrize("make", [Broker, Cluster])
async def test_event_loop_goes_on_while_brokers_start_and_stop(make: Callable[[], Any]) -> None:
    turns: list[float] = []

    async def watch() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    times = [time.monotonic()]
    async with make():
        times.append(time.monotonic())
    times.append(time.monotonic())
    watching.cancel()
    for began, ended in pairwise(times):
        within = [began, *(each for each in turns if began < each < ended), ended]
        # A blocking call is one single gap.
        assert max(b - a for a, b in pairwise(within)) < (ended - began) / 2


@pytest.mark.parametrize("make", [Broker, Cluster])
async def test_cancelled_start_leaves_nothing_running(make: Callable[[], Any]) -> None:
    async def use() -> None:
        async with make():
            await asyncio.Event().wait()

    before = count_threads()
    using = asyncio.create_task(use())
    await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert count_threads() == before


def count_threads() -> int:
    """Return the number of event loops of brokers."""
    return sum(
        each.name in ("barnabas-broker", "barnabas-cluster") for each in threading.enumerate()
    )


@pytest.mark.parametrize("make", [Broker, Cluster])
async def test_blocking_start_on_a_running_loop_works_and_warns(make: Callable[[], Any]) -> None:
    name = make.__name__
    with pytest.warns(RuntimeWarning, match=rf"use `async with {name}") as caught:
        with make() as brokers:
            assert brokers.bootstrap_servers
    assert [warning.filename for warning in caught] == [__file__]


async def test_error_of_a_start_is_raised_in_both_forms() -> None:
    before = count_threads()
    wrong = {"num.partition": 1}
    with pytest.raises(ValueError, match=r"num\.partition \(did you mean num\.partitions\?\)"):
        async with Broker(wrong):
            pass
    with pytest.raises(ValueError, match=r"num\.partition \(did you mean num\.partitions\?\)"):
        async with Cluster(wrong):
            pass
    assert count_threads() == before


async def test_call_before_the_start_is_an_error() -> None:
    for make in (Broker, Cluster):
        with pytest.raises(RuntimeError, match="does not run"):
            await make().aio.create_topic("t")
