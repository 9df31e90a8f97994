"""The administration of transactions on answers that a test makes."""

from typing import Any

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import metadata
from barnabas.protocol.schema import Api


class Fenced(Cluster):
    """A cluster of Apache Kafka whose brokers are all fenced: Metadata names none."""

    async def ask(self, api: Api, request: object, *, node: int | None = None) -> Any:
        assert isinstance(request, metadata.MetadataRequest), (api, node)
        return metadata.MetadataResponse(brokers=[], topics=[])


@pytest.mark.parametrize("listing", ["transactions", "open_under"])
async def test_transactions_of_a_cluster_without_a_broker_are_unknown(listing: str) -> None:
    """The answer was an empty list, which reads as "nothing is open"."""
    admin = TransactionAdmin(Fenced("fenced:9092", timeout=0.1))
    with pytest.raises(KafkaError) as caught:
        await (admin.transactions() if listing == "transactions" else admin.open_under("sink."))
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
