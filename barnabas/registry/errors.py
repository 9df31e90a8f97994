"""The errors of the registry and of its formats; the text of each is one line."""

from typing import Final, Literal

Unreadable = Literal["no_schema_id", "unknown_schema_id", "other_schema", "misfit"]
"""Why a record cannot be decoded.

It has no schema id, or one that the registry does not have; its schema is of another kind, another
message, or cannot be used; or it does not fit its schema, or the reader's.
"""


class RegistryError(Exception):
    """A registry that refuses a request or cannot be used; the text is one line."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))


class RegistryAway(RegistryError):
    """A registry that did not answer in `retry.timeout.ms`."""


class UnknownSchema(RegistryError):
    """A schema id, subject or version that the registry does not have."""


class Incompatible(RegistryError):
    """A schema that the registry refuses (409), because it breaks the subject's compatibility."""


class BadSchema(RegistryError):
    """A schema that cannot be used; the text is the reason."""


class BadRecord(Exception):
    """A record that cannot be decoded, or a row that cannot be encoded; the text says why.

    A text that begins with `value` is about the bytes: those of a key too, until it is named.
    """

    def __init__(self, text: str, kind: Unreadable = "misfit") -> None:
        super().__init__(" ".join(text.split()))
        self.kind: Final = kind
