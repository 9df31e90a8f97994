"""The answer to a commit of offsets, of which the coordinator is asked for a part only."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any, Generic, TypeVar

from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import KafkaError, downgrade
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
)

R = TypeVar("R", OffsetCommitResponse, TxnOffsetCommitResponse)
P = TypeVar("P", OffsetCommitRequestPartition, TxnOffsetCommitRequestPartition)


class CommitAnswer(Generic[R]):
    """The response as far as it is known, and what of it is still to be told."""

    def __init__(self, response: R, api_key: int, version: int) -> None:
        self.response: R = response
        self._api_key = api_key
        self._version = version
        self._open: list[Any] = []

    def choose(
        self, partitions: Sequence[P], answers: Sequence[Any], known: Container[int]
    ) -> list[P]:
        """The partitions that exist: to be asked for. The others keep the error in `answers`."""
        chosen = []
        for asked, answer in zip(partitions, answers, strict=True):
            if asked.partition_index in known:
                chosen.append(asked)
                self._open.append(answer)
        return chosen

    def complete(self, ask: Callable[[], Soon[R]]) -> Soon[R]:
        """The whole response; `ask` answers for the chosen partitions, in their order."""
        try:
            answer = ask()
        except KafkaError as error:
            return self._failed(error)
        if isinstance(answer, asyncio.Future):
            return asyncio.ensure_future(self._settled(answer))
        return self._answered(answer)

    async def _settled(self, answer: "asyncio.Future[R]") -> R:
        try:
            return self._answered(await answer)
        except KafkaError as error:
            return self._failed(error)

    def _answered(self, answer: R) -> R:
        told = (partition for topic in answer.topics for partition in topic.partitions)
        for slot, partition in zip(self._open, told, strict=True):
            slot.error_code = partition.error_code
        return self.response

    def _failed(self, error: KafkaError) -> R:
        """One error for all that was asked for."""
        for slot in self._open:
            slot.error_code = downgrade(self._api_key, self._version, error.code)
        return self.response
