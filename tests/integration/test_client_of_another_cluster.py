"""Our own client, when another cluster or another broker has taken the address that it knows."""

from pathlib import Path

import pytest

from barnabas.client.blocking import ClientLoop
from barnabas.client.cluster import Cluster, Node
from barnabas.client.producer import Producer
from barnabas.pipeline.sink.options import parse_options
from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.spark import sink, source
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.testing import Broker
from tests.support.ports import free_port

SAYS = "has taken the addresses of cluster .* set metadata.cluster.check.enable=false"


async def known(cluster: Cluster) -> str:
    """Return the id of the cluster that the client has found."""
    await cluster.refresh(())
    assert cluster.cluster_id is not None
    return cluster.cluster_id


async def test_client_stops_at_another_cluster_and_writes_nothing(tmp_path: Path) -> None:
    port = free_port()
    cluster = Cluster(f"127.0.0.1:{port}", timeout=20)
    producer = Producer(cluster)
    async with Broker(data_dir=tmp_path / "a", port=port):
        first = await known(cluster)
        await (await producer.send("t", b"first"))
    async with Broker(data_dir=tmp_path / "b", port=port) as other:
        with pytest.raises(KafkaError, match=SAYS) as refused:
            await (await producer.send("t", b"second"))
        assert refused.value.code is ErrorCode.REBOOTSTRAP_REQUIRED
        for _ in range(2):
            with pytest.raises(KafkaError, match=f"addresses of cluster {first}"):
                await cluster.retrying(lambda: cluster.refresh(()))
        await cluster.close()
        async with Cluster(other.bootstrap_servers) as new:
            assert "t" not in (await new.refresh(None)).topics
            assert new.cluster_id != first


async def test_client_that_does_not_check_goes_on_with_another_cluster(tmp_path: Path) -> None:
    port = free_port()
    cluster = Cluster(f"127.0.0.1:{port}", timeout=20, check_cluster=False)
    async with Broker(data_dir=tmp_path / "a", port=port):
        first = await known(cluster)
    async with Broker(data_dir=tmp_path / "b", port=port):
        await cluster.retrying(lambda: cluster.refresh(()))
        assert cluster.cluster_id != first
        await cluster.close()


async def test_address_that_another_broker_of_the_cluster_has_taken_is_learnt_again() -> None:
    async with Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        cluster = Cluster(broker.bootstrap_servers, timeout=20)
        await known(cluster)
        (own,) = cluster.nodes
        await cluster.close()
        cluster.nodes = {7: Node(7, host, int(port))}
        await cluster.retrying(lambda: cluster.refresh(()))
        assert list(cluster.nodes) == [own]
        await cluster.close()


def test_shared_client_begins_anew_after_it_has_said_so(tmp_path: Path) -> None:
    """The tasks of a Spark worker share one; a query that is started again must not fail for the
    one before it."""
    loop, port = ClientLoop(), free_port()
    address = f"127.0.0.1:{port}"
    with Broker(data_dir=tmp_path / "a", port=port):
        first = loop.cluster(address)
    with Broker(data_dir=tmp_path / "b", port=port):
        with pytest.raises(KafkaError, match=SAYS):
            loop.run(first.retrying(lambda: first.refresh(())))
        second = loop.cluster(address)
        assert second is not first
        assert second.cluster_id != first.cluster_id
    loop.close()


@pytest.mark.parametrize("checks", ["true", "false"])
@pytest.mark.parametrize("of", ["source", "sink"])
def test_clients_of_spark_check_the_cluster_as_their_option_says(
    tmp_path: Path, of: str, checks: str
) -> None:
    port = free_port()
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "kafka.metadata.cluster.check.enable": checks,
    }
    with Broker(data_dir=tmp_path / "a", port=port):
        if of == "source":
            fetching = read_options({**options, "subscribe": "t"}, stream=True).fetching
            loop, cluster = source._client(fetching)
        else:
            loop, cluster = sink._client(parse_options({**options, "sinkId": "s"}, streaming=True))
        first = cluster.cluster_id
    with Broker(data_dir=tmp_path / "b", port=port):

        async def refresh() -> None:
            await cluster.retrying(lambda: cluster.refresh(()))

        if checks == "true":
            with pytest.raises(KafkaError, match=SAYS):
                loop.run(refresh())
        else:
            loop.run(refresh())
            assert cluster.cluster_id != first
