"""The cases: each right that a request needs, granted in each way that rules know.

Every case has a principal and names of its own. So all rules exist before the first request, and
no case waits for the change of another.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.broker.routes import API_TABLE
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Api
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from tests.referee.scenario import NEWER_SINCE
from tests.support.raw import APIS, SERVED

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
    everyone: bool = False
    """Whether it is a rule for all users instead."""


class Given(NamedTuple):
    """The setting of a case on one broker; topic, group and transactional id have its name."""

    name: str
    topic_id: bytes
    producer_id: int = -1
    epoch: int = -1
    token_id: str = ""
    """The id of the delegation token; brokers choose it."""
    other: "Given | None" = None
    """The setting of the second subject, if the request has two."""


def owner(name: str) -> str:
    """Return the user for whom the principal of a case asks."""
    return f"{name}-owner"


GIVEN = Given("name", ZERO_UUID, 1, 0, other=Given("other", ZERO_UUID, 1, 0))
CLIENTS = {row.api.key: row.clients for row in API_TABLE if row.api.key in SERVED}


@dataclass(frozen=True, slots=True)
class Row:
    """A request, one right that it needs, and the rules that it gets besides.

    Attributes:
        setting: `d` for a delegation token of another user (`owner`), `t` for a topic, `g` for a
            group with a committed offset (of the topic), `x` for a transactional id with a
            producer, `o` for an open transaction of it.
        pick: selects what belongs to the case from an answer about everything.
        apart: the ways whose answer is neither that of "exact" nor that of "none" as their names
            say: the other operation implies the right, or the answer shows it.
        other: the rights to a second subject that the request names.
    """

    title: str
    version: int
    right: Right
    request: Callable[[Given], Any]
    setting: str = ""
    also: tuple[Right, ...] = ()
    pick: Callable[[Any, str], None] | None = None
    apart: tuple[str, ...] = ()
    other: tuple[Right, ...] = ()

    @property
    def api(self) -> Api:
        return APIS[type(self.request(GIVEN))]

    def versions(self) -> Iterator[int]:
        """Yield the versions for clients that can carry the request.

        If a part of it is allowed, those of the newer protocol of transactions are left out.
        """
        versions = CLIENTS[self.api.key]
        if self.other:
            newer = NEWER_SINCE.get(self.api.key, versions.stop)
            versions = range(versions.start, min(newer, versions.stop))
        for version in versions:
            with suppress(ProtocolError):
                encode(self.request(GIVEN), version)
                yield version


def second(name: str) -> str:
    """Return the name of the second subject of a case."""
    return f"{name}-2"


class Case(NamedTuple):
    """A row with the right granted in one way."""

    row: Row
    way: str

    @property
    def name(self) -> str:
        return f"{self.row.title}-{self.way}".replace(" ", "-")

    @property
    def title(self) -> str:
        """The name in wanted differences."""
        end = "allowed" if self.way in ALLOWED else "refused"
        return f"rights/{self.row.title} {end}"

    @property
    def principal(self) -> str:
        """The name of the user, and its password."""
        return self.name

    def rules(self, given: Given) -> list[Rule]:
        """Return the rules of the case's principal."""
        also = [Rule(r.type, self._resource(r, given), r.operation) for r in self.row.also]
        other = [Rule(r.type, second(self.name), r.operation) for r in self.row.other]
        return [*also, *other, *self._tested(given)]

    def _resource(self, right: Right, given: Given) -> str:
        match right.type:
            case ResourceType.USER:
                return f"User:{owner(self.name)}"
            case ResourceType.DELEGATION_TOKEN:
                return given.token_id
            case ResourceType.CLUSTER:
                return CLUSTER_NAME
        return self.name

    def _tested(self, given: Given) -> list[Rule]:
        right = self.row.right
        cluster = right.type is ResourceType.CLUSTER
        exact = Rule(right.type, self._resource(right, given), right.operation)
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


def cases(rows: Iterable[Row]) -> Iterator[Case]:
    """Yield the cases of all rows; `*` is no name of a cluster."""
    for row in rows:
        for way in WAYS:
            if way != "wildcard" or row.right.type is not ResourceType.CLUSTER:
                yield Case(row, way)
