"""Delegation tokens with our broker and our client."""

import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.acl.rules import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from barnabas.security.sasl.credentials import DelegationToken, ScramMechanism
from tests.support.data_path import running
from tests.support.named_users import COMMON, KEYS, RULES, login
from tests.support.waiting import eventually

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))


def token_login(token: DelegationToken, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    password = b64encode(token.hmac).decode()
    account = f'username="{token.id}" password="{password}" tokenauth="true"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{COMMON}.scram.ScramLoginModule required {account};",
    }


@asynccontextmanager
async def connected(broker: Broker, keys: dict[str, str]) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers, connect=connect_with(keys), timeout=5) as cluster:
        yield cluster


@asynccontextmanager
async def user(broker: Broker, name: str) -> AsyncIterator[UserAdmin]:
    async with connected(broker, login(name)) as cluster:
        yield UserAdmin(cluster)


@pytest.mark.parametrize("mechanism", [each.value for each in ScramMechanism])
async def test_token_lets_a_client_in_as_its_owner(tmp_path: Path, mechanism: str) -> None:
    rule = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "orders"),
        AccessControlEntry(ALICE, "*", AclOperation.CREATE, AclPermissionType.ALLOW),
    )
    async with running(tmp_path, KEYS | RULES) as broker:
        async with connected(broker, login("admin")) as cluster:
            await Admin(cluster).create_acls([rule])
        async with user(broker, "alice") as alice:
            token = await alice.create_token()
        assert (token.owner, token.requester) == (ALICE, ALICE)
        async with connected(broker, token_login(token, mechanism)) as cluster:
            await Admin(cluster).create_topic("orders", partitions=1)
            with pytest.raises(KafkaError) as refused:
                await Admin(cluster).create_topic("invoices", partitions=1)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_tokens_survive_a_restart_and_end_with_their_secret(tmp_path: Path) -> None:
    async with running(tmp_path, KEYS) as broker, user(broker, "alice") as alice:
        token = await alice.create_token()
    async with running(tmp_path, KEYS) as broker, connected(broker, token_login(token)) as cluster:
        assert (await cluster.any_connection()).is_open
    other = KEYS | {"delegation.token.master.key": "another one"}
    async with running(tmp_path, other) as broker:
        await assert_refused(broker, token)


async def assert_refused(broker: Broker, token: DelegationToken) -> None:
    with pytest.raises(AuthenticationError):
        async with connected(broker, token_login(token)):
            pass


async def test_token_does_not_get_the_next_one(tmp_path: Path) -> None:
    async with running(tmp_path, KEYS) as broker:
        async with user(broker, "alice") as alice:
            token = await alice.create_token()
        async with connected(broker, token_login(token)) as cluster:
            admin = UserAdmin(cluster)
            for ask in (
                admin.create_token(),
                admin.renew_token(token.hmac),
                admin.expire_token(token.hmac),
                admin.describe_tokens(),
            ):
                with pytest.raises(KafkaError) as refused:
                    await ask
                assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_anonymous_client_gets_no_token(tmp_path: Path) -> None:
    async with running(tmp_path, KEYS) as broker:
        port = broker.ports["OPEN"]
        async with Cluster(f"localhost:{port}", timeout=5) as cluster:
            with pytest.raises(KafkaError) as refused:
                await UserAdmin(cluster).create_token()
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    keys = {name: text for name, text in KEYS.items() if not name.startswith("delegation")}
    async with running(tmp_path, keys) as broker, user(broker, "alice") as alice:
        for ask in (
            alice.create_token(),
            alice.renew_token(b"a"),
            alice.expire_token(b"a"),
            alice.describe_tokens(),
        ):
            with pytest.raises(KafkaError) as refused:
                await ask
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_session_ends_with_its_token(tmp_path: Path) -> None:
    async with running(tmp_path, KEYS) as broker, user(broker, "alice") as alice:
        token = await alice.create_token()
        end_ms = await alice.renew_token(token.hmac, 1000)
        async with connected(broker, token_login(token)) as cluster:
            connection = await cluster.any_connection()
            expired = broker._metrics.requests.connections_expired.cell()
            await eventually(lambda: time.time() * 1000 > end_ms)
            with pytest.raises((ConnectionError, AuthenticationError, KafkaError)):
                await cluster.refresh(())
            assert not connection.is_open
        assert expired.value <= 1
        await assert_refused(broker, token)


@pytest.mark.parametrize("how", ["expired", "another hmac", "unknown", "as a user"])
async def test_token_that_does_not_count_is_refused(tmp_path: Path, how: str) -> None:
    async with running(tmp_path, KEYS) as broker, user(broker, "alice") as alice:
        token, other = await alice.create_token(), await alice.create_token()
        if how == "expired":
            await alice.expire_token(token.hmac)
        elif how == "another hmac":
            token = replace(token, hmac=other.hmac)
        elif how == "unknown":
            token = replace(token, id="unknown")
        keys = token_login(token)
        if how == "as a user":
            keys["sasl.jaas.config"] = keys["sasl.jaas.config"].replace(' tokenauth="true"', "")
        with pytest.raises(AuthenticationError):
            async with connected(broker, keys):
                pass


async def test_expired_tokens_are_swept(tmp_path: Path) -> None:
    keys = KEYS | {"delegation.token.expiry.check.interval.ms": "10"}
    async with running(tmp_path, keys) as broker, user(broker, "alice") as alice:
        kept = await alice.create_token()
        await alice.create_token(max_lifetime_ms=1)
        tokens = broker._core.tokens
        assert tokens is not None
        await eventually(lambda: [each.id for each in tokens.known()] == [kept.id])


async def test_rights_on_tokens(tmp_path: Path) -> None:
    def rule(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        entry = AccessControlEntry(BOB, "*", operation, AclPermissionType.ALLOW)
        return AclBinding(ResourcePattern(kind, name), entry)

    async with running(tmp_path, KEYS | RULES) as broker:
        async with connected(broker, login("admin")) as cluster:
            admin = Admin(cluster)
            async with user(broker, "alice") as alice, user(broker, "bob") as bob:
                own = await alice.create_token()
                assert await alice.describe_tokens() == [own]
                assert await bob.describe_tokens() == []
                with pytest.raises(KafkaError) as refused:
                    await bob.create_token(owner=CAROL)
                assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
                await admin.create_acls(
                    [rule(ResourceType.USER, "User:carol", AclOperation.CREATE_TOKENS)]
                )
                carols = await bob.create_token(owner=CAROL, renewers=[ALICE])
                assert (carols.owner, carols.requester) == (CAROL, BOB)
                assert await bob.describe_tokens() == [carols]
                assert len(await alice.describe_tokens()) == 2
                with pytest.raises(KafkaError) as refused:
                    await bob.renew_token(carols.hmac)
                assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
                assert await alice.renew_token(carols.hmac) > 0
                await admin.create_acls(
                    [rule(ResourceType.DELEGATION_TOKEN, own.id, AclOperation.DESCRIBE)]
                )
                assert {each.id for each in await bob.describe_tokens()} == {own.id, carols.id}
                others = await alice.create_token()
                assert others.id not in {each.id for each in await bob.describe_tokens()}
                await admin.create_acls(
                    [rule(ResourceType.USER, "User:alice", AclOperation.DESCRIBE_TOKENS)]
                )
                assert others.id in {each.id for each in await bob.describe_tokens()}
