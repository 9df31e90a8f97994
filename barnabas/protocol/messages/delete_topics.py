"""DeleteTopics (key 20): deletes topics and their logs.

v3 may return TOPIC_DELETION_DISABLED; v4 flexible; v5 error messages, THROTTLING_QUOTA_EXCEEDED
(KIP-599); v6 by id (KIP-516).

Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED,
NOT_CONTROLLER, REQUEST_TIMED_OUT, INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import ZERO_UUID, Array, Int16, Int32, NullableString, String, Uuid


@message
class DeleteTopicState:
    """A topic by name or, with a null name, by id."""

    name: NullableString = since(6, default=None)
    topic_id: Uuid = since(6, default=ZERO_UUID)


@message
class DeleteTopicsRequest:
    """The topics to delete: `topic_names` up to v5, `topics` since v6."""

    topics: Array[DeleteTopicState] = since(6, default_factory=list)
    topic_names: Array[String] = field(until=5, default_factory=list, ignorable=True)
    timeout_ms: Int32


@message
class DeletableTopicResult:
    """The result for one topic."""

    name: NullableString = field(nullable=6)
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: NullableString = since(5, default=None, ignorable=True)


@message
class DeleteTopicsResponse:
    """The results: one entry per topic of the request."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    responses: Array[DeletableTopicResult]


API = declare(
    __name__,
    flexible=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)
