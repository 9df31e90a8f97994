"""Delegation tokens in the metadata store, as Kafka 3.9 writes them."""

import asyncio
import json
from dataclasses import replace

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.followed_nodes import KEPT_CHANGES
from barnabas.broker.security import delegation_tokens
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.broker.store.metadata_store import Create, Delete, NodeExists, NotAllowed, SetData
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.principal import Principal
from barnabas.security.sasl.credentials import DelegationToken, token_hmac

SECRET = "the secret of the cluster"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob@EXAMPLE")
KAFKAS = (
    b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Abob%40EXAMPLE",'
    b'"renewers":["User%3Abob%40EXAMPLE"],"issueTimestamp":100,"maxTimestamp":900,'
    b'"expiryTimestamp":500,"tokenId":"LZ9-x_8LQ0CqSJy4LJZyIw"}'
)
"""As DelegationTokenManagerZk of Kafka 3.9 encodes it."""
ID = "LZ9-x_8LQ0CqSJy4LJZyIw"


def token(token_id: str = ID, **changes: object) -> DelegationToken:
    found = DelegationToken(
        id=token_id,
        owner=ALICE,
        requester=BOB,
        renewers=(BOB,),
        issued_ms=100,
        max_ms=900,
        expires_ms=500,
        hmac=token_hmac(token_id, SECRET),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


class Member:
    """A broker with the tokens that it knows."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.session = store.session()
        self.tokens = DelegationTokens(self.session, SECRET)
        self.news = asyncio.Event()

    async def start(self) -> DelegationTokens:
        await self.tokens.start(self.news.set)
        return self.tokens

    async def catch_up(self) -> None:
        await asyncio.wait_for(self.news.wait(), 5)
        self.news.clear()
        await self.tokens.catch_up()


async def write(store: EmbeddedStore, token_id: str, data: bytes | None) -> None:
    """Write or delete a node as Kafka does: the node, and then the notification."""
    session, path = store.session(), znodes.token_path(token_id)
    if data is None:
        await session.multi([Delete(path)])
    else:
        exists = await session.exists(path)
        await session.multi([SetData(path, data, -1) if exists else Create(path, data)])
    await session.multi([Create(znodes.TOKEN_CHANGE, token_id.encode(), sequence=True)])


def test_node_is_kafkas_byte_for_byte() -> None:
    assert znodes.encode_token(token()) == KAFKAS
    assert znodes.decode_token(ID, KAFKAS, token().hmac) == token()


@pytest.mark.parametrize("version", [1, 2])
def test_token_of_an_older_kafka_was_requested_by_its_owner(version: int) -> None:
    value = json.loads(KAFKAS)
    del value["tokenRequester"]
    data = json.dumps(value | {"version": version}).encode()
    assert znodes.decode_token(ID, data, token().hmac) == token(requester=ALICE)


async def test_token_is_known_to_all_brokers_and_after_a_start(store: EmbeddedStore) -> None:
    here, there = Member(store), Member(store)
    await here.start()
    await there.start()
    await here.tokens.create(token())
    assert here.tokens.find(ID) == token()
    await there.catch_up()
    later = await Member(store).start()
    for tokens in (there.tokens, later):
        assert tokens.find(ID) == token()
        assert await tokens.with_hmac(token().hmac) == token()
    assert await there.tokens.change(ID, lambda found: replace(found, expires_ms=700))
    await here.catch_up()
    assert here.tokens.find(ID) == token(expires_ms=700)
    assert await here.tokens.change(ID, lambda _: None)
    assert not await here.tokens.change(ID, lambda _: None)
    await there.catch_up()
    assert there.tokens.known() == []


async def test_tokens_of_kafkas_brokers_are_followed(store: EmbeddedStore) -> None:
    here = Member(store)
    await here.start()
    await write(store, ID, KAFKAS)
    await here.catch_up()
    assert here.tokens.find(ID) == token()
    await write(store, ID, KAFKAS.replace(b":500", b":600"))
    await here.catch_up()
    assert here.tokens.find(ID) == token(expires_ms=600)
    await write(store, ID, None)
    await here.catch_up()
    assert here.tokens.find(ID) is None
    assert await here.tokens.with_hmac(token().hmac) is None


async def test_token_of_another_broker_is_found_before_its_notification(
    store: EmbeddedStore,
) -> None:
    here, there = Member(store), Member(store)
    await here.start()
    await there.start()
    await there.tokens.create(token())
    assert await here.tokens.with_hmac(token().hmac) == token()


async def test_missed_notifications_make_a_broker_read_everything(store: EmbeddedStore) -> None:
    here, there = Member(store), Member(store)
    await here.start()
    await there.start()
    await there.tokens.create(token())
    for number in range(KEPT_CHANGES + 1):
        await there.tokens.create(token(f"id-{number}"))
    await there.tokens.change(ID, lambda _: None)
    await there.tokens.catch_up()
    await here.tokens.catch_up()
    assert len(here.tokens.known()) == KEPT_CHANGES + 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        KAFKAS.replace(b'"version":3', b'"version":4'),
        KAFKAS.replace(b"User%3Aalice", b"alice"),
        KAFKAS.replace(ID.encode(), b"another"),
        b"[" * 100_000,
    ],
)
async def test_unreadable_token_is_none(store: EmbeddedStore, data: bytes) -> None:
    here = Member(store)
    await here.start()
    await write(store, ID, data)
    await write(store, "id-2", KAFKAS.replace(ID.encode(), b"id-2"))
    await here.catch_up()
    assert [each.id for each in here.tokens.known()] == ["id-2"]
    assert not await here.tokens.change(ID, lambda found: found)
    assert (await here.session.get(znodes.token_path(ID)))[0] == data


async def test_notification_of_no_token_is_passed_over(store: EmbeddedStore) -> None:
    here = Member(store)
    await here.start()
    for name in (b"", b"../../cluster/id", b"\xff", b"a" * 100):
        await store.session().multi([Create(znodes.TOKEN_CHANGE, name, sequence=True)])
    await here.tokens.catch_up()
    await here.tokens.create(token())
    assert here.tokens.find(ID) == token()


async def test_expired_tokens_are_deleted_and_renewed_ones_stay(store: EmbeddedStore) -> None:
    here, there = Member(store), Member(store)
    await here.start()
    for name, changes in (
        ("expired", {"expires_ms": 200}),
        ("renewed", {"expires_ms": 200}),
        ("at-its-end", {"max_ms": 150}),
        ("valid", {}),
    ):
        await here.tokens.create(token(name, **changes))
    await there.start()
    # The one that sweeps has not heard of the renewal.
    await here.tokens.change("renewed", lambda found: replace(found, expires_ms=400))
    await there.tokens.delete_expired(300)
    assert {each.id for each in there.tokens.known()} == {"renewed", "valid"}
    assert await store.session().children(znodes.DELEGATION_TOKENS) == ["renewed", "valid"]


async def test_tokens_are_bounded(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Member(store)
    await here.start()
    many = tuple(Principal("User", f"renewer-{number}") for number in range(5000))
    with pytest.raises(KafkaError) as refused:
        await here.tokens.create(token(renewers=many))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    monkeypatch.setattr(delegation_tokens, "MAX_BYTES", 2 * len(KAFKAS))
    await here.tokens.create(token())
    with pytest.raises(KafkaError) as refused:
        await here.tokens.create(token("another-id-that-is-too-long-for-the-rest"))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await here.tokens.change(ID, lambda _: None)
    await here.tokens.create(token("another-id-that-is-too-long-for-the-rest"))


async def test_requester_does_not_use_up_the_tokens_of_others(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob requests tokens for alice, who has her own share."""
    here, there = Member(store), Member(store)
    await here.start()
    await there.start()
    monkeypatch.setattr(delegation_tokens, "MAX_REQUESTER_BYTES", 2 * len(KAFKAS))
    names = [f"token-of-bob-number-{number}" for number in range(5)]
    created = await asyncio.gather(
        *(here.tokens.create(token(name)) for name in names), return_exceptions=True
    )
    assert [getattr(each, "code", None) for each in created] == [None] * 2 + [
        ErrorCode.POLICY_VIOLATION
    ] * 3
    await there.catch_up()
    with pytest.raises(KafkaError) as refused:
        await there.tokens.create(token(names[2]))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await there.tokens.create(token("token-of-alice", requester=ALICE))
    assert await there.tokens.change(names[0], lambda _: None)
    await there.tokens.create(token(names[2]))


async def test_token_that_is_not_stored_does_not_count(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Member(store)
    await here.start()
    monkeypatch.setattr(delegation_tokens, "MAX_REQUESTER_BYTES", len(KAFKAS))
    await write(store, ID, KAFKAS)
    with pytest.raises(NodeExists):
        await here.tokens.create(token())
    await write(store, ID, None)
    await here.tokens.create(token())


async def test_no_token_is_accepted_while_they_may_not_be_read(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Member(store)
    await here.start()
    await here.tokens.create(token())

    async def refused(path: str) -> list[str]:
        raise NotAllowed(path)

    here.tokens._expired()
    with monkeypatch.context() as patched:
        patched.setattr(here.session, "children", children_but_tokens(here, refused))
        await here.tokens.catch_up()
        assert here.tokens.find(ID) is None
    here.tokens._expired()
    await here.tokens.catch_up()
    assert here.tokens.find(ID) == token()


def children_but_tokens(member: Member, refused):
    found = member.session.children

    async def children(path: str) -> list[str]:
        return await (refused if path == znodes.DELEGATION_TOKENS else found)(path)

    return children
