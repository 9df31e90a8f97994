"""CreatePartitions (key 37): add partitions to existing topics (KIP-195).

Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
INVALID_REPLICATION_FACTOR, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION (an internal topic),
POLICY_VIOLATION, NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from operator import attrgetter

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import refuse_internal
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.topic_admin import NewPartitions
from barnabas.broker.security.rights import ALTER, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    API,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.protocol.steps import Steps, counted, in_steps

__all__ = ["API", "RIGHTS", "handle"]

_STRICT_SINCE = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
RIGHTS = Rights(
    inside=(Need(ALTER, TOPIC, "name"),),
    each=Each(
        "topics",
        (),
        lambda topic, code, _: _result((topic.name, KafkaError(code, code.text))),
        "results",
    ),
)


def handle(
    controller: Controller,
    cache: MetadataCache,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> Steps[CreatePartitionsResponse]:
    """Add partitions to each topic on its own."""
    asked_for = yield from counted(topic.name for topic in request.topics)
    refused: dict[str, KafkaError | None] = {}
    wanted = []
    for topic in request.topics:
        yield None
        try:
            if asked_for[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not context.allows(ALTER, TOPIC, topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            refuse_internal(topic.name)
            if not request.validate_only:
                _charge(cache, topic, context)
        except KafkaError as error:
            refused[topic.name] = error.with_traceback(None)
            continue
        assignments = None
        if topic.assignments is not None:
            assignments = yield from in_steps(attrgetter("broker_ids"), topic.assignments)
        wanted.append(NewPartitions(topic.name, topic.count, assignments))
    created = controller.create_partitions(
        wanted, timeout=request.timeout_ms / 1000, validate_only=request.validate_only
    )
    answers = {**refused, **(yield in_task(created))}
    return CreatePartitionsResponse(results=(yield from in_steps(_result, answers.items())))


def _charge(cache: MetadataCache, topic: CreatePartitionsTopic, context: RequestContext) -> None:
    """Charge the new partitions of a topic; raise KafkaError if the client is over its quota."""
    known = cache.topic(topic.name)
    new = topic.count - (0 if known is None else len(known.partitions))
    error = context.exceeds_quota(new, strict=context.api_version >= _STRICT_SINCE)
    if error is not None:
        raise error


def _result(answer: tuple[str, KafkaError | None]) -> CreatePartitionsTopicResult:
    name, error = answer
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )
