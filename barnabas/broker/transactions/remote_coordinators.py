"""The requests to transaction coordinators on other brokers (AddPartitionsToTxn v5, KIP-890).

One request to each broker is in flight, and the next one takes all that gathers meanwhile. It holds
a transactional id once: of two requests the producer with the older epoch is fenced, and with the
same epoch the client of the first one has gone away.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.peers import Then
from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.broker.transactions.request_batcher import (
    ACCEPTED,
    RequestBatcher,
    Requester,
)
from barnabas.broker.transactions.verification_request import (
    VERSION,
    Answers,
    VerificationRequest,
    framing,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from barnabas.protocol.topic_partition import TopicPartition

TRANSACTIONS_PER_REQUEST: Final = 256
TIMEOUT_S: Final = 10.0
"""The longest wait for a response. The coordinator answers sooner, even with slow followers."""
_BEHIND: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""The errors of a coordinator that does not know the topic of a partition yet."""


class RemoteCoordinators:
    """The transaction coordinators on other brokers."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        connect: Callable[[int], Requester],
        *,
        fast: bool = True,
    ) -> None:
        """`connect` returns a new connection to another broker. Without `fast` every request is
        encoded and every response decoded, in tests."""
        self._broker_id = broker_id
        self._cache = cache
        self._connect = connect
        self._fast = fast
        self._channels: dict[int, _VerificationChannel] = {}
        cache.on_change(self._metadata_changed)

    def ask(self, request: VerificationRequest, index: int) -> "Answers | asyncio.Future[Answers]":
        """Ask the leader of a partition of `__transaction_state`; the future never fails.

        Returns NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE at once if no such broker is known.
        """
        known = self._cache.partition(TRANSACTION_STATE, index)
        if known is None or known.leader not in self._cache.brokers:
            return request.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if known.leader == self._broker_id:
            # This broker was elected, or is no longer the leader, and has not received the news
            # yet.
            return request.all_with(ErrorCode.NOT_COORDINATOR)
        channel = self._channels.get(known.leader)
        if channel is None:
            channel = _VerificationChannel(self._connect(known.leader), fast=self._fast)
            self._channels[known.leader] = channel
        return channel.ask(request)

    def _metadata_changed(self) -> None:
        for broker_id, channel in self._channels.items():
            if broker_id not in self._cache.brokers:
                channel.peer.abort()

    async def close(self) -> None:
        """Close the connections: requests that wait are answered with NETWORK_EXCEPTION."""
        await asyncio.gather(*(channel.peer.close() for channel in self._channels.values()))


class _Waiting(NamedTuple):
    request: VerificationRequest
    answer: "asyncio.Future[Answers]"

    def give(self, answers: Answers) -> None:
        # The future is cancelled if the client has disconnected.
        if not self.answer.done():
            self.answer.set_result(answers)

    def give_all(self, code: ErrorCode) -> None:
        self.give(self.request.all_with(code))


class _VerificationChannel:
    """The requests to one broker by transactional id, in the order of their arrival."""

    def __init__(self, peer: Requester, *, fast: bool) -> None:
        self.peer = peer
        self._framing = framing() if fast else None
        self._waiting: dict[str, _Waiting] = {}
        self._batcher = RequestBatcher(self._take, self._send, self._answered)

    def ask(self, request: VerificationRequest) -> "asyncio.Future[Answers]":
        asking = _Waiting(request, asyncio.get_running_loop().create_future())
        older = self._waiting.get(request.transactional_id)
        if older is not None and older.request.producer.epoch > request.producer.epoch:
            asking.give_all(ErrorCode.INVALID_PRODUCER_EPOCH)
            return asking.answer
        if older is not None:
            same = older.request.producer.epoch == request.producer.epoch
            older.give_all(
                ErrorCode.NETWORK_EXCEPTION if same else ErrorCode.INVALID_PRODUCER_EPOCH
            )
        self._waiting[request.transactional_id] = asking
        self._batcher.notify()
        return asking.answer

    def _take(self) -> list[_Waiting] | None:
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < TRANSACTIONS_PER_REQUEST:
            waiting = self._waiting.pop(next(iter(self._waiting)))
            if not waiting.answer.done():
                batch.append(waiting)
        return batch or None

    def _send(self, batch: list[_Waiting], then: Then) -> None:
        requests = [each.request for each in batch]
        if self._framing is None:
            asked = AddPartitionsToTxnRequest(transactions=[each.question() for each in requests])
            self.peer.submit(API, asked, then, version=VERSION, timeout=TIMEOUT_S)
        else:
            frames = self._framing.of(requests)
            self.peer.submit(
                API, frames.request, then, version=VERSION, timeout=TIMEOUT_S, decode=frames.decode
            )

    def _answered(self, batch: list[_Waiting], answer: Any) -> None:
        """Take an AddPartitionsToTxnResponse, ACCEPTED or None."""
        if answer is ACCEPTED:
            for waiting in batch:
                waiting.give_all(ErrorCode.NONE)
        elif answer is None:
            for waiting in batch:
                waiting.give_all(ErrorCode.NETWORK_EXCEPTION)
        elif answer.error_code:
            for waiting in batch:
                waiting.give_all(_for_client(ErrorCode.of(answer.error_code)))
        else:
            received = _answers(answer)
            for waiting in batch:
                waiting.give(_complete(waiting.request, received))


def _answers(answer: AddPartitionsToTxnResponse) -> dict[str, Answers]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(
                each.partition_error_code
            )
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }


def _complete(request: VerificationRequest, received: dict[str, Answers]) -> Answers:
    """Return a response for each partition; NETWORK_EXCEPTION if the response lacks one."""
    answers = request.all_with(ErrorCode.NETWORK_EXCEPTION)
    for partition, code in received.get(request.transactional_id, {}).items():
        if partition in answers:
            answers[partition] = ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _BEHIND else code
    return answers


def _for_client(code: ErrorCode) -> ErrorCode:
    """Return the client's error for the error of a whole request: CLUSTER_AUTHORIZATION_FAILED
    concerns brokers only."""
    refused = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TXN_STATE if refused else code
