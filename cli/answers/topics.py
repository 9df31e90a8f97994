"""The JSON answers of `barnabas topics`."""

from typing import Any, Final

from barnabas.cli.answers.model import Answer


class Topic(Answer):
    """A topic of the cluster."""

    topic: str
    partitions: int
    replicas: int
    """The largest number of replicas of one of its partitions."""
    id: str
    """The topic id (KIP-516), in URL-safe base64."""


ANSWERS: Final[dict[str, Any]] = {"topics list": list[Topic]}
