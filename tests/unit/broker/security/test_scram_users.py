"""SCRAM users in the metadata store, as Kafka 3.9 writes them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.followed_nodes import KEPT_CHANGES
from barnabas.broker.cluster.registration import prepare_cluster
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.metadata_store import Create, Delete, NotAllowed, SetData
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism
from tests.support.mem_files import MemFiles
from tests.support.stored_passwords import passwords

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    store = await open_store(MemFiles(), "/metadata", InlineOffload())
    await prepare_cluster(store.session(), "cluster")
    yield store
    await store.close()


def credential(password: bytes, mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return ScramCredential.of_password(mechanism, password, b"salt", 4096)


class Member:
    """A broker with the users that it knows."""

    def __init__(self, store: EmbeddedStore, broker_id: int) -> None:
        dynamic = DynamicConfig(BrokerConfig.from_properties({"broker.id": str(broker_id)}))
        self.configs = Configs(store.session(), dynamic, broker_id, passwords())
        self.users = ScramUsers(self.configs)
        self.news = asyncio.Event()

    async def start(self) -> ScramUsers:
        await self.configs.start(self.news.set)
        await self.users.start()
        return self.users

    async def catch_up(self) -> None:
        await asyncio.wait_for(self.news.wait(), 5)
        self.news.clear()
        await self.configs.catch_up()


async def write(store: EmbeddedStore, name: str, data: bytes, *, told: bool = True) -> None:
    """Write a node as Kafka's tools do, with the notification."""
    session, path = store.session(), znodes.config_path("users", name)
    write = SetData(path, data, -1) if await session.exists(path) else Create(path, data)
    change = znodes.encode_config_change(znodes.config_entity("users", name))
    notice = [Create(znodes.CONFIG_CHANGE, change, sequence=True)] if told else []
    await session.multi([write, *notice])


def node(**values: str) -> bytes:
    return znodes.encode_config({key.replace("_", "-"): text for key, text in values.items()})


async def test_user_is_known_to_all_brokers_and_after_a_start(store: EmbeddedStore) -> None:
    here, there = Member(store, 1), Member(store, 2)
    await here.start()
    await there.start()
    await here.users.put("alice", credential(b"one"))
    await here.users.put("alice", credential(b"two", SHA_512))
    assert here.users.find("alice", SHA_256) == credential(b"one")
    await there.catch_up()
    later = await Member(store, 3).start()
    for users in (here.users, there.users, later):
        assert users.find("alice", SHA_256) == credential(b"one")
        assert users.find("alice", SHA_512) == credential(b"two", SHA_512)
        assert users.find("Alice", SHA_256) is None
    await there.users.delete("alice", SHA_256)
    await here.catch_up()
    assert set(here.users.credentials("alice")) == {SHA_512}
    await there.users.delete("alice", SHA_512)
    await here.catch_up()
    assert not list(here.users.names)


async def test_quotas_in_the_node_of_a_user_stay(store: EmbeddedStore) -> None:
    await write(store, "alice", node(producer_byte_rate="1024").replace(b"-", b"_"))
    users = await Member(store, 1).start()
    assert not list(users.names)
    await users.put("alice", credential(b"one"))
    await users.delete("alice", SHA_256)
    data, _ = await store.session().get(znodes.config_path("users", "alice"))
    assert znodes.decode_config(data) == {"producer_byte_rate": "1024"}


@pytest.mark.parametrize("name", ["CN=a,O=b/c", "<default>", "a b%20", "..", "\N{KEY}"])
async def test_every_name_can_be_stored(store: EmbeddedStore, name: str) -> None:
    users = await Member(store, 1).start()
    await users.put(name, credential(b"one"))
    assert list((await Member(store, 2).start()).names) == [name]


async def test_credential_that_kafka_wrote_is_followed(store: EmbeddedStore) -> None:
    member = Member(store, 1)
    await member.start()
    await write(store, "alice", node(SCRAM_SHA_256=credential(b"one").encode()))
    await member.catch_up()
    found = member.users.find("alice", SHA_256)
    assert found is not None
    assert found.matches(b"one")


