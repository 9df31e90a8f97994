"""SASL between the brokers of a cluster."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.config.key import ConfigError
from barnabas.protocol.messages import api_versions
from tests.support.certificates import Stores
from tests.support.in_cluster import BROKERS, CLIENTS, member, shared_metadata
from tests.support.waiting import eventually

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


async def test_broker_with_a_wrong_password_is_not_served(tmp_path: Path) -> None:
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, 0, **keys_of(0)) as first,
        member(store, tmp_path, 1, **keys_of(1)),
    ):
        await eventually(lambda: first._core.cache.endpoint(1, BROKERS))
        wrong = first._config.overlay(
            {
                f"listener.name.{BROKERS.lower()}.plain.sasl.jaas.config": (
                    f'{MODULE} username="b0" password="wrong";'
                )
            }
        )
        first._config = wrong
        first._core.peers._connect = first._connect_to_brokers()
        peer = first._core.peers.to(1)
        request = api_versions.ApiVersionsRequest(
            client_software_name="test", client_software_version="1"
        )
        with pytest.raises(PeerUnreachable, match="Invalid username or password"):
            await peer.request(api_versions.API, request)
        await peer.close()


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
