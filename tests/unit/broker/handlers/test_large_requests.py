"""Requests of many elements: no step of a handler takes many of them."""

from collections.abc import Callable
from inspect import isawaitable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.features import TRANSACTION_VERSION
from barnabas.broker.handlers import (
    add_partitions_to_txn,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    stop_replica,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from barnabas.broker.server.context import RequestContext
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_writer import MarkerWriter
from barnabas.coordinator.group.group import Group, Member, MemoryShare
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey
from barnabas.security.principal import ANONYMOUS
from tests.support.coordinator.harness import GROUP, WALL_MS, Groups
from tests.support.large_messages import arrays, large_message
from tests.support.rows import row_of
from tests.support.steps import CountingSlicer, counted_steps, taken
from tests.unit.broker.handlers.control_plane import control_plane
from tests.unit.broker.replication.replicas import Replicas
from tests.unit.coordinator.transactions import Transactions

ELEMENTS = 10_000


def request(module: ModuleType, array: str) -> tuple[Any, RequestContext]:
    """Return a request of many distinct elements, in the newest version that has the array."""
    row = row_of(module)
    version, path = next(
        (version, path)
        for version in reversed(row.versions)
        for path in arrays(row.api.request, version)
        if ".".join(field.name for field in path) == array
    )
    message = large_message(row.api.request, version, path, ELEMENTS, distinct=True)
    context = RequestContext(
        row.api.key, version, 0, "test", ANONYMOUS, "PLAINTEXT", "127.0.0.1", 1, 0
    )
    return message, context


async def collaborators(module: ModuleType) -> tuple[Any, ...]:
    """Return parts of a broker without groups, and without topics but the internal ones."""
    cache = MetadataCache("cluster")
    cache.ready = True
    groups: Any = (await Groups().load()).coordinator
    there = await Transactions().load()
    transactions = there.coordinator
    replicas = Replicas().manager
    known: Any = SimpleNamespace(
        topic=lambda _: True,
        partition=lambda *_: SimpleNamespace(leader=1),
        endpoint=lambda *_: SimpleNamespace(host="h", port=1),
    )
    willing: Any = SimpleNamespace(
        add_partitions=lambda *_, **__: None,
        delete_offsets=lambda *_: frozenset(),
        end=lambda request: request.producer,
        join=lambda request, _: join_group.error_response(request, ErrorCode.NONE, 9),
        leave=lambda _, members: [ErrorCode.NONE] * len(members),
    )
    writer = MarkerWriter(replicas, groups, there.time)
    origins = MarkerOrigins(cache)
    parts: dict[ModuleType, Callable[[], Any]] = {
        add_partitions_to_txn: lambda: (willing, groups, known),
        delete_groups: lambda: groups,
        delete_records: lambda: replicas,
        describe_groups: lambda: groups,
        describe_producers: lambda: replicas,
        describe_transactions: lambda: transactions,
        end_txn: lambda: willing,
        find_coordinator: lambda: (groups, transactions, known, pytest.fail),
        join_group: lambda: willing,
        leave_group: lambda: willing,
        offset_for_leader_epoch: lambda: replicas,
        metadata: lambda: (cache, lambda: False, pytest.fail),
        offset_commit: lambda: (groups, cache),
        offset_fetch: lambda: (groups, cache, lambda: True),
        offset_delete: lambda: (willing, known),
        txn_offset_commit: lambda: (groups, cache, pytest.fail, pytest.fail),
        write_txn_markers: lambda: (writer, origins, True),
    }
    made = parts[module]()
    return made if type(made) is tuple else (made,)


CASES = [
    (add_partitions_to_txn, "v3_and_below_topics"),
    (add_partitions_to_txn, "v3_and_below_topics.partitions"),
    (add_partitions_to_txn, "transactions"),
    (add_partitions_to_txn, "transactions.topics"),
    (add_partitions_to_txn, "transactions.topics.partitions"),
    (delete_groups, "groups_names"),
    (delete_records, "topics.partitions"),
    (describe_groups, "groups"),
    (describe_producers, "topics.partition_indexes"),
    (describe_transactions, "transactional_ids"),
    (end_txn, "written"),
    (end_txn, "written.partitions"),
    (find_coordinator, "coordinator_keys"),
    (join_group, "protocols"),
    (leave_group, "members"),
    (metadata, "topics"),
    (offset_for_leader_epoch, "topics.partitions"),
    (offset_commit, "topics"),
    (offset_commit, "topics.partitions"),
    (offset_delete, "topics"),
    (offset_delete, "topics.partitions"),
    (offset_fetch, "groups"),
    (offset_fetch, "groups.topics"),
    (txn_offset_commit, "topics.partitions"),
    (write_txn_markers, "markers"),
    (write_txn_markers, "markers.topics"),
    (write_txn_markers, "markers.topics.partition_indexes"),
]


WITHOUT_REFUSAL = [
    (join_group, "protocols"),
    (add_partitions_to_txn, "transactions"),
    (add_partitions_to_txn, "transactions.topics"),
    (add_partitions_to_txn, "transactions.topics.partitions"),
    (offset_fetch, "groups.topics"),
    (offset_delete, "topics"),
    (offset_delete, "topics.partitions"),
]
"""The answer of the whole request's error has none of these elements."""


def name(each: Any) -> str:
    return str(getattr(each, "__name__", each)).rpartition("handlers.")[2]


@pytest.mark.parametrize(("module", "array"), CASES, ids=name)
async def test_handler_takes_a_step_for_each_element(module: Any, array: str) -> None:
    message, context = request(module, array)
    answer, steps = taken(module.handle(*await collaborators(module), message, context))
    if isawaitable(answer):
        answer, more = taken(await answer)
        steps += more
    assert type(answer) is module.API.response
    assert steps >= ELEMENTS


ADMIN_CASES = [
    # Names are counted, resources altered, answers built.
    (alter_configs, "resources", 3),
    (alter_configs, "resources.configs", 2),
    (alter_partition_reassignments, "topics", 1),
    (alter_partition_reassignments, "topics.partitions", 3),
    (create_partitions, "topics", 4),
    (create_partitions, "topics.assignments", 1),
    # Names are counted, topics taken over, partitions summed up, topics planned, answers built
    # for topics that are named once and for the others.
    (create_topics, "topics", 5),
    (create_topics, "topics.assignments", 1),
    (create_topics, "topics.configs", 1),
    (delete_topics, "topics", 4),
    (describe_configs, "resources", 2),
    (describe_topic_partitions, "topics", 3),
    (elect_leaders, "topic_partitions", 2),
    (elect_leaders, "topic_partitions.partitions", 3),
    (list_partition_reassignments, "topics", 1),
    (incremental_alter_configs, "resources", 3),
    (incremental_alter_configs, "resources.configs", 2),
    (update_features, "feature_updates", 1),
]
"""The times that a handler walks over the elements, in steps of its own or of what it calls."""


@pytest.mark.parametrize(("module", "array", "times"), ADMIN_CASES, ids=name)
async def test_admin_handler_takes_a_step_for_each_element(
    module: Any, array: str, times: int
) -> None:
    message, context = request(module, array)
    if module is describe_topic_partitions:
        message.cursor = None
    if module is create_topics:
        for topic in message.topics:
            # All partitions together must not be too many.
            topic.num_partitions = 0
    slicer = CountingSlicer()
    async with control_plane(slicer) as plane:
        route = plane.routes[module.API.request]
        answer, steps = await counted_steps(route.handle(message, context), slicer)
    assert type(answer) is module.API.response
    assert steps >= times * ELEMENTS


async def test_features_that_are_at_their_level_are_answered_in_steps() -> None:
    message, context = request(update_features, "feature_updates")
    message.feature_updates = ELEMENTS * [
        FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=0, upgrade_type=2)
    ]
    slicer = CountingSlicer()
    async with control_plane(slicer) as plane:
        handle = plane.routes[update_features.API.request].handle
        answer, steps = await counted_steps(handle(message, context), slicer)
    assert len(answer.results) == ELEMENTS
    assert steps >= 2 * ELEMENTS


