"""The cases: each right that a request needs, granted in each way that rules know.

Every case has a principal and names of its own. So all rules exist before the first request, and
no case waits for the change of another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

OTHER_HOST = "10.9.8.7"


class Right(NamedTuple):
    """An operation on the resource of a case, or on the cluster.

    Attributes:
        other: an operation that does not imply this one.
    """

    type: ResourceType
    operation: AclOperation
    other: AclOperation


class Rule(NamedTuple):
    """A rule for the principal of a case."""

    type: ResourceType
    name: str
    operation: AclOperation
    pattern: PatternType = PatternType.LITERAL
    permission: AclPermissionType = AclPermissionType.ALLOW
    host: str = WILDCARD


class Given(NamedTuple):
    """The setting of a case on one broker; topic, group and transactional id have its name."""

    name: str
    topic_id: bytes
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Row:
    """A request, one right that it needs, and the rules that it gets besides.

    Attributes:
        setting: `t` for a topic, `g` for a group with a committed offset (of the topic), `x` for a
            transactional id with a producer, `o` for an open transaction of it.
        pick: selects what belongs to the case from an answer about everything.
    """

    title: str
    version: int
    right: Right
    request: Callable[[Given], Any]
    setting: str = ""
    also: tuple[Right, ...] = ()
    pick: Callable[[Any, str], None] | None = None


class Case(NamedTuple):
    """A row with the right granted in one way."""

    row: Row
    way: str

    @property
    def name(self) -> str:
        return f"{self.row.title}-{self.way}".replace(" ", "-")

    @property
    def principal(self) -> str:
        """The common name of the client's certificate, at most 64 characters."""
        return self.name

    def rules(self) -> list[Rule]:
        """Return the rules of the case's principal."""
        also = [Rule(r.type, self._resource(r), r.operation) for r in self.row.also]
        return [*also, *self._tested()]

    def _resource(self, right: Right) -> str:
        return CLUSTER_NAME if right.type is ResourceType.CLUSTER else self.name

    def _tested(self) -> list[Rule]:
        right = self.row.right
        cluster = right.type is ResourceType.CLUSTER
        exact = Rule(right.type, self._resource(right), right.operation)
        match self.way:
            case "none":
                return []
            case "exact":
                return [exact]
            case "prefixed":
                name = exact.name if cluster else exact.name[:-1]
                return [exact._replace(name=name, pattern=PatternType.PREFIXED)]
            case "wildcard":
                return [exact._replace(name=WILDCARD)]
            case "any-operation":
                return [exact._replace(operation=AclOperation.ALL)]
            case "deny":
                deny = exact._replace(permission=AclPermissionType.DENY)
                return [exact._replace(operation=AclOperation.ALL), deny]
            case "wrong-operation":
                return [exact._replace(operation=right.other)]
            case "wrong-resource":
                if not cluster:
                    return [exact._replace(name=f"{exact.name}x")]
                return [exact._replace(type=ResourceType.TOPIC)]
            case "other-host":
                return [exact._replace(host=OTHER_HOST)]
        raise AssertionError(self.way)


WAYS = (
    *("none", "exact", "prefixed", "wildcard", "any-operation", "deny"),
    *("wrong-operation", "wrong-resource", "other-host"),
)
ALLOWED = {"exact", "prefixed", "wildcard", "any-operation"}


def cases(rows: tuple[Row, ...]) -> Iterator[Case]:
    """Yield the cases of all rows; `*` is no name of a cluster."""
    for row in rows:
        for way in WAYS:
            if way != "wildcard" or row.right.type is not ResourceType.CLUSTER:
                yield Case(row, way)
