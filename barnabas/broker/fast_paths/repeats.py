"""The fast path of AddPartitionsToTxn and EndTxn: requests that repeat but for a correlation id.

A producer of the older protocol adds the same partitions to each transaction, and ends it in one of
two ways, so its requests repeat byte for byte. What the handler has made of the first one is
remembered, with the bytes of the answer. The coordinator decides each time. Everything else that
may change is asked for each time too: the partitions in the metadata, the rules of the authorizer,
and whether the coordinator can decide and commit at once.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.broker.fast_paths.wire import CONTENT_AT, LENGTH, answer_header
from barnabas.broker.handlers import add_partitions_to_txn, end_txn
from barnabas.broker.server.context import Asker, RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.protocol.codec import encode
from barnabas.protocol.schema import Api

LARGEST: Final = 1024
"""The bytes of a request that is remembered at most."""
MOST: Final = 16
"""The requests that a connection remembers."""
COST: Final = 32
"""The requests after which another one may take the place of those."""
_START: Final = Struct(">ii")
"""The length and the correlation id of an answer."""
_correlation_id: Final = Struct(">4xi").unpack_from
Again = Callable[[], bool]
"""Serves a request once more, if that is certain; otherwise returns False and changes nothing."""
Remember = Callable[[Any, RequestContext, Any], Again | None]
"""Returns how to serve a request again that the handler has answered; None if it may not repeat."""


class _Known(NamedTuple):
    """A request that the connection has sent."""

    again: Again
    asker: Asker | None
    standing: object
    """The rules by which the request was allowed."""
    answer: bytes
    """The answer's bytes behind the correlation id."""


class RepeatFastPath:
    """The fast path of one connection, API and version."""

    __slots__ = ("_api", "_credit", "_known", "_remember", "_version")

    def __init__(self, api: Api, remember: Remember, version: int) -> None:
        self._api = api
        self._remember = remember
        self._version = version
        self._known: dict[bytes, _Known] = {}
        """The requests by their bytes behind the correlation id."""
        self._credit = COST

    def serve(self, frame: memoryview, _received_ms: int) -> list[Part] | None:
        """Serve a request that is certainly carried out at once; return the answer, else None."""
        known = self._known.get(bytes(frame[CONTENT_AT:]))
        if known is None:
            return None
        again, asker, standing, answer = known
        if asker is not None and (standing is None or asker.standing() is not standing):
            return None
        if not again():
            return None
        self._credit += 1
        (correlation_id,) = _correlation_id(frame)
        return [_START.pack(LENGTH.size + len(answer), correlation_id) + answer]

    def learn(
        self, frame: memoryview, request: Any, context: RequestContext, response: Any
    ) -> None:
        """Remember a request that the handler has carried out."""
        self._credit += 1
        if len(frame) > LARGEST:
            return
        asker, content = context.asker, bytes(frame[CONTENT_AT:])
        standing = None if asker is None else asker.standing()
        known = self._known.get(content)
        if known is not None and known.standing is standing:
            return
        again = self._remember(request, context, response)
        if again is None:
            return
        if known is None and len(self._known) >= MOST:
            # A connection that always sends other requests would remember each in vain.
            if self._credit < MOST * COST:
                return
            self._known.clear()
            self._credit = 0
        answer = answer_header(self._api, self._version) + encode(response, self._version)
        self._known[content] = _Known(again, asker, standing, answer)


def added_again(parts: add_partitions_to_txn.Parts) -> Remember:
    """Return how AddPartitionsToTxn of clients is served again."""
    transactions, partition_of = parts.transactions, parts.cache.partition

    def remember(request: Any, context: RequestContext, response: Any) -> Again | None:
        asked = add_partitions_to_txn.repeatable(request, context, response)
        if asked is None:
            return None
        partitions = tuple(asked.partitions)

        def again() -> bool:
            for topic, index in partitions:
                if partition_of(topic, index) is None:
                    return False
            return transactions.add_partitions_at_once(asked)

        return again

    return remember


def ended_again(transactions: TransactionCoordinator) -> Remember:
    """Return how EndTxn is served again."""

    def remember(request: Any, context: RequestContext, response: Any) -> Again | None:
        asked = end_txn.repeatable(request, context, response)
        return None if asked is None else lambda: transactions.end_at_once(asked)

    return remember
