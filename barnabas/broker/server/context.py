"""The context of a request, for its handler."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.broker.server.limits.quotas import Charge
from barnabas.protocol.errors import KafkaError
from barnabas.security.acl.rules import AclOperation, ResourceType
from barnabas.security.principal import Principal


class Asker(Protocol):
    """The authorizer, as a handler asks it."""

    def allows(
        self,
        context: "RequestContext",
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        /,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Return whether the sender of a request may perform an operation on a resource."""
        ...

    def is_super_user(self, principal: Principal, /) -> bool: ...

    def standing(self) -> object:
        """Return a value that stays the same object while earlier decisions hold; None while each
        request has to be asked for."""
        ...


@dataclass(slots=True)
class RequestContext:
    """The sender, the listener and the arrival time of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    principal: Principal
    listener: str
    client_host: str
    connection_id: int
    received_ms: int
    """The wall-clock time of arrival in ms, read once for the whole request."""
    inter_broker: bool = False
    """Whether the request arrived on the inter-broker listener. If clients use this listener too,
    its sender also has the client id of a broker and ClusterAction: the gate sees to that."""
    asker: Asker | None = None
    """Answers what the handler asks by itself. None if everything is allowed: the broker has no
    authorizer."""
    charge: Charge | None = None
    """The charge to the client's quotas. None if it has none."""

    @property
    def owner(self) -> str | None:
        """The principal to which transactions of the sender belong; None without an authorizer, and
        for a super user, who may end those of others."""
        if self.asker is None or self.asker.is_super_user(self.principal):
            return None
        return str(self.principal)

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Return whether the sender may perform an operation on a resource."""
        return self.asker is None or self.asker.allows(
            self, operation, resource_type, name, log_denied=log_denied
        )

    def exceeds_quota(self, partitions: int, *, strict: bool) -> KafkaError | None:
        """Charge partitions that are created or deleted; return the error if that is refused."""
        if self.charge is None or partitions <= 0:
            return None
        return self.charge.mutate(partitions, strict=strict)


class Acknowledgement(asyncio.Future[Any]):
    """The future answer of a request that only waits for acknowledgements: the connection's next
    request of the same kind may begin."""


class CloseConnection(Exception):
    """Raised to close the connection instead of a response (a failed Produce with acks=0)."""
