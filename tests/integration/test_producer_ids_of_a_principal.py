"""A client that may write to one topic does not fill the memory with producer ids: each principal
has its own limit of them, and others go on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.broker.app import Broker
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import find_coordinator, init_producer_id
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.security.acl.rules import new_rule
from tests.support.data_path import Client, batch, running
from tests.support.named_users import KEYS, RULES, login
from tests.support.waiting import eventually

LIMIT = 20
OWN = {
    "max.producer.ids.per.principal": str(LIMIT),
    "transaction.state.log.num.partitions": "1",
}
REFUSED = "POLICY_VIOLATION"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker on which every user may write, and anonymous clients too."""
    async with running(tmp_path, KEYS | RULES | OWN) as broker:
        acls = broker._core.acls
        assert acls is not None
        everything = [(kind, "*", 3, "User:*", "*", 2, 3) for kind in (2, 5)]
        await acls.create([new_rule(*each) for each in everything])
        async with user(broker, "admin") as admin:
            await admin.client.create(partitions=3)
        yield broker


class User:
    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    async def init(self, transactional_id: str | None = None) -> str:
        """Ask for a producer id, and return the error."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = await self.client.connection.request(init_producer_id.API, request, version=4)
        assert (answer.producer_id == -1) == bool(answer.error_code)
        return ErrorCode.of(answer.error_code).name

    async def write(self, producer_id: int) -> str:
        """Write a batch with a producer id that the client has made up, and return the error."""
        records = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
        answer = await self.client.produce(records)
        return ErrorCode.of(answer.error_code).name


@asynccontextmanager
async def user(broker: Broker, name: str | None) -> AsyncIterator[User]:
    """Log in as a user; None stays anonymous."""
    listener = "OPEN" if name is None else "SASL_PLAINTEXT"
    address = f"localhost:{broker.ports[listener]}"
    keys = {} if name is None else login(name)
    async with Cluster(address, connect=connect_with(keys), timeout=10) as cluster:
        yield User(cluster, Client(await cluster.any_connection()))


def remembered(broker: Broker) -> int:
    return sum(len(each.log.producers) for each in broker._replication.replicas)


@pytest.mark.parametrize("name", ["alice", None])
async def test_producer_ids_are_given_out_up_to_the_limit(broker: Broker, name: str | None) -> None:
    async with user(broker, name) as mallory, user(broker, "bob") as bob:
        told = [await mallory.init() for _ in range(LIMIT + 5)]
        assert told == ["NONE"] * LIMIT + [REFUSED] * 5
        assert await bob.init() == "NONE"
    async with user(broker, name) as again:
        assert await again.init() == REFUSED


async def test_invented_producer_ids_do_not_fill_the_memory(broker: Broker) -> None:
    async with user(broker, "alice") as alice, user(broker, "bob") as bob:
        told = [await alice.write(1_000_000 + number) for number in range(10 * LIMIT)]
        assert told == ["NONE"] * LIMIT + [REFUSED] * 9 * LIMIT
        assert remembered(broker) == LIMIT
        assert await bob.write(5) == "NONE"


async def test_super_user_has_no_limit(broker: Broker) -> None:
    async with user(broker, "admin") as admin:
        assert {await admin.init() for _ in range(2 * LIMIT)} == {"NONE"}


async def test_new_transactional_ids_count_and_known_ones_go_on(broker: Broker) -> None:
    async with user(broker, "alice") as alice:
        ask = alice.client.connection.request

        async def found() -> bool:
            request = FindCoordinatorRequest(key="x-0", key_type=1)
            return not (await ask(find_coordinator.API, request, version=3)).error_code

        async def begun() -> bool:
            return await alice.init("x-0") == "NONE"

        await eventually(found)
        await eventually(begun)
        told = [await alice.init(f"x-{number}") for number in range(1, LIMIT + 5)]
        assert told == ["NONE"] * (LIMIT - 1) + [REFUSED] * 5
        assert await alice.init("x-0") == "NONE"
        assert await alice.init() == REFUSED


async def test_limit_is_changed_while_the_broker_runs(broker: Broker) -> None:
    async with user(broker, "alice") as alice, user(broker, "admin") as admin:
        while await alice.init() == "NONE":
            pass
        more = ("max.producer.ids.per.principal", ConfigOperation.SET, str(2 * LIMIT))
        await Admin(admin.cluster).alter_configs(ConfigResourceType.BROKER, "", [more])
        assert [await alice.init() for _ in range(LIMIT + 1)] == ["NONE"] * LIMIT + [REFUSED]


def delivered(broker: Broker, partitions: list[int], timeout_ms: int) -> list[str | None]:
    """Write a record to each partition with librdkafka; return their errors."""
    producer = Producer(
        {
            "bootstrap.servers": f"localhost:{broker.ports['OPEN']}",
            "enable.idempotence": True,
            "message.timeout.ms": timeout_ms,
            "linger.ms": 0,
        }
    )
    errors: list[str | None] = []
    for partition in partitions:
        producer.produce(
            "t", b"v", partition=partition, callback=lambda e, _: errors.append(e and e.name())
        )
        assert producer.flush(20) == 0
    return errors


def asked(broker: Broker, api: str) -> int:
    cells = broker._metrics.requests.requests._cells
    return sum(int(cell.value) for (name, _), cell in cells.items() if name == api)


async def test_librdkafka_is_told_at_once_and_goes_on_where_it_is_known(broker: Broker) -> None:
    async with user(broker, None) as other:
        for number in range(LIMIT - 2):
            await other.write(1_000_000 + number)
    written = asked(broker, "Produce")
    errors = await asyncio.to_thread(delivered, broker, [1, 2, 1, 2], 10_000)
    assert errors == [None, REFUSED, None, REFUSED]
    assert asked(broker, "Produce") - written == 4


async def test_librdkafka_that_gets_no_id_does_not_ask_in_a_loop(broker: Broker) -> None:
    async with user(broker, None) as other:
        while await other.init() == "NONE":
            pass
    before, begun = asked(broker, "InitProducerId"), time.monotonic()
    errors = await asyncio.to_thread(delivered, broker, [1], 1500)
    assert errors == ["_MSG_TIMED_OUT"]
    assert asked(broker, "InitProducerId") - before <= 2 * (time.monotonic() - begun) + 2
