"""Requests that only the controller can answer, sent to another broker (KIP-590)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import routes
from barnabas.broker.app import Broker
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    envelope,
    incremental_alter_configs,
    list_partition_reassignments,
    update_features,
)
from barnabas.security.acl.rules import new_rule
from tests.support.data_path import Client, creation
from tests.support.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata
from tests.support.quotas import change, entity
from tests.support.waiting import eventually

MODULES: tuple[Any, ...] = (
    alter_client_quotas,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    envelope,
    incremental_alter_configs,
    list_partition_reassignments,
    update_features,
)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@asynccontextmanager
async def cluster(directory: Path, count: int = 2, **keys: object) -> AsyncIterator[list[Broker]]:
    """Run brokers, the first of which is the controller."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(directory / "metadata"))
        brokers: list[Broker] = []
        for number in range(count):
            broker = await stack.enter_async_context(member(store, directory, number, **keys))
            brokers.append(broker)
        for broker in brokers:
            await eventually(lambda each=broker: len(each._core.cache.brokers) == count)
            assert broker._core.cache.controller_id == 0
        yield brokers


async def ask(client: Client, request: Any, *, version: int | None = None) -> Any:
    (found,) = (each for each in MODULES if each.API.request is type(request))
    return await client.connection.request(found.API, request, version=version)


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in answer.topics]


async def test_every_request_to_the_controller_may_be_sent_to_another_broker(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as brokers, connected_to(brokers[1], CLIENTS) as client:
        controller = brokers[0]._core.cache
        for version in create_topics.API.versions[2:]:
            name = f"t{version}"
            assert codes(await ask(client, creation(name, 3, {}), version=version)) == [0]
            assert len(controller.topic(name).partitions) == 3
        # The same answer as from the controller, errors and all.
        async with connected_to(brokers[0], CLIENTS) as at_controller:
            for request in (creation("t7", 3, {}), creation("bad", 3, {"retention_ms": "x"})):
                assert await ask(client, request) == await ask(at_controller, request)
        grown = create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t7", count=5, assignments=None)],
            timeout_ms=5000,
            validate_only=False,
        )
        assert [each.error_code for each in (await ask(client, grown)).results] == [0]
        assert len(controller.topic("t7").partitions) == 5
        moved = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=5000,
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="t7",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(
                            partition_index=0, replicas=[0, 1]
                        )
                    ],
                )
            ],
        )
        (topic,) = (await ask(client, moved)).responses
        assert [each.error_code for each in topic.partitions] == [0]
        await eventually(lambda: set(controller.partition("t7", 0).isr) == {0, 1})
        listed = list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=0)
        assert (await ask(client, listed)).error_code == 0
        elected = elect_leaders.ElectLeadersRequest(
            election_type=elect_leaders.PREFERRED, topic_partitions=None, timeout_ms=5000
        )
        assert (await ask(client, elected)).error_code == 0
        deleted = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="t6")], timeout_ms=5000
        )
        assert [each.error_code for each in (await ask(client, deleted)).responses] == [0]
        assert controller.topic("t6") is None


async def test_requests_that_go_through_the_store_are_served_by_every_broker(
    tmp_path: Path,
) -> None:
    """They need no controller, so none is forwarded."""
    async with cluster(tmp_path) as brokers, connected_to(brokers[1], CLIENTS) as client:
        assert codes(await ask(client, creation("t", 1, {}))) == [0]
        altered = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[
                        incremental_alter_configs.AlterableConfig(
                            name="retention.ms", config_operation=0, value="1234567"
                        )
                    ],
                )
            ],
            validate_only=False,
        )
        assert [each.error_code for each in (await ask(client, altered)).responses] == [0]
        limit = change(entity(client_id="app"), ("producer_byte_rate", 1e9))
        assert [each.error_code for each in (await ask(client, limit)).entries] == [0]
        raised = update_features.UpdateFeaturesRequest(
            timeout_ms=5000,
            feature_updates=[
                update_features.FeatureUpdateKey(
                    feature="transaction.version", max_version_level=1, upgrade_type=2
                )
            ],
        )
        assert (await ask(client, raised)).error_code == 0
        assert await brokers[0]._core.configs.overrides("t") == {"retention.ms": "1234567"}
        await eventually(lambda: brokers[0]._core.quotas.quotas.limits)


async def test_controller_answers_reassignments_without_time_to_wait(tmp_path: Path) -> None:
    """kafka-go sends the timeout 0."""
    async with cluster(tmp_path) as brokers, connected_to(brokers[0], CLIENTS) as client:
        request = list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=0)
        assert (await ask(client, request)).error_code == 0


