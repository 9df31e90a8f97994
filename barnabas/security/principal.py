"""Principals: the identities that rules, quotas and transactions name."""

from typing import Final, NamedTuple, Self

USER: Final = "User"
"""The type of every principal that Kafka's mechanisms and certificates give."""


class Principal(NamedTuple):
    """A type and a name, compared exactly. Its text is `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `type:name`; the name may contain colons. Raise ValueError with Kafka's text."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(
                f"expected a string in format principalType:principalName but got {text}"
            )
        return cls(kind, name)


class TokenPrincipal(Principal):
    """A principal that logged in with a delegation token: equal to the same one without it."""

    __slots__ = ()


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a connection without authentication."""
