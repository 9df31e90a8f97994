"""Topics that nobody creates by hand: those that asking creates, and the brokers' own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.broker.controller.topics import CreatedTopic, NewTopic
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError

_TIMEOUT = 30.0
"""Seconds after which a creation that had no turn is given up."""
_log = get_logger(__name__)


class InternalTopic(NamedTuple):
    """How the brokers want a topic of their own."""

    num_partitions: int
    replication_factor: int
    configs: dict[str, str]


class CreatesTopics(Protocol):
    """The controller, or the way to it."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float
    ) -> dict[str, CreatedTopic | KafkaError]: ...


class TopicCreator:
    """Sees to it that topics exist."""

    def __init__(
        self,
        controller: CreatesTopics,
        cache: MetadataCache,
        internal: Mapping[str, Callable[[], InternalTopic]],
    ) -> None:
        """`internal` describes, by name, the internal topics that this broker's parts use."""
        self._controller = controller
        self._cache = cache
        self._internal = internal

    async def create(self, names: Iterable[str]) -> None:
        """Make topics with default settings; what cannot be made stays unknown."""
        new = []
        for name in names:
            if name in self._internal:
                try:
                    await self.ensure_internal_topic(name)
                except KafkaError as error:
                    _log.warning("internal topic not created", topic=name, reason=str(error))
            elif name not in INTERNAL_TOPICS:
                new.append(NewTopic(name))
        try:
            answers = await self._controller.create_topics(new, timeout=_TIMEOUT) if new else {}
        except KafkaError as error:
            answers = {topic.name: error for topic in new}
        for name, answer in answers.items():
            if isinstance(answer, KafkaError):
                _log.info("topic not created", topic=name, reason=str(answer))

    async def ensure_internal_topic(self, name: str) -> None:
        """Return once the topic exists; where another broker has made it, this one may hear of it
        a moment later.

        Raises COORDINATOR_NOT_AVAILABLE, which clients retry, while it cannot be made: not with
        fewer replicas than it is meant to have.
        """
        if self._cache.topic(name) is not None:
            return
        wanted = self._internal[name]()
        new = NewTopic(
            name,
            wanted.num_partitions,
            wanted.replication_factor,
            configs=dict(wanted.configs),
            internal=True,
        )
        try:
            answer = (await self._controller.create_topics([new], timeout=_TIMEOUT))[name]
        except KafkaError as error:
            answer = error
        if isinstance(answer, KafkaError) and answer.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Topic '{name}' cannot be made: {answer}"
            )
