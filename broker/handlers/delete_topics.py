"""DeleteTopics (key 20).

v5 tells reasons, v6 takes topics by id. Errors by topic: UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION (an internal topic), NOT_CONTROLLER,
REQUEST_TIMED_OUT, TOPIC_DELETION_DISABLED (INVALID_REQUEST before v3).
"""

from collections import Counter
from collections.abc import Callable

from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.state import Topic
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import refuse_internal
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.delete_topics import (
    API,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "SERVES", "DeleteTopicsHandler", "error_response"]

SERVES = range(1, 7)


class DeleteTopicsHandler:
    """Each topic is deleted or refused on its own."""

    def __init__(
        self, controller: Controller, cache: MetadataCache, enabled: Callable[[], bool]
    ) -> None:
        """`enabled` tells `delete.topic.enable`."""
        self._controller = controller
        self._cache = cache
        self._enabled = enabled

    async def handle(
        self,
        request: DeleteTopicsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> DeleteTopicsResponse:
        if not self._enabled():
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
        states = _states(request)
        names = Counter(state.name for state in states if state.name is not None)
        ids = Counter(state.topic_id for state in states if state.topic_id != ZERO_UUID)
        refused: dict[str | bytes | None, DeletableTopicResult] = {}
        wanted: dict[str | bytes, DeleteTopicState] = {}
        for state in states:
            key = state.topic_id if state.name is None else state.name
            try:
                self._check(state, names, ids)
                wanted[key] = state
            except KafkaError as error:
                refused[key] = _result(state, error)
        answers = await self._controller.delete_topics(
            list(wanted), timeout=request.timeout_ms / 1000
        )
        results = [
            _result(state, answer) for state, answer in zip(wanted.values(), answers, strict=True)
        ]
        return DeleteTopicsResponse(responses=[*results, *refused.values()])

    def _check(self, state: DeleteTopicState, names: Counter[str], ids: Counter[bytes]) -> None:
        if state.name is None and state.topic_id == ZERO_UUID:
            raise _invalid("Neither topic name nor id were specified.")
        if state.name is not None and state.topic_id != ZERO_UUID:
            raise _invalid("You may not specify both topic name and topic id.")
        if state.name is not None and names[state.name] > 1:
            raise _invalid("Duplicate topic name.")
        if ids[state.topic_id] > 1:
            raise _invalid("Duplicate topic id.")
        name = self._cache.topic_name(state.topic_id) if state.name is None else state.name
        if name is not None:
            refuse_internal(name)
            if state.name is None and names[name]:
                raise _invalid("The provided topic name maps to an ID that was already supplied.")


def _states(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Topics in the form of v6."""
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _result(state: DeleteTopicState, answer: Topic | KafkaError) -> DeletableTopicResult:
    if isinstance(answer, Topic):
        return DeletableTopicResult(name=answer.name, topic_id=answer.topic_id)
    return DeletableTopicResult(
        name=state.name,
        topic_id=state.topic_id,
        error_code=answer.code,
        error_message=answer.message or answer.code.text,
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def error_response(
    request: DeleteTopicsRequest, code: ErrorCode, version: int
) -> DeleteTopicsResponse:
    """The error for every topic."""
    error = KafkaError(downgrade(API.key, version, code))
    return DeleteTopicsResponse(responses=[_result(state, error) for state in _states(request)])