@pytest.mark.parametrize("array", ["topics", "topics.partitions"])
async def test_proposals_of_leaders_are_judged_and_answered_in_steps(array: str) -> None:
    message, _ = request(alter_partition, array)
    slicer = CountingSlicer()
    async with control_plane(slicer) as plane:
        message.broker_id, message.broker_epoch = plane.broker.info.id, plane.broker.info.epoch
        answer, steps = await counted_steps(
            plane.broker.controller.alter_partition(message), slicer
        )
    assert len(answer.topics) == len(message.topics)
    assert steps >= 2 * ELEMENTS


async def test_replicas_are_stopped_in_steps() -> None:
    rig, slicer = Replicas(), CountingSlicer()
    rig.manager.slicer = slicer
    message, _ = request(stop_replica, "topic_states.partition_states")
    answer, steps = await counted_steps(rig.manager.stop_replica(message), slicer)
    assert len(answer.partition_errors) == ELEMENTS
    assert steps >= ELEMENTS


async def test_replicas_are_moved_and_described_in_steps() -> None:
    rig, slicer = Replicas(), CountingSlicer()
    rig.manager.slicer = slicer
    message, context = request(alter_replica_log_dirs, "dirs.topics.partitions")
    answer, steps = await counted_steps(
        alter_replica_log_dirs.handle(rig.manager, message, context), slicer
    )
    assert len(answer.results[0].partitions) == ELEMENTS
    assert steps >= 3 * ELEMENTS
    message, context = request(describe_log_dirs, "topics.partitions")
    described = describe_log_dirs.handle(rig.logs, rig.offload, message, context)
    answer, steps = await counted_steps(described, slicer)
    assert len(answer.results) == 1
    assert steps >= 3 * ELEMENTS


