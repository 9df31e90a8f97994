"""What a handler knows about the request beside its body."""

from dataclasses import dataclass

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


class CloseConnection(Exception):
    """The peer can only be answered by closing its connection (a failed Produce with acks=0)."""
