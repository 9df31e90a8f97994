"""Sessions with a real ZooKeeper: what ends them, and that none begins by itself."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.metadata.store import (
    Create,
    NodeExists,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from barnabas.broker.metadata.zookeeper.earlier import EarlierSessions
from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore, open_zookeeper
from barnabas.broker.offload import InlineOffload
from barnabas.storage.files import OsFiles
from tests.integration.zookeeper.conftest import Stores
from tests.waiting import eventually
from tests.zookeeper import ZooKeeperEnsemble, ZooKeeperServer


async def expire(server: ZooKeeperServer, store: ZooKeeperStore) -> None:
    over = asyncio.Event()
    store.on_expired(over.set)
    assert store.key is not None
    await asyncio.to_thread(server.expire, *store.key)
    await asyncio.wait_for(over.wait(), 10)


async def test_an_expired_session_is_not_followed_by_a_silent_one(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/quiet")
    assert await asyncio.to_thread(own_server.sessions) == 1
    await expire(own_server, store)
    with pytest.raises(SessionExpired):
        await store.create("/never")
    # kazoo by itself needs 0.1 s for the next session: what follows needs longer.
    with own_server.looking("/quiet") as client:
        for _ in range(20):
            assert client.exists("/never") is None
            await asyncio.sleep(0.02)
    await eventually(lambda: own_server.sessions() == 0)
    await store.renew()
    assert await asyncio.to_thread(own_server.sessions) == 1


async def test_a_request_of_an_old_session_is_not_carried_out_in_the_next(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    await store.create("/counter")
    for _ in range(5):
        writes = [asyncio.ensure_future(store.set("/counter", b"x")) for _ in range(50)]
        await expire(server, store)
        more = [asyncio.ensure_future(store.set("/counter", b"y")) for _ in range(50)]
        results = await asyncio.gather(*writes, *more, return_exceptions=True)
        assert all(isinstance(each, SessionExpired) for each in results[50:])
        await store.renew()
        data, _ = await store.get("/counter")
        assert data in (b"", b"x")


async def test_a_restarted_server_keeps_the_session_and_watches_tell_what_was_missed(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/kept", session_timeout=30.0)
    other = await stores.open(own_server, "/kept", session_timeout=30.0)
    await store.create("/alive", ephemeral=True)
    session, told = store.session_id, list[str]()
    store.on_expired(lambda: pytest.fail("expired"))
    store.watch_data("/later", told.append)
    store.watch_children("/", told.append)
    await asyncio.to_thread(own_server.restart)
    # The other's connection may be back first: its change happens while nothing watches.
    await until_answered(lambda: other.create("/later"))
    await eventually(lambda: {"/later", "/"} <= set(told))
    assert await store.children("/") == ["alive", "later"]
    assert store.session_id == session
    told.clear()
    await store.set("/later", b"again")
    assert told == ["/later"]


async def until_answered(ask: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(15):
        while True:
            try:
                await ask()
                return
            except NodeExists:
                return
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def test_a_paused_server_is_noticed_and_ends_in_expiry(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/paused", session_timeout=2.0)
    expired = list[None]()
    store.on_expired(lambda: expired.append(None))
    assert store.session_timeout == 2.0
    own_server.pause()
    with pytest.raises(StoreError):
        await asyncio.wait_for(store.create("/unknown"), 10)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(store.get("/"), 10)
    await eventually(lambda: store.silent_for() > 2.0)
    own_server.resume()
    await eventually(lambda: bool(expired) or store.silent_for() < 1.0)
    if expired:
        await store.renew()
    assert await store.exists("/") is not None


async def test_the_time_that_zookeeper_grants_counts(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot, session_timeout=0.3)
    assert store.session_timeout == 0.4


async def test_silence_is_counted_though_nobody_asks(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot, session_timeout=2.4)
    for _ in range(80):
        # Nobody has asked for two seconds in the end, and more than 1.6 would be out of touch.
        assert store.silent_for() < 1.6
        await asyncio.sleep(0.025)


async def test_a_server_that_is_not_there_is_named() -> None:
    gone = Settings(("127.0.0.1:1",), "", 1.0, 0.3)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1: .*refused"):
        await open_zookeeper(gone)


async def test_a_session_that_is_closed_takes_its_nodes_along_at_once(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store, other = await stores.open(server, chroot), await stores.open(server, chroot)
    await store.create("/mine", ephemeral=True)
    await store.close()
    assert await other.exists("/mine") is None
    with pytest.raises(SessionExpired):
        await store.renew()


async def test_closing_does_not_wait_for_a_server_that_hangs(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "")
    own_server.pause()
    await asyncio.wait_for(store.close(), 4)
    own_server.resume()


async def test_what_is_too_large_is_refused_and_the_session_lives(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    session = store.session_id
    with pytest.raises(TooLarge):
        await store.create("/large", bytes(1_000_001))
    with pytest.raises(TooLarge):
        await store.multi([Create(f"/n{each}", bytes(10_000)) for each in range(101)])
    await store.create("/fits", bytes(999_000))
    assert (len((await store.get("/fits"))[0]), store.session_id) == (999_000, session)


async def test_a_transaction_of_a_thousand_partitions_fits(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot)
    await store.create("/partitions")
    results = await store.multi([Create(f"/partitions/{each}", b"x" * 120) for each in range(1000)])
    assert len(results) == len(await store.children("/partitions")) == 1000


async def test_a_session_outlives_the_leader_of_the_ensemble(tmp_path: Path) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path)
    await asyncio.to_thread(ensemble.start)
    try:
        settings = Settings(ensemble.addresses, "/kafka", 30.0, 30.0)
        stores = [await open_zookeeper(settings) for _ in range(4)]
        first, told = stores[0], list[str]()
        registered = await first.create("/registration", b"1", ephemeral=True)
        await first.create("/epoch", b"1")
        first.watch_data("/epoch", told.append)
        sessions = [store.session_id for store in stores]
        leader = ensemble.leader()
        await asyncio.to_thread(leader.kill)
        for number, store in enumerate(stores):
            await until_answered(lambda s=store, n=number: s.set("/epoch", b"%d" % n))  # type: ignore[misc]
        await eventually(lambda: "/epoch" in told)
        assert [store.session_id for store in stores] == sessions
        for store in stores:
            stat = await store.exists("/registration")
            assert stat == registered.stat
        await asyncio.gather(*(store.close() for store in stores))
    finally:
        await asyncio.to_thread(ensemble.kill)


async def test_a_session_with_another_id_is_not_ours(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "")
    expired = list[None]()
    store.on_expired(lambda: expired.append(None))
    assert store._session is not None
    store._session._on_state("CONNECTED", (store.session_id + 1, b""))
    assert expired == [None]
    with pytest.raises(SessionExpired):
        await store.create("/never")
    await eventually(lambda: own_server.sessions() == 0)


async def full(_key: object) -> None:
    raise OSError(28, "No space left on device")


async def test_a_session_that_cannot_be_remembered_is_ended(own_server: ZooKeeperServer) -> None:
    with pytest.raises(OSError, match="No space"):
        await open_zookeeper(Settings((own_server.connect,), "", 10.0, 10.0), full)
    await eventually(lambda: own_server.sessions() == 0)


async def test_a_full_disk_does_not_keep_a_running_broker_from_its_next_session(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/full")
    store._keep = full
    await expire(own_server, store)
    await store.renew()
    assert await store.children("/") == []


# -- the session that a killed process leaves ----------------------------------------------------


@contextlib.asynccontextmanager
async def begun(
    server: ZooKeeperServer, chroot: str, directory: Path
) -> AsyncIterator[tuple[ZooKeeperStore, EarlierSessions]]:
    settings = Settings((server.connect,), chroot, 30.0, 10.0)
    earlier = EarlierSessions(settings, OsFiles(), str(directory), InlineOffload())
    await earlier.load()
    store = await open_zookeeper(settings, earlier.keep)
    try:
        yield store, earlier
    finally:
        await store.close()


async def test_the_next_run_ends_the_session_that_a_killed_one_has_left(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async with begun(server, chroot, tmp_path) as (dead, _):
        await dead.create("/registration", ephemeral=True)
        # A run that died before it came to register.
        async with begun(server, chroot, tmp_path):
            pass
        async with begun(server, chroot, tmp_path) as (store, earlier):
            with pytest.raises(NodeExists):
                await store.create("/registration", ephemeral=True)
            assert await earlier.end(dead.session_id)
            await store.create("/registration", ephemeral=True)


async def test_a_session_of_somebody_else_is_left_alone(
    server: ZooKeeperServer, stores: Stores, chroot: str, tmp_path: Path
) -> None:
    foreign = await stores.open(server, chroot)
    await foreign.create("/registration", ephemeral=True)
    async with begun(server, chroot, tmp_path) as (store, earlier):
        assert not await earlier.end(foreign.session_id)
        assert await store.exists("/registration") is not None


async def test_a_session_that_has_ended_meanwhile_is_none_to_end(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async with begun(server, chroot, tmp_path) as (dead, _):
        gone = dead.session_id
    async with begun(server, chroot, tmp_path) as (store, earlier):
        assert await earlier.end(gone)
        assert store.session_id != gone
        assert await store.exists("/") is not None


async def test_the_password_of_a_session_is_for_nobody_else(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    file = tmp_path / "zookeeper.sessions"
    async with begun(server, chroot, tmp_path) as (store, _):
        assert store.key is not None
        (kept,) = json.loads(file.read_text())["sessions"]
        assert kept == {"id": store.session_id, "key": store.key.password.hex()}
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{}", b'{"sessions": [{"id": 1}]}', b"\xff\x00"])
async def test_a_damaged_file_of_sessions_is_no_loss(
    server: ZooKeeperServer, chroot: str, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "zookeeper.sessions").write_bytes(content)
    async with begun(server, chroot, tmp_path) as (store, _):
        assert (
            json.loads((tmp_path / "zookeeper.sessions").read_text())["sessions"][0]["id"]
            == store.session_id
        )


# -- a process that is paused ----------------------------------------------------------------------

SLEEPER = """
import asyncio, sys, time
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.metadata.zookeeper.store import open_zookeeper

