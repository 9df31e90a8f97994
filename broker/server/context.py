"""The context of a request, for its handler."""

import asyncio
from dataclasses import dataclass
from typing import Any

from barnabas.security.principal import Principal


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


class Acknowledgement(asyncio.Future[Any]):
    """The future answer of a request that only waits for acknowledgements: the connection's next
    request of the same kind may begin."""


class CloseConnection(Exception):
    """Raised to close the connection instead of an answer (a failed Produce with acks=0)."""
