"""DeleteTopics (key 20): delete topics by name or by id.

v5 has error messages, v6 topic ids. Errors by topic: UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION (an internal topic), NOT_CONTROLLER,
REQUEST_TIMED_OUT, TOPIC_DELETION_DISABLED (INVALID_REQUEST before v3).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import refuse_internal
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.rules.cluster_state import ClusterTopic
from barnabas.broker.security.rights import CLUSTER, DELETE, DESCRIBE, TOPIC, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_topics import (
    API,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.steps import Steps, counted, in_steps
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.rules import CLUSTER_NAME

__all__ = ["API", "RIGHTS", "error_response", "handle"]

_STRICT_SINCE = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
RIGHTS = Rights(
    inside=(
        Need(DELETE, TOPIC, "name", "topic_id", unless=Need(DELETE, CLUSTER)),
        Need(
            DESCRIBE,
            TOPIC,
            "name",
            "topic_id",
            unless=Need(DELETE, CLUSTER),
            without="the name of a refused topic id is withheld",
        ),
    )
)


Answered = tuple[DeleteTopicState, ClusterTopic | KafkaError]


def handle(
    controller: Controller,
    cache: MetadataCache,
    enabled: Callable[[], bool],
    request: DeleteTopicsRequest,
    context: RequestContext,
) -> Steps[DeleteTopicsResponse]:
    """Delete or refuse each topic on its own; `enabled` returns `delete.topic.enable`."""
    if not enabled():
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    states = yield from _states(request)
    names = yield from counted(state.name for state in states if state.name is not None)
    ids = yield from counted(state.topic_id for state in states if state.topic_id != ZERO_UUID)
    may_delete_all = context.allows(DELETE, CLUSTER, CLUSTER_NAME, log_denied=False)
    refused: dict[str | bytes | None, Answered] = {}
    wanted: dict[str | bytes, DeleteTopicState] = {}
    for state in states:
        key = state.topic_id if state.name is None else state.name
        try:
            _check(state, names, ids)
            name = cache.topic_name(state.topic_id) if state.name is None else state.name
            if name is None and not may_delete_all:
                # The controller may know the id of a topic that this broker has not heard of.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if name is not None:
                if not (may_delete_all or context.allows(DELETE, TOPIC, name)):
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    if context.allows(DESCRIBE, TOPIC, name):
                        # The id of a topic that the client may not see tells no name.
                        state = DeleteTopicState(name=name, topic_id=state.topic_id)
                        if cache.topic(name) is None:
                            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    raise KafkaError(code)
                refuse_internal(name)
                if state.name is None and names[name]:
                    raise _invalid(
                        "The provided topic name maps to an ID that was already supplied."
                    )
                known = cache.topic(name)
                error = context.exceeds_quota(
                    0 if known is None else len(known.partitions),
                    strict=context.api_version >= _STRICT_SINCE,
                )
                if error is not None:
                    raise error
            wanted[key] = state
        except KafkaError as error:
            refused[key] = (state, error.with_traceback(None))
        yield None
    asked = controller.delete_topics(list(wanted), timeout=request.timeout_ms / 1000)
    answers = yield in_task(asked)
    deleted = zip(wanted.values(), answers, strict=True)
    return (yield from _answer(chain(deleted, refused.values())))


def _answer(answers: Iterable[Answered]) -> Steps[DeleteTopicsResponse]:
    return DeleteTopicsResponse(responses=(yield from in_steps(_result, answers)))


def _check(state: DeleteTopicState, names: Counter[str], ids: Counter[bytes]) -> None:
    if state.name is None and state.topic_id == ZERO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if state.name is not None and names[state.name] > 1:
        raise _invalid("Duplicate topic name.")
    if ids[state.topic_id] > 1:
        raise _invalid("Duplicate topic id.")


def _states(request: DeleteTopicsRequest) -> Steps[list[DeleteTopicState]]:
    """Return the topics in the form of v6."""
    if request.topics:
        return request.topics
    return (yield from in_steps(lambda name: DeleteTopicState(name=name), request.topic_names))


def _result(answered: Answered) -> DeletableTopicResult:
    state, answer = answered
    if isinstance(answer, ClusterTopic):
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
    request: DeleteTopicsRequest, code: ErrorCode, _version: int
) -> Steps[DeleteTopicsResponse]:
    """Answer every topic with the error."""
    error = KafkaError(code)
    states = yield from _states(request)
    return (yield from _answer((state, error) for state in states))
