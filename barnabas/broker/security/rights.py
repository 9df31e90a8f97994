"""The declarations of the rights that requests need.

Each handler module has `RIGHTS` next to its `API`. The gate (`gate.py`) asks for them before the
handler runs, and docs/SECURITY.md lists them:

    RIGHTS = Rights(
        whole=(Need(READ, GROUP, "group_id"),),
        each=Each("topics", (Need(READ, TOPIC, "name", "topic_id"),), _refused, "topics"),
    )

A refusal has one of these forms:

- `whole`: the request is refused with an error, as if the handler had raised KafkaError.
- `each`: the refused elements of a list are taken out, the handler answers the others, and the
  responses of the refused ones are appended to its response. Nothing reaches the handler if all are
  refused. A request that fails as a whole is answered from it too (`ApiRow.refuse`).
- `shown`: the handler answers everything, and what the client may not see is taken out silently.
- `inside`: the handler asks by itself, with `context.allows`, because a list is not all that it
  answers from (a fetch session, all topics of a cluster).

`operations` fills in the authorized operations (KIP-430). Handlers answer them as if everything
were allowed.
"""

from collections.abc import Callable
from types import GeneratorType
from typing import Any, Final, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.steps import Steps
from barnabas.security.acl.rules import AclOperation, ResourceType

READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
CREATE: Final = AclOperation.CREATE
DELETE: Final = AclOperation.DELETE
ALTER: Final = AclOperation.ALTER
DESCRIBE: Final = AclOperation.DESCRIBE
CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE: Final = AclOperation.IDEMPOTENT_WRITE
TWO_PHASE_COMMIT: Final = AclOperation.TWO_PHASE_COMMIT
CREATE_TOKENS: Final = AclOperation.CREATE_TOKENS
DESCRIBE_TOKENS: Final = AclOperation.DESCRIBE_TOKENS
TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN: Final = ResourceType.DELEGATION_TOKEN
USER: Final = ResourceType.USER
ANY_NAME: Final = "*"
"""The field of a need that one resource of the type satisfies, whatever its name (KIP-679)."""
ITSELF: Final = ""
"""The field of a need whose element is the name."""

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The errors of refusals, by resource type."""


class Need(NamedTuple):
    """An operation on a resource, which a field of the request or of an element names."""

    operation: AclOperation
    type: ResourceType
    field: str = ITSELF
    """The field with the name; without meaning for the cluster. Null needs nothing."""
    id_field: str = ""
    """The field with the topic id, if the name is empty. An unknown id is refused with
    UNKNOWN_TOPIC_ID before the handler runs."""
    when: Callable[[Any], bool] | None = None
    """Returns whether the request or the element needs the right. Its docstring names the case, in
    docs/SECURITY.md."""
    versions: range | None = None
    """The versions of the API that need the right; None is all."""
    unless: "Need | None" = None
    """Another right of the request, which is enough. It is asked first, without a line in the audit
    log."""
    refusal: ErrorCode | None = None
    """The error, unless it is the one of the resource type."""
    without: str = ""
    """The effect of a refusal that a handler decides on, for docs/SECURITY.md; empty for the
    error."""

    @property
    def error(self) -> ErrorCode:
        return self.refusal or REFUSALS[self.type]


class Each(NamedTuple):
    """The elements of a list in the request, which are answered one by one.

    The gate refuses those whose rights are missing. If the request fails as a whole, each element
    has the error.
    """

    elements: str
    """The field of the request with the list. Null is no elements."""
    needs: tuple[Need, ...]
    """The rights that the gate asks for. Empty where the handler asks by itself, or where one right
    is needed for the whole request."""
    refused: Callable[[Any, ErrorCode, int], Any]
    """Returns the result of an element, from the element, the error and the version; it may be a
    generator function, as a handler may."""
    answers: str
    """The field of the response with the results of the elements."""

    def refusal(self, element: Any, code: ErrorCode, version: int) -> Steps[Any]:
        """Return what `refused` does, in steps."""
        answer = self.refused(element, code, version)
        return (yield from answer) if type(answer) is GeneratorType else answer


class Shown(NamedTuple):
    """The elements of a response that only those see who have a right."""

    answers: str
    """The field of the response with the elements."""
    need: Need


class Operations(NamedTuple):
    """A field of the response, or of its elements, with authorized operations (KIP-430)."""

    field: str
    type: ResourceType
    answers: str = ITSELF
    """The field of the response with the elements; empty if the response has the operations."""
    name: str = ITSELF
    """The field of the element with the name of its resource."""


class Rights(NamedTuple):
    """The rights that the requests of an API need. The module's docstring explains the fields."""

    whole: tuple[Need, ...] = ()
    each: Each | None = None
    shown: Shown | None = None
    operations: tuple[Operations, ...] = ()
    inside: tuple[Need, ...] = ()
    again: bool = False
    """Whether `whole` is asked again before the response: the request may have waited long."""


HIDDEN_OF_ALL: Final = "TOPIC_AUTHORIZATION_FAILED; left out of all topics"
NOTHING: Final = Rights()
"""The declaration of an API that every client may use."""
OF_BROKERS: Final = Rights(whole=(Need(CLUSTER_ACTION, CLUSTER),))
"""The declaration of an API between brokers."""
