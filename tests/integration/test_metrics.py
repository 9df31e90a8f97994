"""The counters of a running broker."""

import asyncio
from pathlib import Path
from urllib.request import urlopen

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.config.key import ConfigError
from barnabas.protocol.messages import metadata
from tests.support.data_path import batch, connected, make_broker, running
from tests.support.ports import free_port

METRICS = "kafka_server_group_coordinator_metrics_"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager_numgroups"


async def test_an_error_of_one_partition_is_counted_for_its_api(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create()
        await client.produce(batch(b"a"))
        await client.produce(batch(b"a"), index=7)
        await client.fetch_one(5)
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="nowhere")], allow_auto_topic_creation=False
        )
        await client.connection.request(metadata.API, request)
        (errors,) = [
            dict(family.samples)
            for family in broker.registry.snapshot()
            if family.name == "kafka_network_requestmetrics_errors_total"
        ]
        assert errors == {
            ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
            ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
            ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        }


async def test_groups_are_counted_by_type_and_state(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create()

        servers = f"127.0.0.1:{broker.port}"

        def counted(name: str) -> dict[str, float]:
            family = next(each for each in broker.registry.snapshot() if each.name == name)
            return {labels[0]: value for labels, value in family.samples if value}

        async with Cluster(servers) as one, Cluster(servers) as two:
            async with (
                GroupMember(one, Consumer(one), "old", ["t"]) as old,
                GroupMember(two, Consumer(two), "new", ["t"], protocol="consumer") as new,
            ):
                await old.ensure_joined()
                await new.ensure_joined()
                assert counted(f"{METRICS}group_count") == {"classic": 1, "consumer": 1}
                assert counted(f"{METRICS}consumer_group_count") == {"Stable": 1}
                assert counted(CLASSIC) == {"Stable": 1}
            assert counted(f"{METRICS}consumer_group_count") == {"Empty": 1}
        counters = {
            each.name: dict(each.samples)[()]
            for each in broker.registry.snapshot()
            if each.name.endswith("rebalance_count_total")
        }
        assert counters == {
            f"{METRICS}group_completed_rebalance_count_total": 1,
            f"{METRICS}consumer_group_rebalance_count_total": 2,
        }


async def test_metrics_of_single_partitions_can_be_left_out(tmp_path: Path) -> None:
    async def size(directory: str, **keys: object) -> int:
        port = free_port()
        own = {"metrics_listener": f"127.0.0.1:{port}", **keys}
        async with running(tmp_path / directory, **own) as broker, connected(broker) as client:
            await client.create(partitions=100)
            text = await asyncio.to_thread(scrape, port)
        assert ('partition="99"' in text) == (not keys)
        assert "kafka_server_replicamanager_partitioncount 100.0\n" in text
        return len(text)

    assert await size("without", metrics_partitions_enable="false") < await size("with") / 3


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return answer.read().decode()


async def test_token_file_of_the_configuration_guards_the_endpoint(tmp_path: Path) -> None:
    token, port = tmp_path / "token", free_port()
    keys = {
        "metrics_listener": f"127.0.0.1:{port}",
        "metrics_listener_token_file": str(token),
    }
    token.write_text("")
    with pytest.raises(ConfigError, match="has no token"):
        await make_broker(tmp_path / "refused", **keys).start()
    token.write_text("secret")
    async with running(tmp_path / "broker", **keys):
        for header, status in ("", "401"), ("Authorization: Bearer secret\r\n", "200"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
            assert (await reader.readline()).split(b" ")[1] == status.encode()
            writer.close()
