"""CreateTopics (key 19): create topics with partitions, replicas and configurations.

v4 accepts counts of -1 for the defaults, v5 returns the configuration, v7 the topic id. Errors by
topic: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST,
POLICY_VIOLATION, NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from operator import attrgetter

from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import (
    CLUSTER,
    CREATE,
    DESCRIBE_CONFIGS,
    TOPIC,
    Each,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.config.describe import describe_topic
from barnabas.config.dynamic import DynamicConfig
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import (
    API,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.steps import Steps, counted, in_steps
from barnabas.security.acl.rules import CLUSTER_NAME

__all__ = ["API", "RIGHTS", "handle"]

_STRICT_SINCE = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
RIGHTS = Rights(
    inside=(
        Need(CREATE, TOPIC, "name", unless=Need(CREATE, CLUSTER)),
        Need(
            DESCRIBE_CONFIGS,
            TOPIC,
            "name",
            without="the configuration of the created topic is withheld",
        ),
    ),
    each=Each(
        "topics", (), lambda topic, code, _: _refusal(topic.name, KafkaError(code)), "topics"
    ),
)
_TWICE = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_REFUSED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def handle(
    controller: Controller,
    config: DynamicConfig,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> Steps[CreateTopicsResponse]:
    """Create or refuse each topic on its own."""
    asked_for = yield from counted(topic.name for topic in request.topics)
    refused: dict[str, KafkaError] = {}
    may_create_all = context.allows(CREATE, CLUSTER, CLUSTER_NAME, log_denied=False)
    wanted: dict[str, CreatableTopic] = {}
    new: list[NewTopic] = []
    for topic in request.topics:
        if asked_for[topic.name] > 1:
            refused[topic.name] = _TWICE
        elif not (may_create_all or context.allows(CREATE, TOPIC, topic.name)):
            refused[topic.name] = _REFUSED
        elif (exceeded := _charge(config, request, context, topic)) is not None:
            refused[topic.name] = exceeded
        else:
            wanted[topic.name] = topic
            new.append((yield from _new_topic(topic, context)))
        yield None
    created = yield in_task(
        controller.create_topics(
            new, timeout=request.timeout_ms / 1000, validate_only=request.validate_only
        )
    )

    def result(topic: CreatableTopic) -> CreatableTopicResult:
        shows_configs = context.allows(DESCRIBE_CONFIGS, TOPIC, topic.name, log_denied=False)
        return _result(config, topic, created[topic.name], shows_configs=shows_configs)

    results = yield from in_steps(result, wanted.values())
    for name, error in refused.items():
        results.append(_refusal(name, error))
        yield None
    return CreateTopicsResponse(topics=results)


def _charge(
    config: DynamicConfig,
    request: CreateTopicsRequest,
    context: RequestContext,
    topic: CreatableTopic,
) -> KafkaError | None:
    """Charge the partitions of a topic; return the error if the client is over its quota."""
    if request.validate_only:
        return None
    partitions = len(topic.assignments) or topic.num_partitions
    if partitions < 0:
        partitions = config.current.num_partitions
    return context.exceeds_quota(partitions, strict=context.api_version >= _STRICT_SINCE)


def _result(
    config: DynamicConfig,
    topic: CreatableTopic,
    answer: CreatedTopic | KafkaError,
    *,
    shows_configs: bool,
) -> CreatableTopicResult:
    if isinstance(answer, KafkaError):
        return _refusal(topic.name, answer)
    if not shows_configs:
        return CreatableTopicResult(
            name=topic.name,
            topic_id=answer.topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    overrides = {each.name: each.value for each in topic.configs if each.value is not None}
    return CreatableTopicResult(
        name=topic.name,
        topic_id=answer.topic_id,
        num_partitions=answer.num_partitions,
        replication_factor=answer.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(overrides, config)
        ],
    )


def _new_topic(topic: CreatableTopic, context: RequestContext) -> Steps[NewTopic]:
    """Return the topic to be created; only brokers may create internal topics."""
    assignments = yield from in_steps(
        attrgetter("partition_index", "broker_ids"), topic.assignments
    )
    configs = yield from in_steps(attrgetter("name", "value"), topic.configs)
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        dict(configs),
        internal=context.inter_broker,
    )


def _refusal(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or error.code.text
    )
