"""CreateTopics (key 19).

v4 defaults for counts of -1, v5 shows the configuration, v7 the topic id. Errors by topic:
TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION, NOT_CONTROLLER,
REQUEST_TIMED_OUT.
"""

from collections import Counter

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.topics import CreatedTopic, NewTopic
from barnabas.broker.server.context import RequestContext
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

__all__ = ["API", "SERVES", "CreateTopicsHandler", "error_response"]

SERVES = range(2, 8)


class CreateTopicsHandler:
    """Each topic is created or refused on its own."""

    def __init__(self, controller: Controller, config: DynamicConfig) -> None:
        self._controller = controller
        self._config = config

    async def handle(
        self,
        request: CreateTopicsRequest,
        context: RequestContext,
    ) -> CreateTopicsResponse:
        asked_for = Counter(topic.name for topic in request.topics)
        wanted = {topic.name: topic for topic in request.topics if asked_for[topic.name] == 1}
        created = await self._controller.create_topics(
            [_new_topic(topic, context) for topic in wanted.values()],
            timeout=request.timeout_ms / 1000,
            validate_only=request.validate_only,
        )
        results = [self._result(name, created[name], wanted[name]) for name in wanted]
        twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        results += [_refusal(name, twice) for name in asked_for if name not in wanted]
        return CreateTopicsResponse(topics=results)

    def _result(
        self, name: str, answer: CreatedTopic | KafkaError, topic: CreatableTopic
    ) -> CreatableTopicResult:
        if isinstance(answer, KafkaError):
            return _refusal(name, answer)
        overrides = {each.name: each.value for each in topic.configs if each.value is not None}
        return CreatableTopicResult(
            name=name,
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
                for entry in describe_topic(overrides, self._config)
            ],
        )


def _new_topic(topic: CreatableTopic, context: RequestContext) -> NewTopic:
    """Brokers may ask for topics of their own, which nobody else may create."""
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        {each.name: each.value for each in topic.configs},
        internal=context.inter_broker,
    )


def _refusal(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or error.code.text
    )


def error_response(
    request: CreateTopicsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> CreateTopicsResponse:
    """The error for every topic."""
    error = KafkaError(code)
    return CreateTopicsResponse(topics=[_refusal(topic.name, error) for topic in request.topics])