async def test_logs_of_another_directory_are_passed_over_in_steps() -> None:
    rig = Replicas()
    message, context = request(describe_log_dirs, "topics")
    message.topics = None
    elsewhere: Any = SimpleNamespace(log_dir=None)
    rig.logs._logs |= {("t", index): elsewhere for index in range(ELEMENTS)}
    described = describe_log_dirs.handle(rig.logs, rig.offload, message, context)
    answer, steps = await counted_steps(described, CountingSlicer())
    assert answer.results[0].topics == []
    assert steps >= ELEMENTS


async def test_partitions_are_counted_and_their_offsets_found_in_steps() -> None:
    message, context = request(list_offsets, "topics.partitions")
    handled = list_offsets.handle(Replicas().manager, lambda: 0, message, context)
    answer, steps = await counted_steps(handled, CountingSlicer())
    assert len(answer.topics[0].partitions) == ELEMENTS
    assert steps >= 2 * ELEMENTS


async def test_partitions_are_created_and_elected_in_steps() -> None:
    partitions, slicer = 5_000, CountingSlicer()
    async with control_plane(slicer) as plane:
        creatable = CreatableTopic(
            name="t", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        steps = []
        for message, version in (
            (CreateTopicsRequest(topics=[creatable], timeout_ms=9_000, validate_only=False), 7),
            (
                CreatePartitionsRequest(
                    topics=[
                        CreatePartitionsTopic(name="t", count=2 * partitions, assignments=None)
                    ],
                    timeout_ms=9_000,
                    validate_only=False,
                ),
                3,
            ),
            (ElectLeadersRequest(topic_partitions=None, timeout_ms=9_000), 2),
        ):
            before = slicer.turns
            await plane.ask(message, version)
            steps.append(slicer.turns - before)
    # They are placed, decided, written, installed; metadata and leaders are built to be sent.
    assert steps[0] >= 6 * partitions
    assert steps[1] >= 6 * partitions
    assert steps[2] >= 2 * partitions


def answers_each(module: Any) -> bool:
    """Return whether an error of the whole request is answered for each element."""
    return hasattr(module, "error_response") or module.RIGHTS.each is not None


REFUSALS = [
    *(case for case in CASES if answers_each(case[0]) and case not in WITHOUT_REFUSAL),
    (create_partitions, "topics"),
    (create_topics, "topics"),
    (delete_topics, "topics"),
    (elect_leaders, "topic_partitions.partitions"),
    (alter_configs, "resources"),
    (alter_replica_log_dirs, "dirs.topics.partitions"),
    (describe_configs, "resources"),
    (describe_topic_partitions, "topics"),
    (incremental_alter_configs, "resources"),
]


@pytest.mark.parametrize(("module", "array"), REFUSALS, ids=name)
def test_refusal_takes_a_step_for_each_element(module: Any, array: str) -> None:
    message, context = request(module, array)
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer, steps = taken(row_of(module).refuse(message, code, context.api_version))
    assert type(answer) is module.API.response
    assert steps >= ELEMENTS


async def test_description_takes_a_step_for_each_member() -> None:
    groups = await Groups().load()
    group = Group(GROUP, WALL_MS)
    for number in range(ELEMENTS):
        share = MemoryShare(groups.table.memory)
        member = Member(f"m{number}", None, "client", "/127.0.0.1", 10_000, 10_000, (), share)
        group.add(member, "consumer")
    groups.table.groups[GROUP] = group
    message, context = request(describe_groups, "groups")
    message.groups = [GROUP, GROUP]
    answer, steps = taken(describe_groups.handle(groups.coordinator, message, context))
    assert [len(each.members) for each in answer.groups] == [ELEMENTS]
    assert ELEMENTS <= steps < 2 * ELEMENTS


async def test_list_takes_a_step_for_each_group() -> None:
    groups = await Groups().load()
    groups.table.groups.update((f"g{n}", Group(f"g{n}", WALL_MS)) for n in range(ELEMENTS))
    message, context = request(list_groups, "states_filter")
    message.states_filter = []
    answer, steps = taken(list_groups.handle(groups.coordinator, message, context))
    assert len(answer.groups) == ELEMENTS
    assert steps >= ELEMENTS


async def test_key_that_is_named_twice_is_looked_for_once() -> None:
    parts = await collaborators(find_coordinator)
    asked = []
    parts[0].partition_of = lambda key: asked.append(key) or 0
    message, context = request(find_coordinator, "coordinator_keys")
    message.coordinator_keys = ["a", "b", "a"]
    answer, _ = taken(find_coordinator.handle(*parts, message, context))  # type: ignore[call-arg]
    assert [each.key for each in answer.coordinators] == ["a", "b", "a"]
    assert asked == ["a", "b"]
