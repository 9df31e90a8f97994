"""CreateTopics (key 19): create topics with partitions, replicas and configurations.

v4 accepts counts of -1 for the defaults, v5 returns the configuration, v7 the topic id. Errors by
topic: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST,
POLICY_VIOLATION, NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.controller.controller import Controller
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.slices import Steps, counted, in_steps
from barnabas.config.describe import describe_topic
from barnabas.config.dynamic import DynamicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import (
    API,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ["API", "Parts", "error_response", "handle"]


class Parts(NamedTuple):
    """The parts of the broker that CreateTopics works with."""

    controller: Controller
    config: DynamicConfig


def handle(
    parts: Parts,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> Steps[Coroutine[Any, Any, Steps[CreateTopicsResponse]]]:
    """Create or refuse each topic on its own."""
    asked_for = yield from counted(topic.name for topic in request.topics)
    wanted: dict[str, CreatableTopic] = {}
    new: list[NewTopic] = []
    for topic in request.topics:
        if asked_for[topic.name] == 1:
            wanted[topic.name] = topic
            new.append((yield from _new_topic(topic, context)))
        yield None
    return _created(parts, request, wanted, new, asked_for)


async def _created(
    parts: Parts,
    request: CreateTopicsRequest,
    wanted: Mapping[str, CreatableTopic],
    new: Sequence[NewTopic],
    asked_for: Iterable[str],
) -> Steps[CreateTopicsResponse]:
    created = await parts.controller.create_topics(
        new, timeout=request.timeout_ms / 1000, validate_only=request.validate_only
    )
    return _answer(parts.config, created, wanted, asked_for)


def _answer(
    config: DynamicConfig,
    created: Mapping[str, CreatedTopic | KafkaError],
    wanted: Mapping[str, CreatableTopic],
    asked_for: Iterable[str],
) -> Steps[CreateTopicsResponse]:
    def result(topic: CreatableTopic) -> CreatableTopicResult:
        return _result(config, topic, created[topic.name])

    results = yield from in_steps(result, wanted.values())
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    for name in asked_for:
        if name not in wanted:
            results.append(_refusal(name, twice))
        yield None
    return CreateTopicsResponse(topics=results)


def _result(
    config: DynamicConfig, topic: CreatableTopic, answer: CreatedTopic | KafkaError
) -> CreatableTopicResult:
    if isinstance(answer, KafkaError):
        return _refusal(topic.name, answer)
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


def error_response(
    request: CreateTopicsRequest,
    code: ErrorCode,
    _version: int,
) -> Steps[CreateTopicsResponse]:
    """Answer every topic with the error."""
    error = KafkaError(code)
    return CreateTopicsResponse(
        topics=(yield from in_steps(lambda topic: _refusal(topic.name, error), request.topics))
    )
