"""SASL between the brokers of a cluster."""

import base64
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.broker.cluster.registration import prepare_cluster
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.broker.store.metadata_store import Create
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.config.key import ConfigError
from barnabas.protocol.messages import api_versions
from barnabas.protocol.types import uuid_text
from barnabas.security.sasl.credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism
from tests.support.certificates import Stores
from tests.support.in_cluster import BROKERS, CLIENTS, member, shared_metadata
from tests.support.waiting import eventually
from tests.support.web_server import Asked, web_server
from tests.support.web_tokens import Issuer

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_b{n}="secret-{n}"' for n in range(3))
PREFIX = f"listener_name_{BROKERS.lower()}_"


def keys_of(number: int, protocol: str = "SASL_PLAINTEXT", password: str = "") -> dict[str, str]:
    password = password or f"secret-{number}"
    return {
        "listener_security_protocol_map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:{protocol}",
        "sasl_enabled_mechanisms": "PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        f"{PREFIX}plain_sasl_jaas_config": (
            f'{MODULE} username="b{number}" password="{password}" {USERS};'
        ),
        "connection_failed_authentication_delay_ms": "1",
    }


BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def secured(mechanism: str, jaas: str, **more: str) -> dict[str, str]:
    """Return the keys of a broker that knows others by one mechanism."""
    return {
        "listener_security_protocol_map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": mechanism,
        "sasl_mechanism_inter_broker_protocol": mechanism,
        f"{PREFIX}{mechanism.lower()}_sasl_jaas_config": jaas,
        "connection_failed_authentication_delay_ms": "1",
    } | {f"{PREFIX}{mechanism.lower()}_{key}": text for key, text in more.items()}


async def add_users(store: EmbeddedStore, mechanism: ScramMechanism) -> None:
    """Write accounts of three brokers before the first of them starts (KIP-900)."""
    session = store.session()
    await prepare_cluster(session, uuid_text(bytes(16)))
    for number in range(3):
        password = f"secret-{number}".encode()
        credential = ScramCredential.of_password(mechanism, password, b"salt", MIN_ITERATIONS)
        values = {mechanism.value: credential.encode()}
        path = znodes.config_path("users", f"b{number}")
        await session.multi([Create(path, znodes.encode_config(values))])
    await session.close()


def principals(broker: Broker) -> set[str]:
    return {str(each.principal) for each in broker._listeners[BROKERS]._connections}


async def replicate(brokers: list[Broker], topic: str, count: int) -> None:
    async with Cluster(f"127.0.0.1:{brokers[0].ports[CLIENTS]}") as cluster:
        await Admin(cluster).create_topic(
            topic, partitions=3, replication_factor=3, configs={"min.insync.replicas": "3"}
        )
        async with Producer(cluster) as producer:
            for number in range(count):
                await (await producer.send(topic, b"%d" % number, partition=number % 3))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_three_brokers_replicate_under_their_own_accounts(
    tmp_path: Path, protocol: str
) -> None:
    stores = Stores(tmp_path)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = []
        for number in range(3):
            keys = keys_of(number, protocol)
            if protocol == "SASL_SSL":
                issued = stores.authority.issue(f"b{number}", hosts=("127.0.0.1",))
                tls = stores.identity(issued, name=f"b{number}") | stores.trust()
                keys |= {PREFIX + key.replace(".", "_"): text for key, text in tls.items()}
            brokers.append(await stack.enter_async_context(member(store, tmp_path, number, **keys)))
        await replicate(brokers, "orders", 30)
        seen = set.union(*(principals(broker) for broker in brokers))
        assert seen == {"User:b0", "User:b1", "User:b2"}


async def test_brokers_log_in_again_while_they_replicate(tmp_path: Path) -> None:
    again = {f"{PREFIX}connections_max_reauth_ms": "200"}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(
                member(store, tmp_path, number, **keys_of(number), **again)
            )
            for number in range(3)
        ]
        cells = [
            broker._metrics.requests.authentication.succeeded_again.cell(BROKERS)
            for broker in brokers
        ]
        await replicate(brokers, "orders", 30)
        await eventually(lambda: all(cell.value >= 3 for cell in cells))
        await replicate(brokers, "more", 30)
        failed = [
            broker._metrics.requests.authentication.failed_again.cell(BROKERS).value
            for broker in brokers
        ]
        assert failed == [0, 0, 0]


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_brokers_know_each_other_by_scram(tmp_path: Path, mechanism: ScramMechanism) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        await add_users(store, mechanism)
        brokers = []
        for number in range(3):
            jaas = f'{SCRAM} username="b{number}" password="secret-{number}";'
            keys = secured(mechanism.value, jaas, connections_max_reauth_ms="200")
            brokers.append(await stack.enter_async_context(member(store, tmp_path, number, **keys)))
        await replicate(brokers, "orders", 30)
        seen = set.union(*(principals(broker) for broker in brokers))
        assert seen == {"User:b0", "User:b1", "User:b2"}
        again = [
            broker._metrics.requests.authentication.succeeded_again.cell(BROKERS)
            for broker in brokers
        ]
        await eventually(lambda: all(cell.value for cell in again))


