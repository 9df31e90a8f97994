"""Idempotent producers of every library lose responses and retry; each record is written once."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.integration.interop.clients import KINDS
from tests.integration.interop.conftest import Start
from tests.integration.interop.cutting_proxy import CuttingProxy
from tests.integration.interop.message import Message
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("interop-data")

MESSAGES = [Message(b"%d" % at, bytes(7000)) for at in range(40)]
"""Two make a batch, of which several are in flight at once."""
ONE_BATCH_OF_TWO: dict[str, dict[str, Any]] = {"confluent": {"batch_num_messages": 2}}
QUICK_RETRIES: dict[str, dict[str, Any]] = {
    "confluent": {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10},
    "kafka_python": {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10},
    "aiokafka": {"retry_backoff_ms": 10},
    "java": {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10},
}


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as proxy:
        advertised = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        proxy.to = ("127.0.0.1", free_port())
        with Broker({"advertised.listeners": advertised}, port=proxy.to[1]):
            yield proxy


@pytest.mark.parametrize("kind", KINDS)
def test_idempotent_producer_writes_nothing_twice_after_lost_responses(
    client: Start, proxy: CuttingProxy, kind: str
) -> None:
    library = client(kind).at(f"127.0.0.1:{proxy.port}")
    cuts = proxy.cuts
    options = QUICK_RETRIES[kind] | ONE_BATCH_OF_TWO.get(kind, {})
    library.write(kind, MESSAGES, **options)
    assert proxy.cuts > cuts + 1
    assert client("java").at(f"127.0.0.1:{proxy.port}").read(kind, len(MESSAGES)) == MESSAGES
    assert library.write(kind, [Message(None, b"last")], **options) == [len(MESSAGES)]
