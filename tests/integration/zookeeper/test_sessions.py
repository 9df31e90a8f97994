"""Sessions of a real ZooKeeper: the events that end them; no session begins by itself."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.metadata_store import (
    Create,
    NodeExists,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from barnabas.broker.store.zookeeper.earlier_sessions import EarlierSessions
from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.broker.store.zookeeper.store import ZooKeeperStore, open_zookeeper
from barnabas.storage.files.files import OsFiles
from tests.integration.zookeeper.conftest import Stores, until_answered
from tests.support.waiting import eventually
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperServer


async def expire(server: ZooKeeperServer, store: ZooKeeperStore) -> None:
    over = asyncio.Event()
    store.on_expired(over.set)
    assert store.key is not None
    await asyncio.to_thread(server.expire, *store.key)
    await asyncio.wait_for(over.wait(), 10)


async def test_expired_session_is_not_replaced_silently(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/quiet")
    assert await asyncio.to_thread(own_server.sessions) == 1
    await expire(own_server, store)
    with pytest.raises(SessionExpired):
        await store.create("/never")
    # kazoo by itself takes 0.1 s to start the next session: this loop lasts longer.
    with own_server.looking("/quiet") as client:
        for _ in range(20):
            assert client.exists("/never") is None
            await asyncio.sleep(0.02)
    await eventually(lambda: own_server.sessions() == 0)
    await store.renew()
    assert await asyncio.to_thread(own_server.sessions) == 1


async def test_request_of_an_expired_session_is_not_sent_in_the_next(
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


async def test_session_survives_a_server_restart_and_watches_report_missed_changes(
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
    # The other client may reconnect first: its change happens while no watch is set.
    await until_answered(lambda: other.create("/later"))
    await eventually(lambda: {"/later", "/"} <= set(told))
    assert await store.children("/") == ["alive", "later"]
    assert store.session_id == session
    told.clear()
    await store.set("/later", b"again")
    assert told == ["/later"]


async def test_session_on_a_paused_server_is_disconnected_and_expires(
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


async def test_session_uses_the_timeout_granted_by_zookeeper(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot, session_timeout=0.3)
    assert store.session_timeout == 0.4


async def test_silent_time_is_bounded_by_pings_of_an_idle_session(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot, session_timeout=2.4)
    for _ in range(80):
        # No request came for two seconds in the end, and more than 1.6 s would be out of touch.
        assert store.silent_for() < 1.6
        await asyncio.sleep(0.025)


async def test_unreachable_server_is_named() -> None:
    gone = Settings(("127.0.0.1:1",), "", 1.0, 0.3)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1: .*refused"):
        await open_zookeeper(gone)


async def test_closing_a_session_removes_its_nodes_at_once(
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


async def test_too_large_request_is_refused_and_the_session_survives(
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


async def test_session_survives_the_crash_of_the_ensembles_leader(tmp_path: Path) -> None:
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


async def test_connection_with_another_session_id_expires_the_session(
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


async def test_session_that_cannot_be_written_to_disk_is_closed(
    own_server: ZooKeeperServer,
) -> None:
    with pytest.raises(OSError, match="No space"):
        await open_zookeeper(Settings((own_server.connect,), "", 10.0, 10.0), full)
    await eventually(lambda: own_server.sessions() == 0)


async def test_a_full_disk_does_not_keep_a_running_broker_from_its_next_session(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "/full")
    store._store_key = full
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


async def test_next_run_closes_the_session_of_a_killed_broker(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async with begun(server, chroot, tmp_path) as (dead, _):
        await dead.create("/registration", ephemeral=True)
        # A run that crashed before it registered.
        async with begun(server, chroot, tmp_path):
            pass
        async with begun(server, chroot, tmp_path) as (store, earlier):
            with pytest.raises(NodeExists):
                await store.create("/registration", ephemeral=True)
            assert await earlier.end(dead.session_id)
            await store.create("/registration", ephemeral=True)


async def test_session_of_another_broker_is_not_closed(
    server: ZooKeeperServer, stores: Stores, chroot: str, tmp_path: Path
) -> None:
    foreign = await stores.open(server, chroot)
    await foreign.create("/registration", ephemeral=True)
    async with begun(server, chroot, tmp_path) as (store, earlier):
        assert not await earlier.end(foreign.session_id)
        assert await store.exists("/registration") is not None


async def test_ending_an_already_expired_session_succeeds(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async with begun(server, chroot, tmp_path) as (dead, _):
        gone = dead.session_id
    async with begun(server, chroot, tmp_path) as (store, earlier):
        assert await earlier.end(gone)
        assert store.session_id != gone
        assert await store.exists("/") is not None


async def test_file_with_the_session_password_is_readable_by_its_owner_only(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    file = tmp_path / "zookeeper.sessions"
    async with begun(server, chroot, tmp_path) as (store, _):
        assert store.key is not None
        (kept,) = json.loads(file.read_text())["sessions"]
        assert kept == {"id": store.session_id, "key": store.key.password.hex()}
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{}", b'{"sessions": [{"id": 1}]}', b"\xff\x00"])
async def test_damaged_session_file_is_ignored(
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
from barnabas.broker.store.metadata_store import StoreError
from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.broker.store.zookeeper.store import open_zookeeper

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


async def test_process_paused_past_its_session_sends_nothing_before_it_is_told(
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
        # Longer than the silence that kazoo tolerates as a pause.
        await asyncio.sleep(1.0)
        await store.set("/written", b"by the successor")
        os.kill(child.pid, signal.SIGCONT)
        assert await asyncio.to_thread(child.stdout.readline) == b"registered 0\n"
        assert (await store.get("/written"))[0] == b"by the successor"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
