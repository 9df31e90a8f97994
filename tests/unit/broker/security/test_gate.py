"""The gate: refusals of whole requests, of elements and of what an answer shows."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.handlers import (
    delete_groups,
    describe_cluster,
    heartbeat,
    join_group,
    offset_commit,
    produce,
)
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.security.authorizer import Action, Authorizer
from barnabas.broker.security.gate import AT_ONCE, Gate
from barnabas.broker.security.rights import (
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DESCRIBE,
    GROUP,
    NOTHING,
    READ,
    TOPIC,
    WRITE,
    Need,
    Operations,
    Rights,
    Shown,
)
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterResponse
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.matcher import slot
from barnabas.security.acl.rules import CLUSTER_NAME
from barnabas.security.principal import ANONYMOUS, Principal
from tests.support.rows import row_of
from tests.support.steps import all_taken, taken

KNOWN_ID, UNKNOWN_ID = b"k" * 16, b"u" * 16


@dataclass
class Authority:
    """An authorizer that allows what a test names, and remembers what it was asked."""

    allowed: set[Action] = field(default_factory=set)
    asked: list[tuple[Action, bool]] = field(default_factory=list)
    known: dict[int, dict[str, bool]] = field(default_factory=dict)

    def allows(
        self, _who: Principal, _host: str, _api: str, action: Action, *, log_denied: bool = True
    ) -> bool:
        self.asked.append((action, log_denied))
        return action in self.allowed

    def decided(self, _who: Principal, _host: str) -> dict[int, dict[str, bool]]:
        return self.known

    def allow(self, operation: Any, kind: Any, *names: str) -> None:
        self.allowed |= {Action(operation, kind, name) for name in names}


@pytest.fixture
def authority() -> Authority:
    return Authority()


def guarded(
    authority: Authority,
    module: Any,
    handle: Callable[[Any, RequestContext], Any],
    rights: Rights | None = None,
    names: Mapping[bytes, str] = MappingProxyType({KNOWN_ID: "by-id"}),
) -> Route:
    cache = cast(MetadataCache, SimpleNamespace(topic_name=names.get))
    route = Route(module.API, range(20), handle, row_of(module).refuse)
    gate = Gate(cast(Authorizer, authority), cache)
    return gate.guard(route, rights or module.RIGHTS)


def context(module: Any, version: int = 3) -> RequestContext:
    return RequestContext(module.API.key, version, 0, "c", ANONYMOUS, "L", "127.0.0.1", 1, 0)


def commit_of(*topics: str, ids: Iterable[bytes] = ()) -> OffsetCommitRequest:
    named = [(name, ZERO_UUID) for name in topics] + [("", each) for each in ids]
    return OffsetCommitRequest(
        group_id="g",
        member_id="m",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=""
                    )
                ],
            )
            for name, topic_id in named
        ],
    )


def produce_to(ids: Iterable[bytes]) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=None)
    topics = [TopicProduceData(name="", topic_id=each, partition_data=[data]) for each in ids]
    return ProduceRequest(acks=1, timeout_ms=0, topic_data=topics)


def committed(request: OffsetCommitRequest, _context: RequestContext) -> Any:
    return all_taken(row_of(offset_commit).refuse(request, ErrorCode.NONE, 3))


def codes(response: OffsetCommitResponse) -> dict[Any, int]:
    return {
        topic.name or topic.topic_id: topic.partitions[0].error_code for topic in response.topics
    }


def test_a_route_that_needs_nothing_has_the_bare_handler(authority: Authority) -> None:
    assert guarded(authority, heartbeat, pytest.fail, NOTHING).handle is pytest.fail


def test_a_request_without_the_right_for_the_whole_is_refused(authority: Authority) -> None:
    route = guarded(authority, heartbeat, pytest.fail)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    authority.allow(READ, GROUP, "other")
    authority.allow(DESCRIBE, GROUP, "g")
    with pytest.raises(KafkaError) as refused:
        route.handle(request, context(heartbeat))
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert authority.asked == [(Action(READ, GROUP, "g"), True)]


def test_an_allowed_request_has_the_handlers_own_answer(authority: Authority) -> None:
    answer = HeartbeatResponse(error_code=0)
    route = guarded(authority, heartbeat, lambda *_: answer)
    authority.allow(READ, GROUP, "g")
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert route.handle(request, context(heartbeat)) is answer


@pytest.mark.parametrize("more", [0, AT_ONCE])
def test_refused_elements_are_taken_out_and_merged(authority: Authority, more: int) -> None:
    seen: list[OffsetCommitRequest] = []

    def handle(request: OffsetCommitRequest, context: RequestContext) -> Any:
        seen.append(request)
        return committed(request, context)

    others = [f"t{number}" for number in range(more)]
    authority.allow(READ, GROUP, "g")
    authority.allow(READ, TOPIC, "mine", *others)
    request = commit_of("theirs", "mine", *others)
    route = guarded(authority, offset_commit, handle)
    response = all_taken(route.handle(request, context(offset_commit)))
    assert codes(response) == {"mine": 0, "theirs": 29} | dict.fromkeys(others, 0)
    assert [topic.name for topic in seen[0].topics] == ["mine", *others]
    assert len(request.topics) == 2 + more, "the request itself is unchanged"


def test_nothing_reaches_the_handler_if_all_elements_are_refused(authority: Authority) -> None:
    authority.allow(READ, GROUP, "g")
    route = guarded(authority, offset_commit, pytest.fail)
    response = all_taken(route.handle(commit_of("a", "b"), context(offset_commit)))
    assert codes(response) == {"a": 29, "b": 29}


def test_a_repeated_name_is_refused_once(authority: Authority) -> None:
    route = guarded(authority, delete_groups, pytest.fail)
    request = DeleteGroupsRequest(groups_names=["a", "b", "a"])
    response = all_taken(route.handle(request, context(delete_groups)))
    assert [(each.group_id, each.error_code) for each in response.results] == [("a", 30), ("b", 30)]


def test_a_right_of_some_versions_is_asked_in_these_alone(authority: Authority) -> None:
    need = Need(READ, GROUP, "group_id", versions=range(2, 4))
    route = guarded(authority, heartbeat, lambda *_: "answer", Rights(whole=(need,)))
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    for version in range(5):
        if version in need.versions:
            with pytest.raises(KafkaError):
                route.handle(request, context(heartbeat, version))
        else:
            assert route.handle(request, context(heartbeat, version)) == "answer"


def test_operations_on_the_cluster_are_for_those_who_may_describe_it(authority: Authority) -> None:
    def answer(*_: object) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            cluster_id="", controller_id=0, brokers=[], cluster_authorized_operations=1
        )

    route = guarded(authority, describe_cluster, answer)
    authority.allow(CREATE, CLUSTER, "kafka-cluster")
    assert (
        all_taken(route.handle(None, context(describe_cluster))).cluster_authorized_operations == 0
    )
    authority.allow(DESCRIBE, CLUSTER, "kafka-cluster")
    shown = all_taken(route.handle(None, context(describe_cluster)))
    assert shown.cluster_authorized_operations == 1 << CREATE | 1 << DESCRIBE


def test_an_earlier_decision_about_a_name_is_none_about_an_id(authority: Authority) -> None:
    """An id has an empty name, which rules for `*` allow."""
    authority.allow(READ, GROUP, "g")
    authority.known = {slot(READ, TOPIC): {"": True, "mine": True}}
    route = guarded(authority, offset_commit, committed)
    request = commit_of("mine", ids=[KNOWN_ID])
    response = all_taken(route.handle(request, context(offset_commit, 10)))
    assert codes(response) == {"mine": 0, KNOWN_ID: 29}
    assert (Action(READ, TOPIC, "mine"), True) not in authority.asked


def test_a_topic_id_is_asked_by_name_and_an_unknown_one_does_not_reach_the_handler(
    authority: Authority,
) -> None:
    authority.allow(READ, GROUP, "g")
    route = guarded(authority, offset_commit, pytest.fail)
    request = commit_of(ids=[KNOWN_ID, UNKNOWN_ID])
    response = all_taken(route.handle(request, context(offset_commit, 10)))
    assert codes(response) == {
        UNKNOWN_ID: ErrorCode.UNKNOWN_TOPIC_ID,
        KNOWN_ID: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert (Action(READ, TOPIC, "by-id"), True) in authority.asked


def test_a_request_without_name_and_id_is_left_to_the_handler(authority: Authority) -> None:
    authority.allow(READ, GROUP, "g")
    route = guarded(authority, offset_commit, committed)
    response = all_taken(route.handle(commit_of(ids=[ZERO_UUID]), context(offset_commit, 10)))
    assert codes(response) == {ZERO_UUID: 0}


@pytest.mark.parametrize(
    ("before", "after"),
    [([], AT_ONCE), ([KNOWN_ID], 0)],
    ids=["of many elements", "beside a refused element"],
)
@pytest.mark.parametrize("module", [produce, offset_commit])
def test_a_topic_that_becomes_known_behind_the_gate_is_not_open(
    authority: Authority, module: Any, before: list[bytes], after: int
) -> None:
    """The handlers look up topic ids again, after steps in which other work has its turn."""
    names = {KNOWN_ID: "by-id"}
    seen: list[bytes] = []

    def handle(request: Any, context: RequestContext) -> Any:
        topics = request.topic_data if module is produce else request.topics
        seen.extend(topic.topic_id for topic in topics)
        return row_of(module).refuse(request, ErrorCode.NONE, context.api_version)

    authority.allow(READ, GROUP, "g")
    ids = [*before, UNKNOWN_ID, *(number.to_bytes(16, "big") for number in range(1, after + 1))]
    route = guarded(authority, module, handle, names=names)
    request = commit_of(ids=ids) if module is offset_commit else produce_to(ids)
    steps = route.handle(request, context(module, module.API.versions[-1]))
    next(steps)
    names[UNKNOWN_ID] = "secret"
    response = all_taken(steps)
    assert not seen
    topics = response.responses if module is produce else response.topics
    (secret,) = (topic for topic in topics if topic.topic_id == UNKNOWN_ID)
    partitions = secret.partition_responses if module is produce else secret.partitions
    assert [each.error_code for each in partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_failure_of_the_others_does_not_replace_a_refusal(authority: Authority) -> None:
    async def fails_later() -> Any:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def fails_at_once(*_: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def fails_in_a_step(*_: Any) -> Any:
        yield None
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    authority.allow(READ, GROUP, "g")
    authority.allow(READ, TOPIC, "mine")
    for handle in (lambda *_: in_task(fails_later()), fails_at_once, fails_in_a_step):
        route = guarded(authority, offset_commit, handle)
        answer = all_taken(route.handle(commit_of("mine", "theirs"), context(offset_commit)))
        response = await answer if asyncio.isfuture(answer) else answer
        assert codes(response) == {"mine": ErrorCode.NOT_COORDINATOR, "theirs": 29}


def test_many_elements_are_asked_for_in_steps(authority: Authority) -> None:
    authority.allow(READ, GROUP, "g")
    route = guarded(authority, offset_commit, committed)
    request = commit_of(*(f"t{number}" for number in range(10_000)))
    response, steps = taken(route.handle(request, context(offset_commit)))
    assert set(codes(response).values()) == {29}
    assert steps >= 20_000


def test_a_refused_batch_without_an_answer_closes_the_connection(authority: Authority) -> None:
    route = guarded(authority, produce, lambda *_: None)
    data = PartitionProduceData(index=0, records=None)
    request = ProduceRequest(
        acks=0, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    with pytest.raises(CloseConnection):
        taken(route.handle(request, context(produce, 9)))
    authority.allow(WRITE, TOPIC, "t")
    assert route.handle(request, context(produce, 9)) is None


def test_a_refused_partition_of_produce_has_the_error_of_its_topic(authority: Authority) -> None:
    route = guarded(authority, produce, lambda *_: ProduceResponse(responses=[]))
    data = [PartitionProduceData(index=index, records=None) for index in range(2)]
    request = ProduceRequest(
        acks=1, timeout_ms=0, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    (topic,) = all_taken(route.handle(request, context(produce, 9))).responses
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (0, 29),
        (1, 29),
    ]


async def test_a_member_that_loses_its_right_while_it_waits_gets_no_assignment(
    authority: Authority,
) -> None:
    waiting: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
    authority.allow(READ, GROUP, "g")
    route = guarded(authority, join_group, lambda *_: waiting)
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="c", protocols=[]
    )
    answer = Slicer(lambda: 0.0).run(route.handle(request, context(join_group)))
    await asyncio.sleep(0)
    authority.allowed.clear()
    waiting.set_result(join_group.error_response(request, ErrorCode.NONE, 3))
    with pytest.raises(KafkaError) as refused:
        await answer
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_a_closed_connection_cancels_what_the_handler_waits_for(
    authority: Authority,
) -> None:
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    authority.allow(READ, GROUP, "g")
    route = guarded(authority, join_group, lambda *_: waiting)
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="c", protocols=[]
    )
    answer = Slicer(lambda: 0.0).run(route.handle(request, context(join_group)))
    await asyncio.sleep(0)
    answer.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.cancelled()


def test_another_right_that_is_enough_is_asked_first_and_quietly(authority: Authority) -> None:
    need = Need(CREATE, GROUP, "group_id", unless=Need(CREATE, CLUSTER))
    route = guarded(authority, heartbeat, lambda *_: "answer", Rights(whole=(need,)))
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    authority.allow(CREATE, CLUSTER, "kafka-cluster")
    assert route.handle(request, context(heartbeat)) == "answer"
    assert authority.asked == [(Action(CREATE, CLUSTER, "kafka-cluster"), False)]
    authority.allowed.clear()
    with pytest.raises(KafkaError):
        route.handle(request, context(heartbeat))
    assert authority.asked[-1] == (Action(CREATE, GROUP, "g"), True)


def test_what_a_client_may_not_see_is_taken_out_without_a_line(authority: Authority) -> None:
    groups = [
        DescribedGroup(
            error_code=0,
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
        for name in ("mine", "theirs")
    ]
    for group in groups:
        group.authorized_operations = 7
    response = DescribeGroupsResponse(groups=groups)
    rights = Rights(
        shown=Shown("groups", Need(DESCRIBE, GROUP, "group_id")),
        operations=(Operations("authorized_operations", GROUP, "groups", "group_id"),),
    )
    route = guarded(authority, heartbeat, lambda *_: response, rights)
    authority.allow(DESCRIBE, GROUP, "mine")
    authority.allow(READ, GROUP, "mine")
    (shown,) = all_taken(route.handle(None, context(heartbeat))).groups
    assert (shown.group_id, shown.authorized_operations) == ("mine", 1 << READ | 1 << DESCRIBE)
    assert not any(logged for _, logged in authority.asked)


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("client_id", ["broker-1", "tool"])
@pytest.mark.parametrize("has_right", [False, True])
def test_client_of_a_shared_listener_waits_for_metadata_and_is_no_broker(
    authority: Authority, ready: bool, has_right: bool, client_id: str
) -> None:
    seen = []

    def handle(_request: Any, context: RequestContext) -> None:
        seen.append(context.inter_broker)

    cache = cast(MetadataCache, SimpleNamespace(ready=ready))
    gate = Gate(cast(Authorizer, authority), cache)
    route = gate.guard_shared(Route(heartbeat.API, range(5), handle), Rights())
    if has_right:
        authority.allow(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    is_broker = has_right and client_id == "broker-1"
    request = context(heartbeat)
    request.client_id = client_id
    if ready or is_broker:
        route.handle(None, request)
        assert seen == [is_broker]
    else:
        with pytest.raises(CloseConnection):
            route.handle(None, request)
        assert not seen


def test_listener_of_brokers_remembers_no_requests(authority: Authority) -> None:
    """The rights of clients are asked for again, and there every request needs ClusterAction."""
    route = Route(produce.API, range(14), produce.handle, again=lambda *_: None)
    gate = Gate(cast(Authorizer, authority), cast(MetadataCache, SimpleNamespace()))
    assert gate.guard_between(route, produce.RIGHTS).again is None
    for guard in (gate.guard, gate.guard_shared):
        assert guard(route, produce.RIGHTS).again is route.again
