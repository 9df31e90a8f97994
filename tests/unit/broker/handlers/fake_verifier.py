"""A transaction coordinator whose answers the test controls."""

import asyncio
from collections.abc import Sequence
from typing import Any

from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition


class FakeVerifier:
    """The coordinator's answer, at once or later."""

    def __init__(self) -> None:
        self.verifies = True
        self.code = ErrorCode.NONE
        self.later: asyncio.Future[dict[TopicPartition, ErrorCode]] | None = None
        self.asked: list[tuple[str, Producer, list[TopicPartition], bool]] = []

    def ask(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        principal: str | None = None,
    ) -> Any:
        assert principal is None, "there is no authorizer"
        self.asked.append((transactional_id, producer, list(partitions), adds))
        return self.later or dict.fromkeys(partitions, self.code)

    def hold(self) -> None:
        self.later = asyncio.get_running_loop().create_future()

    def say(self, code: ErrorCode = ErrorCode.NONE) -> None:
        assert self.later is not None
        later, self.later = self.later, None
        (_, _, partitions, _) = self.asked[-1]
        later.set_result(dict.fromkeys(partitions, code))