async def test_rights_are_those_of_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker that forwards may do everything."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    keys = {
        "listener_security_protocol_map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_brokers_plain_sasl_jaas_config": (
            f'{module} username="b" password="p" user_b="p";'
        ),
        "authorizer_class_name": AUTHORIZER,
        "super_users": "User:b",
    }
    async with cluster(tmp_path, **keys) as brokers, connected_to(brokers[1], CLIENTS) as client:
        with caplog.at_level(logging.INFO):
            assert codes(await ask(client, creation("t", 1, {}))) == [
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ]
        denied = [each for each in caplog.messages if "User:ANONYMOUS" in each]
        assert denied
        assert all("CreateTopics" in each for each in denied), "the audit log names the client"
        rule = new_rule(2, "t", 3, "User:ANONYMOUS", "127.0.0.1", 5, 3)
        await brokers[0]._core.acls.create([rule])
        assert codes(await ask(client, creation("t", 1, {}))) == [0]
        assert codes(await ask(client, creation("u", 1, {}))) == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        answer = await ask(
            client, list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=5000)
        )
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_mutations_are_charged_at_the_controller(tmp_path: Path) -> None:
    """Otherwise a client had the quota of each broker."""
    async with (
        cluster(tmp_path, controller_quota_window_num=2) as brokers,
        connected_to(brokers[0], CLIENTS, "app") as direct,
        connected_to(brokers[1], CLIENTS, "app") as client,
    ):
        limit = change(entity(client_id="app"), ("controller_mutation_rate", 1.0))
        assert [each.error_code for each in (await ask(direct, limit)).entries] == [0]
        for broker in brokers:
            await eventually(lambda each=broker: each._core.quotas.quotas.limits)
        assert codes(await ask(client, creation("first", 20, {}))) == [0]
        for version, where in ((7, client), (7, direct)):
            answer = await ask(where, creation(f"second{version}", 1, {}), version=version)
            assert codes(answer) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
            assert answer.throttle_time_ms > 0


async def test_controller_of_the_previous_release_is_sent_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        with monkeypatch.context() as patch:
            rows = tuple(row for row in routes.API_TABLE if row.api is not envelope.API)
            patch.setattr(routes, "API_TABLE", rows)
            older = await stack.enter_async_context(member(store, tmp_path, 0))
        newer = await stack.enter_async_context(member(store, tmp_path, 1))
        await eventually(lambda: newer._core.cache.controller_id == 0)
        client = await stack.enter_async_context(connected_to(newer, CLIENTS))
        for _ in range(2):
            assert codes(await ask(client, creation("t", 3, {}))) == [ErrorCode.NOT_CONTROLLER]
        assert older._core.cache.topic("t") is None


async def test_request_with_an_unknown_outcome_is_not_sent_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers, connected_to(brokers[1], CLIENTS) as client:
        controller = brokers[0]._control.controller
        create, served = controller.create_topics, 0

        async def cut(*arguments: Any, **options: Any) -> Any:
            nonlocal served
            served += 1
            for each in brokers[1]._control.controller_client._connections.values():
                each.peer.abort()
            return await create(*arguments, **options)

        controller.create_topics = cut
        answer = await ask(client, creation("t", 3, {}))
        assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
        await eventually(lambda: brokers[0]._core.cache.topic("t"))
        assert served == 1


async def test_request_waits_for_the_next_controller(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as brokers, connected_to(brokers[2], CLIENTS) as client:
        await brokers[0].stop()
        assert codes(await ask(client, creation("t", 3, {}))) == [0]


async def test_client_cannot_send_an_envelope(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as brokers,
        connected_to(brokers[0], CLIENTS) as client,
        connected_to(brokers[0], BROKERS) as between,
    ):
        assert envelope.API.key not in client.connection.broker_versions
        for data in (b"", b"\0\3\0\0\0\0\0\0\xff\xff", bytes(8)):
            request = envelope.EnvelopeRequest(
                request_data=data, request_principal=None, client_host_address=bytes(4)
            )
            answer = await ask(between, request)
            assert answer.error_code in (
                ErrorCode.INVALID_REQUEST,
                ErrorCode.UNSUPPORTED_VERSION,
                ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            )
        answer = await ask_not_controller(brokers[1])
        assert answer.error_code == ErrorCode.NOT_CONTROLLER


async def ask_not_controller(broker: Broker) -> Any:
    async with connected_to(broker, BROKERS) as between:
        request = envelope.EnvelopeRequest(
            request_data=b"", request_principal=None, client_host_address=bytes(4)
        )
        async with asyncio.timeout(10):
            return await ask(between, request)
