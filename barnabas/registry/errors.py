"""The errors of the registry and of its formats; the text of each is one line."""


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
    """A record that cannot be decoded, or a row that cannot be encoded; the text is the reason."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))
