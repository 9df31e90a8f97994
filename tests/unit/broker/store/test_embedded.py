"""The embedded store passes the tests of all stores, and those of its journal."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import settings

from barnabas.broker.loop.offload import InlineOffload, ThreadOffload
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.journal_format import JournalError
from barnabas.broker.store.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NoNode,
    StoreUnavailable,
)
from barnabas.storage.files.files import OsFiles
from tests.support.mem_files import Fault, MemFiles
from tests.support.store_machine import Harness, StoreMachine


class EmbeddedHarness:
    """A store on a disk that loses data which was not synced."""

    root = "/machine"

    def __init__(self, files: MemFiles, store: EmbeddedStore) -> None:
        self.files = files
        self.store = store
        self.crashes = 0

    async def session(self) -> MetadataStore:
        return self.store.session()

    async def expire(self, session: MetadataStore) -> None:
        await self.store.expire(session.session_id)

    async def restart(self) -> bool:
        self.crashes += 1
        self.files.crash(self.crashes)
        self.store = await open_store(self.files, DIRECTORY, InlineOffload())
        return True

    async def settle(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await self.store.close()


DIRECTORY = "/data/metadata"


def abandon(store: EmbeddedStore) -> None:
    """Leave the files as kill -9 does, without a lock."""
    store._journal.close()


class EmbeddedMachine(StoreMachine):
    async def start(self) -> Harness:
        files = MemFiles()
        store = await open_store(files, DIRECTORY, InlineOffload())
        await store.session().create(EmbeddedHarness.root)
        return EmbeddedHarness(files, store)


TestEmbeddedStore = EmbeddedMachine.TestCase
TestEmbeddedStore.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "metadata")


async def open_here(directory: str) -> EmbeddedStore:
    return await open_store(OsFiles(), directory, InlineOffload())


def journal_of(directory: str) -> Path:
    return Path(directory) / "metadata.journal"


async def test_answered_changes_survive_kill_9(directory: str) -> None:
    store = await open_here(directory)
    session = store.session()
    await session.multi([Create("/brokers"), Create("/brokers/topics")])
    await session.create("/brokers/topics/t", b"one")
    await session.set("/brokers/topics/t", b"two")
    await session.create("/controller", ephemeral=True)
    abandon(store)

    again = (await open_here(directory)).session()
    data, stat = await again.get("/brokers/topics/t")
    assert (data, stat.version) == (b"two", 1)
    assert await again.exists("/controller") is None
    assert again.session_id != session.session_id


async def reopen(files: MemFiles, journal: bytes) -> list[str]:
    """Start on a journal with this end, write, start again; return the nodes without the new
    one."""
    path = f"{DIRECTORY}/metadata.journal"
    files.unlink(path)
    files.open(path, create=True).append(journal)
    store = await open_store(files, DIRECTORY, InlineOffload())
    await store.session().create("/next")
    files.kill()
    store = await open_store(files, DIRECTORY, InlineOffload())
    children = await store.session().children("/")
    files.kill()
    assert children[-1] == "next"
    return children[:-1]


async def test_torn_tail_is_cut_off() -> None:
    files = MemFiles()
    store = await open_store(files, DIRECTORY, InlineOffload())
    session = store.session()
    await session.create("/kept", b"k")
    whole = files.read_bytes(f"{DIRECTORY}/metadata.journal")
    await session.multi([Create("/later", b"t"), Create("/later/too", b"not zero at the end")])
    longer = files.read_bytes(f"{DIRECTORY}/metadata.journal")
    files.kill()
    for length in range(len(whole), len(longer)):
        missing = len(longer) - length
        assert await reopen(files, longer[:length]) == ["kept"]
        assert await reopen(files, longer[:length] + bytes(missing)) == ["kept"]
    assert await reopen(files, longer) == ["kept", "later"]


async def test_damage_before_valid_entries_is_refused(directory: str) -> None:
    store = await open_here(directory)
    await store.session().create("/a", b"first")
    await store.session().create("/b", b"second")
    abandon(store)
    data = bytearray(journal_of(directory).read_bytes())
    data[data.index(b"first")] ^= 1
    journal_of(directory).write_bytes(data)
    with pytest.raises(JournalError, match="damaged at byte"):
        await open_here(directory)


@pytest.mark.parametrize("length", [0, 5, 12, 40])
async def test_journal_without_a_snapshot_is_refused(directory: str, length: int) -> None:
    abandon(await open_here(directory))
    data = journal_of(directory).read_bytes()
    journal_of(directory).write_bytes(data[:length])
    with pytest.raises(JournalError):
        await open_here(directory)


async def test_newer_format_is_refused_with_advice(directory: str) -> None:
    abandon(await open_here(directory))
    data = bytearray(journal_of(directory).read_bytes())
    data[8:10] = (2).to_bytes(2, "big")
    journal_of(directory).write_bytes(data)
    with pytest.raises(JournalError, match=r"format 2.*start the newer version"):
        await open_here(directory)
    assert journal_of(directory).read_bytes() == data


async def test_directory_in_use_is_refused(directory: str) -> None:
    store = await open_here(directory)
    with pytest.raises(BlockingIOError):
        await open_here(directory)
    await store.close()
    await (await open_here(directory)).close()


async def test_grown_journal_is_replaced(directory: str) -> None:
    store = await open_here(directory)
    session = store.session()
    await session.create("/n")
    for _ in range(50):
        await session.set("/n", os.urandom(50_000))
    last, stat = await session.get("/n")
    assert journal_of(directory).stat().st_size < 1_200_000
    abandon(store)
    again = (await open_here(directory)).session()
    assert await again.get("/n") == (last, stat)


async def test_zxids_are_never_used_twice(directory: str) -> None:
    seen = set()
    for _ in range(3):
        store = await open_here(directory)
        session = store.session()
        created = await session.create("/e", ephemeral=True)
        assert created.stat.czxid not in seen
        seen.add(created.stat.czxid)
        abandon(store)


async def test_change_completes_after_its_caller_is_cancelled(directory: str) -> None:
    offload = ThreadOffload()
    store = await open_store(OsFiles(), directory, offload)
    session = store.session()
    task = asyncio.create_task(session.create("/a", b"x"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await session.create("/b")
    assert await session.children("/") == ["a", "b"]
    abandon(store)
    assert await (await open_here(directory)).session().children("/") == ["a", "b"]
    offload.close()


async def test_sessions_compete_for_versions(directory: str) -> None:
    offload = ThreadOffload()
    store = await open_store(OsFiles(), directory, offload)
    sessions = [store.session() for _ in range(5)]
    await sessions[0].create("/n")
    results = await asyncio.gather(
        *(session.set("/n", b"mine", 0) for session in sessions), return_exceptions=True
    )
    assert [type(result) for result in results].count(BadVersion) == 4
    offload.close()


async def power_loss(fault: Fault, seed: int) -> str:
    """Create nodes until a fault occurs, lose power, read the nodes; return the outcome."""
    files = MemFiles()
    files.faults.append(fault)
    acknowledged, tried = set(), set()
    try:
        store = await open_store(files, DIRECTORY, InlineOffload())
        session = store.session()
        for number in range(12):
            tried.add(f"n{number}")
            await session.create(f"/n{number}", bytes(200_000))
            acknowledged.add(f"n{number}")
        outcome = "done"
    except (OSError, StoreUnavailable) as error:
        outcome = type(error).__name__
    files.crash(seed)
    files.faults.clear()
    store = await open_store(files, DIRECTORY, InlineOffload())
    found = set(await store.session().children("/"))
    assert acknowledged <= found <= tried
    await store.session().create("/after")
    files.crash(seed + 1)
    store = await open_store(files, DIRECTORY, InlineOffload())
    assert set(await store.session().children("/")) == found | {"after"}
    return outcome


async def test_power_loss_at_any_call_loses_no_acknowledged_change() -> None:
    outcomes = set()
    for call in ("append", "sync", "sync_dir", "rename", "open", "make_dir"):
        for nth in range(1, 20):
            for seed in range(4):
                fault = Fault(call, nth=nth, from_then_on=True, written=seed * 9)
                outcomes.add(await power_loss(fault, seed))
    assert outcomes == {"done", "OSError", "StoreUnavailable"}


@pytest.mark.parametrize("call", ["append", "sync"])
async def test_store_answers_nothing_after_a_failed_write(call: str) -> None:
    files = MemFiles()
    store = await open_store(files, DIRECTORY, InlineOffload())
    session = store.session()
    await session.create("/before")
    files.faults.append(Fault(call))
    with pytest.raises(StoreUnavailable):
        await session.create("/never")
    with pytest.raises(NoNode):
        await session.get("/never")
    with pytest.raises(StoreUnavailable):
        await session.set("/before", b"")
    await store.close()