async def main():
    store = await open_zookeeper(Settings((sys.argv[1],), "/sleeper", 2.0, 10.0))
    await store.create("/registration", ephemeral=True)
    over = asyncio.Event()
    store.on_expired(over.set)
    print("ready", flush=True)
    written, last = 0, time.monotonic()
    while not over.is_set():
        woke = time.monotonic() - last > 1.5
        last = time.monotonic()
        try:
            await store.set("/written", b"")
            written += woke
        except StoreError:
            pass
        if woke:
            for _ in range(300):
                try:
                    await store.set("/written", b"after the pause")
                    print("wrote", flush=True)
                except StoreError:
                    await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)
    await store.renew()
    await store.create("/registration", ephemeral=True)
    print("registered", written, flush=True)
    await store.close()

asyncio.run(main())
"""


def sleeper(server: ZooKeeperServer) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", SLEEPER, server.connect], stdout=subprocess.PIPE)


async def test_a_process_paused_past_its_session_does_nothing_before_it_knows(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/sleeper", session_timeout=30.0)
    await store.create("/written")
    child = sleeper(own_server)
    assert child.stdout is not None
    try:
        assert await asyncio.to_thread(child.stdout.readline) == b"ready\n"
        first = await store.exists("/registration")
        assert first is not None
        gone = asyncio.Event()
        store.watch_data("/registration", lambda _: gone.set())
        os.kill(child.pid, signal.SIGSTOP)
        await asyncio.wait_for(gone.wait(), 10)
        # Longer than kazoo takes a pause for.
        await asyncio.sleep(1.0)
        await store.set("/written", b"by the successor")
        os.kill(child.pid, signal.SIGCONT)
        assert await asyncio.to_thread(child.stdout.readline) == b"registered 0\n"
        assert (await store.get("/written"))[0] == b"by the successor"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
