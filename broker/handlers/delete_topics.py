"""DeleteTopics (key 20): delete topics by name or by id.

v5 has error messages, v6 topic ids. Errors by topic: UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION (an internal topic), NOT_CONTROLLER,
REQUEST_TIMED_OUT, TOPIC_DELETION_DISABLED (INVALID_REQUEST before v3).
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import refuse_internal
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.state import Topic
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.slices import Steps, counted, in_steps
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.delete_topics import (
    API,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "Parts", "error_response", "handle"]


class Parts(NamedTuple):
    """The parts of the broker that DeleteTopics works with."""

    controller: Controller
    cache: MetadataCache
    enabled: Callable[[], bool]
    """Returns `delete.topic.enable`."""


Answered = tuple[DeleteTopicState, Topic | KafkaError]


def handle(
    parts: Parts,
    request: DeleteTopicsRequest,
    _context: RequestContext,
) -> Steps[Coroutine[Any, Any, Steps[DeleteTopicsResponse]]]:
    """Delete or refuse each topic on its own."""
    if not parts.enabled():
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    states = yield from _states(request)
    names = yield from counted(state.name for state in states if state.name is not None)
    ids = yield from counted(state.topic_id for state in states if state.topic_id != ZERO_UUID)
    refused: dict[str | bytes | None, Answered] = {}
    wanted: dict[str | bytes, DeleteTopicState] = {}
    for state in states:
        key = state.topic_id if state.name is None else state.name
        try:
            _check(parts.cache, state, names, ids)
            wanted[key] = state
        except KafkaError as error:
            refused[key] = (state, error.with_traceback(None))
        yield None
    return _deleted(parts.controller, wanted, refused.values(), request.timeout_ms / 1000)


async def _deleted(
    controller: Controller,
    wanted: Mapping[str | bytes, DeleteTopicState],
    refused: Iterable[Answered],
    timeout: float,
) -> Steps[DeleteTopicsResponse]:
    answers = await controller.delete_topics(list(wanted), timeout=timeout)
    return _answer(chain(zip(wanted.values(), answers, strict=True), refused))


def _answer(answers: Iterable[Answered]) -> Steps[DeleteTopicsResponse]:
    return DeleteTopicsResponse(responses=(yield from in_steps(_result, answers)))


def _check(
    cache: MetadataCache, state: DeleteTopicState, names: Counter[str], ids: Counter[bytes]
) -> None:
    if state.name is None and state.topic_id == ZERO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if state.name is not None and names[state.name] > 1:
        raise _invalid("Duplicate topic name.")
    if ids[state.topic_id] > 1:
        raise _invalid("Duplicate topic id.")
    name = cache.topic_name(state.topic_id) if state.name is None else state.name
    if name is not None:
        refuse_internal(name)
        if state.name is None and names[name]:
            raise _invalid("The provided topic name maps to an ID that was already supplied.")


def _states(request: DeleteTopicsRequest) -> Steps[list[DeleteTopicState]]:
    """Return the topics in the form of v6."""
    if request.topics:
        return request.topics
    return (yield from in_steps(lambda name: DeleteTopicState(name=name), request.topic_names))


def _result(answered: Answered) -> DeletableTopicResult:
    state, answer = answered
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
) -> Steps[DeleteTopicsResponse]:
    """Answer every topic with the error."""
    error = KafkaError(downgrade(API.key, version, code))
    states = yield from _states(request)
    return (yield from _answer((state, error) for state in states))
