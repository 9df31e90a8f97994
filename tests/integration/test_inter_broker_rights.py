"""Rights of brokers: on a listener of their own, and on one that clients use too."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.broker.routes import API_TABLE
from barnabas.broker.security.gate import BEFORE_AUTHENTICATION
from barnabas.broker.server.limits.quotas import Entity, Quota
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connect, Connection
from barnabas.client.security import connect_with
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.config.key import ConfigError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics, expect_producers, fetch, write_txn_markers
from barnabas.protocol.schema import Api, Message, fields_of
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from tests.support.fuzz_targets import filled
from tests.support.in_cluster import BROKERS, CLIENTS, member, shared_metadata
from tests.support.waiting import eventually

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("b0", "b1", "b2", "admin", "eve"))
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
REFUSED = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
SHARED = {
    "listeners": f"{BROKERS}://127.0.0.1:0",
    "listener_security_protocol_map": f"{BROKERS}:SASL_PLAINTEXT",
}


def keys_of(number: int, **more: str) -> dict[str, str]:
    prefix = f"listener_name_{BROKERS.lower()}_plain_"
    return {
        "listener_security_protocol_map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        f"{prefix}sasl_jaas_config": (
            f'{MODULE} username="b{number}" password="b{number}-secret" {USERS};'
        ),
        "authorizer_class_name": AUTHORIZER,
        "super_users": "User:b0;User:b1;User:b2;User:admin",
        "offsets_topic_num_partitions": "1",
        "transaction_state_log_num_partitions": "1",
        **more,
    }


def connect_as(user: str) -> Connect | None:
    return connect_with(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
        }
    )


@asynccontextmanager
async def connected(broker: Broker, user: str) -> AsyncIterator[Connection]:
    connection = await Connection.open(
        "127.0.0.1", broker.ports[BROKERS], connect=connect_as(user), timeout=5
    )
    try:
        yield connection
    finally:
        await connection.close()


def codes(response: Any, version: int) -> Iterator[int]:
    """Yield the error codes of a response, whatever their place."""
    if isinstance(response, list):
        for each in response:
            yield from codes(each, version)
    elif isinstance(response, Message):
        for field in fields_of(type(response)):
            if field.exists(version):
                value = getattr(response, field.name)
                if field.name in ("error_code", "partition_error_code"):
                    yield value
                else:
                    yield from codes(value, version)


async def refusals(connection: Connection, api: Api, versions: range) -> dict[int, set[int]]:
    """Send a request of each version that names one of everything; return the error codes."""
    found = {}
    for version in versions:
        request = filled(api.request, version)
        answer = await connection.request(api, request, version=version, timeout=10)
        found[version] = {*codes(answer, version)}
    return found


async def test_client_among_brokers_is_refused_whatever_it_sends(tmp_path: Path) -> None:
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, **keys_of(0)) as broker,
        connected(broker, "eve") as connection,
    ):
        before = dict(broker._core.cache.topics)
        for row in API_TABLE:
            if row.api.key in BEFORE_AUTHENTICATION or row.api is expect_producers.API:
                continue
            versions = row.versions
            if row.api.name == "DescribeLogDirs":
                answers = await refusals(connection, row.api, versions[:2])
                # These versions have no error for the whole request: the list is empty.
                assert answers == {1: set(), 2: set()}
                versions = versions[2:]
            found = await refusals(connection, row.api, versions)
            assert all(each == REFUSED for each in found.values()), (row.api.name, found)
        assert broker._core.cache.topics == before


@pytest.mark.parametrize("shares", [False, True])
async def test_client_that_tells_a_broker_of_producers_is_cut_off(
    tmp_path: Path, shares: bool
) -> None:
    """The protocol has no answer in which a refusal could stand."""
    keys = keys_of(0) | (SHARED if shares else {})
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, **keys) as broker,
        connected(broker, "eve") as connection,
    ):
        request = expect_producers.ExpectProducersRequest(producers=[])
        connection.submit(expect_producers.API, request, 0, None)
        await eventually(lambda: not connection.is_open)


async def test_cluster_action_is_all_that_a_broker_needs(tmp_path: Path) -> None:
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, **keys_of(0)) as broker,
        connected(broker, "eve") as connection,
    ):
        topic = create_topics.CreatableTopic(
            name=CONSUMER_OFFSETS,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)

        async def outcome() -> int:
            answer = await connection.request(create_topics.API, request)
            return int(answer.topics[0].error_code)

        assert await outcome() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        as_broker = AccessControlEntry(
            Principal("User", "eve"), "*", AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW
        )
        cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
        assert broker._core.acls is not None
        await broker._core.acls.create([AclBinding(cluster, as_broker)])
        assert await outcome() == ErrorCode.NONE


@asynccontextmanager
async def one_listener(directory: Path) -> AsyncIterator[list[Broker]]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(directory / "metadata"))
        yield [
            await stack.enter_async_context(
                member(store, directory, number, **keys_of(number, **SHARED))
            )
            for number in range(3)
        ]


async def test_one_listener_serves_brokers_and_clients(tmp_path: Path) -> None:
    async with one_listener(tmp_path) as brokers:
        at = f"127.0.0.1:{brokers[0].ports[BROKERS]}"
        async with Cluster(at, connect=connect_as("admin")) as cluster:
            admin = Admin(cluster)
            await admin.create_topic(
                "orders", partitions=3, replication_factor=3, configs={"min.insync.replicas": "3"}
            )
            async with TransactionalProducer(cluster, "x") as producer:
                await producer.init_transactions()
                async with producer.transaction():
                    for number in range(30):
                        await producer.send("orders", b"%d" % number, partition=number % 3)
        seen = {
            str(each.principal)
            for broker in brokers
            for each in broker._listeners[BROKERS]._connections
        }
        assert {"User:b0", "User:b1", "User:b2"} <= seen


async def test_brokers_of_one_listener_have_no_quotas(tmp_path: Path) -> None:
    async with one_listener(tmp_path) as brokers:
        quotas = [broker._core.quotas.quotas for broker in brokers]
        for each, number in product(quotas, range(3)):
            each.limit(Entity(f"b{number}"), {Quota.REQUEST: 0.001})
        at = f"127.0.0.1:{brokers[0].ports[BROKERS]}"
        async with Cluster(at, connect=connect_as("admin")) as cluster:
            await Admin(cluster).create_topic("orders", partitions=3, replication_factor=3)
            async with TransactionalProducer(cluster, "x") as producer:
                await producer.init_transactions()
                async with producer.transaction():
                    for partition in range(3):
                        await producer.send("orders", b"1", partition=partition)
        throttled = [each._metrics.throttled.cell("request_percentage").value for each in quotas]
        assert throttled == [0, 0, 0]


async def test_client_of_one_listener_is_no_broker(tmp_path: Path) -> None:
    async with one_listener(tmp_path) as brokers:
        await eventually(lambda: brokers[0]._core.cache.endpoint(2, BROKERS))
        async with connected(brokers[0], "eve") as connection:
            for row in API_TABLE:
                if row.api is expect_producers.API:
                    continue
                if not row.clients or row.api is write_txn_markers.API:
                    found = await refusals(connection, row.api, row.versions)
                    assert all(each == REFUSED for each in found.values()), (row.api.name, found)
            fetches = await refusals(connection, fetch.API, range(4, 13))
            assert {code for each in fetches.values() for code in each} <= {
                ErrorCode.NONE,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            }


@pytest.mark.parametrize(
    "changed",
    [
        {"authorizer_class_name": "", "super_users": ""},
        {"listener_security_protocol_map": f"{BROKERS}:PLAINTEXT"},
        {"listener_security_protocol_map": f"{BROKERS}:SSL"},
    ],
)
async def test_one_listener_needs_names_of_clients_and_an_authorizer(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    async with shared_metadata(tmp_path / "metadata") as store:
        with pytest.raises(ConfigError, match="Brokers of a cluster need a listener"):
            async with member(store, tmp_path, **keys_of(0, **SHARED) | changed):
                pass


async def test_further_listener_of_brokers_has_to_exist(tmp_path: Path) -> None:
    keys = keys_of(0, additional_inter_broker_listeners="SECURE")
    async with shared_metadata(tmp_path / "metadata") as store:
        with pytest.raises(ConfigError, match="listeners has no SECURE, but: CLIENTS, BROKERS"):
            async with member(store, tmp_path, **keys):
                pass