async def test_unreadable_node_keeps_the_last_credentials(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(store, 1)
    users = await member.start()
    await users.put("alice", credential(b"one"))
    member.news.clear()
    await write(store, "alice", b"{")
    await member.catch_up()
    assert users.find("alice", SHA_256) == credential(b"one")
    assert "alice" in caplog.text


async def test_damaged_credential_is_ignored_and_not_logged(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await write(store, "alice", node(SCRAM_SHA_256="salt=c2VjcmV0,stored_key=x"))
    users = await Member(store, 1).start()
    assert users.find("alice", SHA_256) is None
    assert "alice" in caplog.text
    assert "c2VjcmV0" not in caplog.text


async def test_users_are_read_again_if_notifications_were_missed(store: EmbeddedStore) -> None:
    member = Member(store, 1)
    users = await member.start()
    await users.put("bob", credential(b"one"))
    for number in range(120):
        await write(store, f"u{number}", node(SCRAM_SHA_256=credential(b"x").encode()))
    session = store.session()
    await write(store, "bob", node(), told=False)
    for change in (await session.children(znodes.CONFIG_CHANGES))[:-KEPT_CHANGES]:
        await session.multi([Delete(f"{znodes.CONFIG_CHANGES}/{change}")])
    await member.configs.catch_up()
    assert len(list(users.names)) == 120


@pytest.mark.parametrize(
    ("name", "entity"),
    [
        ("a b+c*d~e", "a%20b%2Bc%2Ad%7Ee"),
        ("CN=ü,O=x/y", "CN%3D%C3%BC%2CO%3Dx%2Fy"),
        ("<default>", "%3Cdefault%3E"),
    ],
)
async def test_user_is_followed_whose_name_kafka_has_sanitized(
    store: EmbeddedStore, name: str, entity: str
) -> None:
    users = await (member := Member(store, 1)).start()
    await put(store, entity, node(**{"SCRAM-SHA-256": credential(b"one").encode()}))
    await member.catch_up()
    assert users.find(name, SHA_256) == credential(b"one")


@pytest.mark.parametrize("entity", ["<default>", "a~b", "%61lice"])
async def test_nodes_of_no_user_are_ignored(store: EmbeddedStore, entity: str) -> None:
    users = await (member := Member(store, 1)).start()
    await put(store, entity, node(**{"SCRAM-SHA-256": credential(b"one").encode()}))
    await member.catch_up()
    assert list(users.names) == []
    assert list((await Member(store, 2).start()).names) == []


async def test_unreadable_node_is_not_repeated_in_the_log(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await (member := Member(store, 1)).start()
    await put(store, "alice", b"sesame")
    await member.catch_up()
    assert "alice" in caplog.text
    assert "sesame" not in caplog.text


async def test_user_that_the_store_hides_stops_no_broker(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "alice", node(**{"SCRAM-SHA-256": credential(b"one").encode()}))
    session = store.session()
    get = type(session).get

    async def refuse(self: Any, path: str) -> Any:
        if path.startswith("/config/users"):
            raise NotAllowed(path)
        return await get(self, path)

    monkeypatch.setattr(type(session), "get", refuse)
    assert list((await Member(store, 1).start()).names) == []


async def test_user_removed_while_all_are_read_stays_removed(store: EmbeddedStore) -> None:
    data = node(**{"SCRAM-SHA-256": credential(b"one").encode()})
    for each in range(1000):
        await store.session().create(f"/config/users/u{each:04}", data)
    member = Member(store, 1)
    reading = asyncio.ensure_future(member.start())
    for _ in range(100):
        await asyncio.sleep(0)
        if member.users.find("u0000", SHA_256) is not None:
            break
    assert not reading.done()
    await member.users.delete("u0000", SHA_256)
    users = await reading
    assert users.find("u0000", SHA_256) is None
    assert users.find("u0999", SHA_256) is not None


async def put(store: EmbeddedStore, entity: str, data: bytes) -> None:
    """Create the node of an entity and tell of it, as Kafka 3.9 does."""
    change = b'{"version":2,"entity_path":"users/%s"}' % entity.encode()
    creation = Create(f"/config/users/{entity}", data)
    notice = Create(znodes.CONFIG_CHANGE, change, sequence=True)
    await store.session().multi([creation, notice])
