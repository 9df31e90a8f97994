"""The parts of a SASL exchange. Each mechanism has its two sides as generators without I/O.

A server is called with the client's first message. It yields a `Challenge` and is sent the client's
next message, or yields `OffLoop` or `Await` and is sent the result; an error is thrown into it. It
returns `Authenticated`, or raises `AuthenticationFailed`.

A client yields a message and is sent the server's answer, or yields `OffLoop` and is sent its
result. It returns after the last answer if the server has proved what the mechanism lets it prove,
and raises `AuthenticationFailed` otherwise.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final, Self

from barnabas.security.principal import Principal

MAX_MESSAGE: Final = 16 << 10
"""Bytes that a message of PLAIN or SCRAM may have, far above every user name and password."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """A message to the client, which has to answer it."""

    data: bytes


@dataclass(frozen=True, slots=True)
class OffLoop:
    """Work that would hold an event loop: a function for a thread."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Await:
    """A result that others may wait for too, such as a fetch of keys."""

    awaitable: Awaitable[Any]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The outcome of a successful exchange, and the last message to the client."""

    principal: Principal
    answer: bytes = b""
    expires_ms: int | None = None
    """The end of the credential, in ms since the epoch; None if it has none (KIP-368)."""
    by_token: bool = False
    """Whether a delegation token was used: it cannot get further tokens (KIP-48)."""
    extensions: dict[str, str] = field(default_factory=dict)


class AuthenticationFailed(Exception):
    """A refused authentication. The text is for the log; it never contains a secret.

    As in Kafka, a client is told nothing but the text `told`. Without one it gets one general text,
    because the reason could tell whether a user exists.
    """

    def __init__(self, reason: str, *, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told

    @classmethod
    def public(cls, reason: str) -> Self:
        """Return a failure whose reason the client is told."""
        return cls(reason, told=reason)

    def answer(self, mechanism: str, *, again: bool = False) -> str:
        """Return Kafka's text for the client; `again` if it authenticated before (KIP-368)."""
        if self.told is not None:
            return self.told
        during = "re-authentication" if again else "authentication"
        return (
            f"Authentication failed during {during} due to invalid credentials "
            f"with SASL mechanism {mechanism}"
        )


ServerExchange = Generator[Challenge | OffLoop | Await, Any, Authenticated]
ClientExchange = Generator[bytes | OffLoop, Any, None]


def decode(message: bytes, limit: int = MAX_MESSAGE) -> str:
    """Return the text of a message; raise AuthenticationFailed if it is too long or not UTF-8."""
    if len(message) > limit:
        raise AuthenticationFailed("the message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the message is not UTF-8") from None
