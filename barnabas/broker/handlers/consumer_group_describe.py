"""ConsumerGroupDescribe (key 69): consumer groups with their members, for tools (KIP-848).

v1 the type of each member (KIP-1099). Errors by group: GROUP_ID_NOT_FOUND,
TOPIC_AUTHORIZATION_FAILED, and those of coordinators.
"""

from barnabas.broker.cluster.features import Features
from barnabas.broker.cluster.operations import GROUP_OPERATIONS
from barnabas.broker.security.rights import DESCRIBE, GROUP, TOPIC, Each, Need, Operations, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_describe import (
    API,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    each=Each(
        "group_ids",
        (Need(DESCRIBE, GROUP),),
        lambda group_id, code, _: _error(group_id, KafkaError(code)),
        "groups",
    ),
    inside=(Need(DESCRIBE, TOPIC, "subscribed_topic_names"),),
    operations=(Operations("authorized_operations", GROUP, "groups", "group_id"),),
)


def handle(
    groups: GroupCoordinator,
    features: Features,
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
) -> Steps[ConsumerGroupDescribeResponse]:
    """Describe each group in its present state, once."""
    if not features.has_consumer_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    known: dict[str, DescribedGroup] = {}
    for group_id in request.group_ids:
        yield None
        if group_id in known:
            continue
        group = known[group_id] = yield from _describe(groups, group_id, context)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=list(known.values()))


def _describe(
    groups: GroupCoordinator, group_id: str, context: RequestContext
) -> Steps[DescribedGroup]:
    try:
        described = yield from groups.describe_consumers(group_id)
    except KafkaError as error:
        return _error(group_id, error)
    seen: set[str] = set()
    for member in described.members:
        yield None
        assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
        names = {*member.subscribed_topic_names, *(each.topic_name for each in assigned)} - seen
        seen |= names
        if not all(context.allows(DESCRIBE, TOPIC, name, log_denied=False) for name in names):
            text = "The described group uses topics that the client is not authorized to describe."
            return _error(group_id, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text))
    return described


def _error(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
