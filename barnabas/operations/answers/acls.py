"""The answers of `barnabas acls`."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from barnabas.operations.answers.model import Answer, OneOf
from barnabas.security.acl.matcher import Reason
from barnabas.security.acl.rules import AclOperation, AclPermissionType, PatternType, ResourceType


@dataclass(frozen=True, slots=True)
class Rule(Answer):
    """A rule of access control."""

    principal: str
    """TYPE:NAME."""
    host: str
    """Address of the client, or *."""
    operation: Annotated[str, OneOf(each.label for each in AclOperation)]
    permission: Annotated[str, OneOf(each.label for each in AclPermissionType)]
    type: Annotated[str, OneOf(each.label for each in ResourceType)]
    """Type of the resource."""
    name: str
    """Name of the resource, or its prefix."""
    pattern: Annotated[str, OneOf(each.label for each in PatternType)]


@dataclass(frozen=True, slots=True)
class Decision(Answer):
    """Whether a principal may do something, and why."""

    allowed: bool
    reason: Reason
    rule: Rule | None
    """The rule that decides."""
    unknown: str | None
    """The settings that the broker did not show, and that may change the decision."""


ANSWERS: Final[dict[str, Any]] = {
    "acls list": list[Rule],
    "acls add": list[Rule],
    "acls remove": list[Rule],
    "acls why": Decision,
}
