"""No dynamic value keeps clients out, stops the coordinators, or cannot be taken back."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import DOUBLE_MAX, INT_MAX, LONG_MAX, Key, Type, Update
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_configs,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
)
from tests.integration.group_client import GROUP, GroupClient
from tests.support.data_path import Client, connected, running
from tests.support.waiting import eventually

ONE_PARTITION = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
BROKER = 4
SET, DELETE = 0, 1
TRANSACTION = "x"
MOST = {Type.INT: INT_MAX, Type.LONG: LONG_MAX, Type.DOUBLE: DOUBLE_MAX}
LOCKS_OUT = [
    {"max.connections": "0"},
    {"listener.name.plaintext.max.connections": "+0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:0"},
]


def extremes() -> Iterator[tuple[str, str]]:
    """Yield the least and the greatest value of each number, and each choice of the others."""
    for name, key in BrokerConfig.KEYS.items():
        if key.update is not Update.READ_ONLY:
            yield from ((name, each) for each in extreme_values(key))


def extreme_values(key: Key[object]) -> list[str]:
    if key.type is Type.BOOLEAN:
        return ["false", "true"]
    if key.type in MOST:
        numbers = key.valid.strip("[]").split(",") if key.valid else []
        return [each for each in (*numbers, "-1", "0", "1", str(MOST[key.type])) if each != "..."]
    if key.valid:
        return key.valid.strip("[]").split(", ")
    return ["", "10.0.0.1:0"]


async def alter(
    broker: Broker, values: dict[str, str], operation: int = SET, *, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    """Change the cluster's defaults over a new connection; return the error and its text."""
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="",
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=name, config_operation=operation, value=None if operation else value
            )
            for name, value in values.items()
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    async with alone(broker) as client:
        answer = await client.connection.request(incremental_alter_configs.API, request)
    (result,) = answer.responses
    return ErrorCode.of(result.error_code), result.error_message or ""


async def begins(client: Client) -> bool:
    """Return whether the transaction coordinator takes a producer."""
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=TRANSACTION, transaction_timeout_ms=60_000
    )
    answer = await client.connection.request(init_producer_id.API, request, version=4)
    return bool(answer.error_code == 0)


@asynccontextmanager
async def alone(broker: Broker) -> AsyncIterator[Client]:
    """Connect when all other connections are closed: a value may let only one in."""
    await eventually(lambda: broker.connections == 0)
    async with connected(broker) as client:
        yield client


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, **ONE_PARTITION) as broker:
        yield broker


@pytest.mark.parametrize("values", LOCKS_OUT, ids=lambda values: next(iter(values)))
async def test_value_that_keeps_all_clients_out_is_refused_with_a_remedy(
    broker: Broker, values: dict[str, str]
) -> None:
    for validate_only in (True, False):
        code, text = await alter(broker, values, validate_only=validate_only)
        assert code is ErrorCode.INVALID_CONFIG
        assert "no client could connect to change it back" in text
    resource = alter_configs.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="0",
        configs=[alter_configs.AlterableConfig(name=k, value=v) for k, v in values.items()],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    async with connected(broker) as client:
        answer = await client.connection.request(alter_configs.API, request)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert not broker._dynamic.overrides
    assert not broker._dynamic.cluster_defaults


async def test_limits_that_let_one_address_in_are_taken(broker: Broker) -> None:
    values = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:2"}
    assert await alter(broker, values) == (ErrorCode.NONE, "")
    assert await alter(broker, values, DELETE) == (ErrorCode.NONE, "")


async def test_number_of_fetchers_is_doubled_or_halved_at_most(broker: Broker) -> None:
    """As in Kafka: each is a connection to every leader, and descriptors run out."""
    code, text = await alter(broker, {"num.replica.fetchers": "3"})
    assert code is ErrorCode.INVALID_REQUEST
    assert text == (
        "Dynamic thread count update validation failed for num.replica.fetchers=3, value should "
        "not be greater than double the current value 1"
    )
    for wanted in ("2", "4"):
        assert (await alter(broker, {"num.replica.fetchers": wanted}))[0] is ErrorCode.NONE
    code, text = await alter(broker, {"num.replica.fetchers": "1"})
    assert text.endswith("value should be at least half the current value 4")


async def test_coordinators_work_and_every_extreme_value_can_be_taken_back(broker: Broker) -> None:
    async with connected(broker) as client:
        group = GroupClient(client, await client.create())
        for kind, key in enumerate((GROUP, TRANSACTION)):
            asked = find_coordinator.FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            await client.connection.request(find_coordinator.API, asked)

        async def coordinates() -> bool:
            return await group.commit(5, 1) == 0 and await begins(client)

        await eventually(coordinates)
    taken = 0
    for number, (name, value) in enumerate(extremes()):
        code, _ = await alter(broker, {name: value})
        if code is not ErrorCode.NONE:
            continue
        taken += 1
        async with alone(broker) as client:
            group = GroupClient(client, group.topic_id)
            assert await group.commit(5, number) == 0, (name, value)
            assert (await group.fetch(5))[0] == number, (name, value)
            assert await begins(client), (name, value)
        assert await alter(broker, {name: value}, DELETE) == (ErrorCode.NONE, ""), (name, value)
    assert taken > 60
