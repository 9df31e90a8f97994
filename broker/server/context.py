"""What a handler knows about the request beside its body."""

import asyncio
from dataclasses import dataclass
from typing import Any

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class RequestContext:
    """Who sent a request, over which listener, and when it arrived."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    principal: str
    listener: str
    client_host: str
    connection_id: int
    received_ms: int
    """Wall-clock arrival in milliseconds, read once for the whole request."""
    inter_broker: bool = False
    """Whether it came over the listener that brokers keep for themselves."""


class Acknowledgement(asyncio.Future[Any]):
    """The answer of a request that is carried out, and only has to be acknowledged by others: the
    next one of its kind may begin."""


class CloseConnection(Exception):
    """The peer can only be answered by closing its connection (a failed Produce with acks=0)."""
