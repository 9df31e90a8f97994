"""Automatic topic creation: topics that clients ask for, and internal topics."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.internal_topics import InternalTopic
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError

_TIMEOUT = 30.0
"""Seconds until a creation that was not begun is given up."""
_log = get_logger(__name__)


class CreateTopicsClient(Protocol):
    """The controller, or a client of it."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float
    ) -> dict[str, CreatedTopic | KafkaError]: ...


class TopicCreator:
    """The creator of topics that do not exist yet."""

    def __init__(
        self,
        controller: CreateTopicsClient,
        cache: MetadataCache,
        internal: Mapping[str, Callable[[], InternalTopic]],
        slicer: Slicer,
    ) -> None:
        """`internal` has the settings, by name, of the internal topics that this broker uses."""
        self._controller = controller
        self._cache = cache
        self._internal = internal
        self._slicer = slicer

    async def create(self, names: Iterable[str]) -> None:
        """Create topics with default settings; a topic that cannot be created stays unknown."""
        new = []
        async for name in self._slicer.each(names):
            if name in self._internal:
                try:
                    await self.ensure_internal_topic(name)
                except KafkaError as error:
                    _log.warning("internal topic not created", topic=name, reason=str(error))
            elif name not in INTERNAL_TOPICS:
                new.append(NewTopic(name))
        refused: dict[str, list[str]] = defaultdict(list)
        try:
            answers = await self._controller.create_topics(new, timeout=_TIMEOUT) if new else {}
        except KafkaError as error:
            refused[str(error)] = [topic.name for topic in new]
            answers = {}
        async for name, answer in self._slicer.each(answers.items()):
            if isinstance(answer, KafkaError):
                refused[str(answer)].append(name)
        async for reason, unmade in self._slicer.each(refused.items()):
            # One request may name 100,000 topics.
            _log.info("topics not created", topics=unmade[:10], count=len(unmade), reason=reason)

    async def ensure_internal_topic(self, name: str) -> None:
        """Return once the topic exists. If another broker has created it, this broker's metadata
        may show it a moment later.

        Raises COORDINATOR_NOT_AVAILABLE, which clients retry, while the topic cannot be created
        with its full replication factor.
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
