"""What a live broker counts."""

from pathlib import Path

from barnabas.protocol.messages import metadata
from tests.integration.data_path import batch, connected, running


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
