"""The context of a request, for its handler."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

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
    """Whether the request arrived on the inter-broker listener."""
    asker: Asker | None = None
    """Answers what the handler asks by itself. None if everything is allowed: the broker has no
    authorizer."""

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


class Acknowledgement(asyncio.Future[Any]):
    """The future answer of a request that only waits for acknowledgements: the connection's next
    request of the same kind may begin."""


class CloseConnection(Exception):
    """Raised to close the connection instead of an answer (a failed Produce with acks=0)."""
