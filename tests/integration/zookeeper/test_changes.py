"""Cases that the stores' state machine seldom meets: many changes at once, large transactions."""

import asyncio
from typing import Any

import pytest
from kazoo.protocol.serialization import Exists

from barnabas.broker.store.metadata_store import (
    UNKNOWN_ZXID,
    Check,
    Create,
    CreateResult,
    Delete,
    NodeExists,
    SetData,
    StoreUnavailable,
)
from tests.integration.zookeeper.conftest import Stores
from tests.support.zookeeper import ZooKeeperServer


async def test_watch_reports_successive_changes(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store, other = await stores.open(server, chroot), await stores.open(server, chroot)
    data, children = list[str](), list[str]()
    store.watch_data("/n", data.append)
    store.watch_children("/n", children.append)
    changes: list[Any] = [
        Create("/n"),
        SetData("/n", b"1"),
        Create("/n/child"),
        SetData("/n", b"2"),
        Delete("/n/child"),
        Delete("/n"),
        Create("/n"),
        Create("/n/child"),
    ]
    for change in changes:
        before = len(data), len(children)
        await store.exists("/")
        await other.multi([change])
        await other.exists("/")
        await store.exists("/")
        of_children = change.path == "/n/child"
        assert (len(data) - before[0], len(children) - before[1]) == (
            int(not of_children),
            int(of_children),
        ), change


async def test_watcher_that_reads_on_each_event_ends_with_the_last_change(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store, other = await stores.open(server, chroot), await stores.open(server, chroot)
    await store.create("/n", b"0")
    seen, names = list[int](), list[int]()
    reading = set[asyncio.Task[None]]()

    async def read() -> None:
        seen.append(int((await store.get("/n"))[0]))
        names.append(len(await store.children("/n")))

    def told(_path: str) -> None:
        task = asyncio.create_task(read())
        reading.add(task)
        task.add_done_callback(reading.discard)

    store.watch_data("/n", told)
    store.watch_children("/n", told)
    for number in range(1, 301):
        await other.set("/n", b"%d" % number)
        await other.create(f"/n/{number}")
    await store.exists("/")
    while reading:
        await asyncio.gather(*reading)
    assert seen == sorted(seen)
    assert (seen[-1], names[-1]) == (300, 300)


async def test_children_created_with_their_node_are_reported(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store, other = await stores.open(server, chroot), await stores.open(server, chroot)
    told = list[str]()
    store.watch_children("/n", told.append)
    await store.exists("/")
    await other.multi([Create("/n"), Create("/n/child")])
    async with asyncio.timeout(10):
        while not told:
            await store.exists("/")
    # The changes of a node that was deleted and created in one transaction are reported too.
    told.clear()
    await other.multi([Delete("/n/child"), Delete("/n"), Create("/n"), Create("/n/another")])
    async with asyncio.timeout(10):
        while not told:
            await store.exists("/")
    assert await store.children("/n") == ["another"]


async def test_nodes_created_in_one_transaction_have_its_zxid(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    await store.create("/set")
    results = await store.multi(
        [
            Create("/gone"),
            Delete("/gone"),
            Create("/a", b"a"),
            Create("/a/n-", sequence=True),
            Create("/e", ephemeral=True),
            Check("/set", 0),
        ]
    )
    created = [each for each in results if isinstance(each, CreateResult)]
    assert [each.path for each in created] == ["/gone", "/a", "/a/n-0000000000", "/e"]
    zxids = {each.stat.czxid for each in created}
    for each in created[1:]:
        stat = await store.exists(each.path)
        assert stat is not None
        assert zxids == {stat.czxid}
        assert stat.ephemeral_owner == each.stat.ephemeral_owner
    (created_too, stat) = await store.multi([Create("/b"), SetData("/set", b"1")])
    assert isinstance(created_too, CreateResult)
    found = await store.exists("/b")
    assert found is not None
    assert created_too.stat.czxid == found.czxid
    (passing, _) = await store.multi([Create("/passing"), Delete("/passing")])
    assert isinstance(passing, CreateResult)
    assert passing.stat.czxid == UNKNOWN_ZXID


async def test_failed_operation_of_a_transaction_is_named(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    await store.create("/there")
    with pytest.raises(NodeExists) as refused:
        await store.multi([Create("/new"), Create("/there"), Create("/other")])
    assert refused.value.path == "/there"
    assert await store.children("/") == ["there"]


async def test_watch_cancelled_and_set_again_reports_once(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    told = list[str]()
    for _ in range(50):
        store.watch_data("/n", told.append).cancel()
    store.watch_data("/n", told.append)
    await store.create("/n")
    assert told == ["/n"]
    await store.set("/n", b"1")
    assert told == ["/n", "/n"]


async def test_pending_requests_fail_when_the_connection_is_lost(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    assert store._session is not None
    answer = store._session.call(Exists(chroot, None), "/")
    store._session._on_state("SUSPENDED", None)
    with pytest.raises(StoreUnavailable):
        await answer
