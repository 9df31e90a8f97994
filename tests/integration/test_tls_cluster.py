"""TLS between the brokers of a cluster."""

from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.config.tls_keys import TlsKeys
from barnabas.protocol.messages import api_versions
from tests.support.certificates import Authority, Stores
from tests.support.in_cluster import BROKERS, CLIENTS, member, shared_metadata
from tests.support.waiting import eventually


def keys_of(stores: Stores, name: str, *hosts: str) -> dict[str, str]:
    issued = stores.authority.issue(name, hosts=hosts)
    own = stores.identity(issued, name=name) | stores.trust() | {"ssl.client.auth": "required"}
    prefix = f"listener_name_{BROKERS.lower()}_"
    keys = {prefix + key.replace(".", "_"): value for key, value in own.items()}
    return keys | {"listener_security_protocol_map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:SSL"}


def principals(broker: Broker) -> set[str]:
    return {each.principal for each in broker._listeners[BROKERS]._connections}


async def test_three_brokers_replicate_over_tls_and_present_their_certificates(
    tmp_path: Path,
) -> None:
    stores = Stores(tmp_path)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(
                member(store, tmp_path, number, **keys_of(stores, f"b{number}", "127.0.0.1"))
            )
            for number in range(3)
        ]
        async with Cluster(f"127.0.0.1:{brokers[0].ports[CLIENTS]}") as cluster:
            await Admin(cluster).create_topic(
                "orders",
                partitions=3,
                replication_factor=3,
                configs={"min.insync.replicas": "3"},
            )
            async with Producer(cluster) as producer:
                for number in range(30):
                    await producer.send("orders", b"%d" % number, partition=number % 3)
        seen = set.union(*(principals(broker) for broker in brokers))
        assert {str(each) for each in seen} == {"User:CN=b0", "User:CN=b1", "User:CN=b2"}


async def reach(first: Broker, to: int) -> None:
    """Send a request to another broker over a new connection; raise PeerUnreachable."""
    peer = first._core.peers.to(to)
    request = api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )
    try:
        await peer.request(api_versions.API, request)
    finally:
        await peer.close()


HOST = "127.0.0.1"
WRONG = {
    "host": (lambda own: own.issue("b", hosts=("elsewhere",)), r"(?i)mismatch"),
    "authority": (lambda _: Authority("ca").issue("b", hosts=(HOST,)), "CERTIFICATE_VERIFY"),
    "expired": (
        lambda own: own.issue("b", hosts=(HOST,), begins=timedelta(days=-9), days=8),
        "expired",
    ),
    "not yet valid": (
        lambda own: own.issue("b", hosts=(HOST,), begins=timedelta(days=1)),
        "not yet valid",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_broker_with_a_wrong_certificate_is_neither_asked_nor_served(
    tmp_path: Path, wrong: str
) -> None:
    stores = Stores(tmp_path)
    issue, reason = WRONG[wrong]
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, 0, **keys_of(stores, "b", HOST)) as first,
        member(store, tmp_path, 1, **keys_of(stores, "b", HOST)) as second,
    ):
        for broker, other in ((first, 1), (second, 0)):
            await eventually(partial(broker._core.cache.endpoint, other, BROKERS))
            await reach(broker, other)
        right = second.config.tls_of(BROKERS).replace(
            ssl_allow_san_changes=True, ssl_endpoint_identification_algorithm="https"
        )
        (tmp_path / "wrong").mkdir()
        path = Stores(tmp_path / "wrong").identity(issue(stores.authority))
        await reload(second, right.replace(ssl_keystore_location=path["ssl.keystore.location"]))
        with pytest.raises(PeerUnreachable, match=reason):
            await reach(first, 1)
        if wrong == "host":
            # Only a client checks the name: the server knows no name of its peer.
            await reach(second, 0)
            await reload(first, right.replace(ssl_endpoint_identification_algorithm=""))
            await reach(first, 1)
        else:
            with pytest.raises(PeerUnreachable):
                await reach(second, 0)
            assert first._metrics.requests.authentication.failed.cell(BROKERS).value
        # So that the brokers stop without waiting for each other.
        await reload(second, right)


async def reload(broker: Broker, keys: TlsKeys) -> None:
    """Let the listener and the connections to others use other keys."""
    for each in broker._certificates:
        await each.reload(keys)