async def test_broker_whose_user_is_gone_is_served_until_its_session_ends(tmp_path: Path) -> None:
    """A new password and another name of a user count at the next login."""
    mechanism = ScramMechanism.SHA_256
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        await add_users(store, mechanism)
        brokers = []
        for number in range(2):
            jaas = f'{SCRAM} username="b{number}" password="secret-{number}";'
            keys = secured(mechanism.value, jaas, connections_max_reauth_ms="200")
            brokers.append(await stack.enter_async_context(member(store, tmp_path, number, **keys)))
        first, second = brokers
        await eventually(lambda: first._core.cache.endpoint(1, BROKERS))
        peer = first._core.peers.to(1)
        request = api_versions.ApiVersionsRequest(
            client_software_name="test", client_software_version="1"
        )
        await peer.request(api_versions.API, request)
        users = second._core.scram_users
        credential = users.find("b0", mechanism)
        await users.delete("b0", mechanism)

        async def is_refused() -> bool:
            try:
                await peer.request(api_versions.API, request)
            except PeerUnreachable as error:
                return "due to invalid credentials" in str(error)
            return False

        await eventually(is_refused)
        await users.put("b0", credential)

        async def is_served() -> bool:
            try:
                await peer.request(api_versions.API, request)
            except PeerUnreachable:
                return False
            return True

        await eventually(is_served)
        await peer.close()


async def test_brokers_know_each_other_by_tokens_and_log_in_before_these_end(
    tmp_path: Path,
) -> None:
    issuer = Issuer()
    (tmp_path / "web").mkdir()
    with web_server(tmp_path / "web") as server:

        def answer(asked: Asked) -> tuple[int, bytes]:
            if asked.method == "GET":
                return 200, issuer.key_set.encode()
            _, account = asked.headers["Authorization"].split()
            name = base64.b64decode(account).decode().partition(":")[0]
            return 200, json.dumps({"access_token": issuer.token(name, lasts_s=1)}).encode()

        server.answer = answer
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
            brokers = []
            for number in range(3):
                keys = secured(
                    "OAUTHBEARER",
                    f'{BEARER} clientId="b{number}" clientSecret="secret-{number}" {server.trust};',
                    sasl_oauthbearer_token_endpoint_url=server.url,
                    sasl_oauthbearer_jwks_endpoint_url=server.url,
                    sasl_oauthbearer_clock_skew_seconds="0",
                )
                brokers.append(
                    await stack.enter_async_context(member(store, tmp_path, number, **keys))
                )
            await replicate(brokers, "orders", 30)
            seen = set.union(*(principals(broker) for broker in brokers))
            assert seen == {"User:b0", "User:b1", "User:b2"}
            metrics = [broker._metrics.requests.authentication for broker in brokers]
            again = [each.succeeded_again.cell(BROKERS) for each in metrics]
            await eventually(lambda: all(cell.value >= 2 for cell in again))
            await replicate(brokers, "more", 30)
            assert not any(each.failed_again.cell(BROKERS).value for each in metrics)


async def test_broker_with_a_wrong_password_is_not_served(tmp_path: Path) -> None:
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, 0, **keys_of(0)) as first,
        member(store, tmp_path, 1, **keys_of(1)),
    ):
        await eventually(lambda: first._core.cache.endpoint(1, BROKERS))
        request = api_versions.ApiVersionsRequest(
            client_software_name="test", client_software_version="1"
        )
        key = f"listener.name.{BROKERS.lower()}.plain.sasl.jaas.config"

        async def reach(password: str) -> None:
            jaas = f'{MODULE} username="b0" password="{password}" {USERS};'
            first._dynamic.apply(cluster_defaults={}, overrides={key: jaas})
            peer = first._core.peers.to(1)
            try:
                await peer.request(api_versions.API, request)
            finally:
                await peer.close()

        await reach("secret-0")
        with pytest.raises(PeerUnreachable, match="Invalid username or password"):
            await reach("wrong")
        await reach("secret-0")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"sasl_mechanism_inter_broker_protocol": "GSSAPI"},
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms",
        ),
        (
            {f"{PREFIX}plain_sasl_jaas_config": f"{MODULE} {USERS};"},
            "listener.name.brokers.plain.sasl.jaas.config has no username or password",
        ),
        (
            secured("OAUTHBEARER", f'{BEARER} clientId="b0";'),
            "Set sasl.oauthbearer.token.endpoint.url to the https",
        ),
        (
            secured(
                "OAUTHBEARER",
                f'{BEARER} clientId="b0";',
                sasl_oauthbearer_token_endpoint_url="https://localhost:1/",
            ),
            "Could not find OAuth configuration for sasl.oauthbearer.client.credentials.client",
        ),
        (
            {f"{PREFIX}plain_sasl_jaas_config": ""},
            "listener.name.brokers.plain.sasl.jaas.config: Login module not specified",
        ),
    ],
)
async def test_broker_without_an_account_for_others_does_not_start(
    tmp_path: Path, keys: dict[str, str], reason: str
) -> None:
    async with shared_metadata(tmp_path / "metadata") as store:
        with pytest.raises(ConfigError, match=reason.replace(".", r"\.")) as caught:
            async with member(store, tmp_path, 0, **keys_of(0) | keys):
                pass
    assert "secret-" not in str(caught.value)
