"""CreatePartitions (key 37): more partitions for topics that exist (KIP-195).

Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
INVALID_REPLICATION_FACTOR, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION (an internal topic),
POLICY_VIOLATION, NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from collections import Counter

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.topic_admin import NewPartitions
from barnabas.broker.metadata.topic_names import refuse_internal
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    API,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

__all__ = ["API", "SERVES", "CreatePartitionsHandler", "error_response"]

SERVES = range(4)


class CreatePartitionsHandler:
    """Each topic grows or is refused on its own."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(
        self,
        request: CreatePartitionsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> CreatePartitionsResponse:
        asked_for = Counter(topic.name for topic in request.topics)
        refused: dict[str, KafkaError | None] = {}
        wanted = []
        for topic in request.topics:
            try:
                if asked_for[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                refuse_internal(topic.name)
            except KafkaError as error:
                refused[topic.name] = error
                continue
            assignments = None
            if topic.assignments is not None:
                assignments = [each.broker_ids for each in topic.assignments]
            wanted.append(NewPartitions(topic.name, topic.count, assignments))
        answers = await self._controller.create_partitions(
            wanted, timeout=request.timeout_ms / 1000, validate_only=request.validate_only
        )
        return CreatePartitionsResponse(
            results=[_result(name, answer) for name, answer in {**refused, **answers}.items()]
        )


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )


def error_response(
    request: CreatePartitionsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> CreatePartitionsResponse:
    """The error for every topic."""
    error = KafkaError(code, code.text)
    return CreatePartitionsResponse(
        results=[_result(topic.name, error) for topic in request.topics]
    )
