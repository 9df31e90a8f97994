"""TLS between the brokers of a cluster."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.protocol.messages import api_versions
from tests.support.certificates import Stores
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


async def test_broker_with_the_certificate_of_another_host_is_not_asked(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, 0, **keys_of(stores, "b0", "127.0.0.1")) as first,
        member(store, tmp_path, 1, **keys_of(stores, "b1", "127.0.0.1")) as second,
    ):
        await eventually(lambda: first._core.cache.endpoint(1, BROKERS))
        peer = first._core.peers.to(1)
        request = api_versions.ApiVersionsRequest(
            client_software_name="test", client_software_version="1"
        )
        await peer.request(api_versions.API, request)
        await peer.close()
        # The address stays, the name in the certificate does not.
        certificates = second._listeners[BROKERS].tls
        assert certificates is not None
        wrong = Stores(tmp_path / "wrong", stores.authority)
        wrong.directory.mkdir()
        issued = stores.authority.issue("b1", hosts=("elsewhere",))
        keys = second.config.tls_of(BROKERS).replace(
            ssl_keystore_location=wrong.identity(issued)["ssl.keystore.location"],
            ssl_allow_san_changes=True,
        )
        await certificates.certificates.reload(keys)
        peer = first._core.peers.to(1)
        with pytest.raises(PeerUnreachable, match=r"(?i)mismatch"):
            await peer.request(api_versions.API, request)
        await peer.close()
