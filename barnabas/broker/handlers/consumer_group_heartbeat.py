"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, lives and leaves (KIP-848).

v1 subscriptions by regular expression, and member ids that the member chooses. An expression
matches only topics that its member may describe. Errors: UNSUPPORTED_VERSION below level 1 of
`group.version`, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, GROUP_ID_NOT_FOUND,
UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
UNSUPPORTED_ASSIGNOR, GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION, and those of coordinators.
"""

import asyncio

from barnabas.broker.cluster.features import Features
from barnabas.broker.security.rights import DESCRIBE, GROUP, READ, TOPIC, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import FEW, Repeat
from barnabas.coordinator.group.consumer.heartbeat import ConsumerClient, tells_about_itself
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, settle
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import (
    API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "again", "error_response", "handle"]

RIGHTS = Rights(
    whole=(Need(READ, GROUP, "group_id"),),
    inside=(Need(DESCRIBE, TOPIC, "subscribed_topic_names"),),
)


def handle(
    groups: GroupCoordinator,
    features: Features,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
) -> Soon[ConsumerGroupHeartbeatResponse] | Steps[ConsumerGroupHeartbeatResponse]:
    """Answer at once, or when what changes is committed."""
    if not features.has_consumer_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    client = _client(context)
    names = request.subscribed_topic_names or ()
    if len(names) > FEW:
        return _with_many_topics(groups, request, client, context)
    for name in names:
        _require_topic(context, name)
    return _change(groups, request, client)


def _client(context: RequestContext) -> ConsumerClient:
    return ConsumerClient(
        context.api_version,
        context.client_id or "",
        # The form of Java's addresses, as in Kafka: tools show it.
        f"/{context.client_host}",
        lambda topic: context.allows(DESCRIBE, TOPIC, topic, log_denied=False),
    )


def _with_many_topics(
    groups: GroupCoordinator,
    request: ConsumerGroupHeartbeatRequest,
    client: ConsumerClient,
    context: RequestContext,
) -> Steps[ConsumerGroupHeartbeatResponse]:
    for name in request.subscribed_topic_names or ():
        yield None
        _require_topic(context, name)
    return (yield from settle(_change(groups, request, client)))


def _require_topic(context: RequestContext, name: str) -> None:
    if not context.allows(DESCRIBE, TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _change(
    groups: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient
) -> Soon[ConsumerGroupHeartbeatResponse] | Steps[ConsumerGroupHeartbeatResponse]:
    try:
        answer = groups.consumer_heartbeat(request, client)
    except KafkaError as error:
        return _error(error)
    return _committed(answer) if isinstance(answer, asyncio.Future) else answer


def _committed(
    answer: asyncio.Future[ConsumerGroupHeartbeatResponse],
) -> Steps[ConsumerGroupHeartbeatResponse]:
    try:
        response: ConsumerGroupHeartbeatResponse = yield answer
        return response
    except KafkaError as error:
        return _error(error)


def _error(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    """Return a response with the text of the error, which a derived one would not have."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def error_response(
    _request: ConsumerGroupHeartbeatRequest, code: ErrorCode, _version: int
) -> ConsumerGroupHeartbeatResponse:
    """Answer without a text, as Kafka."""
    return ConsumerGroupHeartbeatResponse(error_code=code)


def again(
    groups: GroupCoordinator,
    features: Features,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    response: ConsumerGroupHeartbeatResponse,
) -> Repeat | None:
    """Serve a member for which nothing changes: requests are equal, and so are responses."""
    if (
        response.error_code
        or response.assignment is not None
        or response.member_epoch <= 0
        or request.topic_partitions is not None
        or tells_about_itself(request)
    ):
        return None
    known = groups, features, request, _client(context), response.heartbeat_interval_ms
    return Repeat(_beat_again, known)


def _beat_again(
    known: tuple[GroupCoordinator, Features, ConsumerGroupHeartbeatRequest, ConsumerClient, int],
    _now_ms: int,
    _values: tuple[()],
) -> tuple[()] | None:
    groups, features, request, client, interval_ms = known
    if not features.has_consumer_groups:
        return None
    answer = groups.steady_heartbeat(request, client)
    # The configuration of the group, or of the broker, may have changed.
    is_equal = answer is not None and answer.heartbeat_interval_ms == interval_ms
    return () if is_equal else None
