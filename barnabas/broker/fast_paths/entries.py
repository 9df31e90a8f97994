"""The common part of fast paths between brokers: requests whose entries repeat.

A request is a list of entries. Its connection remembers the bytes of entries with what they mean,
and serves a request whose entries are all known.
"""

from struct import Struct
from typing import Final, Generic, TypeVar

from barnabas.broker.fast_paths.wire import CONTENT_AT, LENGTH
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.protocol.codec import encode

K = TypeVar("K")
FEW: Final = 16
"""The entries of a request that is served in one step."""
MOST: Final = 1024
"""The entries that a connection remembers."""
COST: Final = 4
"""The requests after which another entry may take the place of one of those."""
_START: Final = Struct(">ii")
_correlation_id: Final = Struct(">4xi").unpack_from


class EntriesFastPath(Generic[K]):
    """The fast path of one connection."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._context: RequestContext | None = None
        """The context of the last request that was remembered. Its connection and its client id
        are those of each request with the same `_head`."""
        self._head = b""
        """The bytes between the correlation id and the entries."""
        self._standing: object = None
        """The rules by which that request was allowed."""
        self._known: dict[bytes, K] = {}
        """The meanings of entries, by their bytes."""
        self._credit = COST

    def _begin(self, data: bytes) -> int:
        """Return the place of the number of entries; 0 if the handler has to serve the request."""
        context = self._context
        if context is None or not data.startswith(self._head, CONTENT_AT):
            return 0
        asker = context.asker
        if asker is not None and (self._standing is None or asker.standing() is not self._standing):
            return 0
        pos = CONTENT_AT + len(self._head)
        if pos >= len(data) or not 1 < data[pos] <= FEW + 1:
            return 0
        return pos

    def _answer(self, data: bytes, parts: list[bytes]) -> list[Part]:
        """Return the answer with these parts behind the correlation id of a request."""
        self._credit += 1
        content = b"".join(parts)
        (correlation_id,) = _correlation_id(data)
        return [_START.pack(LENGTH.size + len(content), correlation_id) + content]

    def _has_room(self, more: int) -> bool:
        """Return whether more entries can be remembered; the others may be forgotten for them.

        A broker with very many different entries would remember each in vain.
        """
        if len(self._known) + more > MOST:
            if self._credit < MOST * COST:
                return False
            self._known.clear()
            self._credit = 0
        return True

    def _remember(self, frame: memoryview, body_at: int, context: RequestContext) -> None:
        """Remember the head of a request whose entries are known."""
        self._context = context
        self._head = bytes(frame[CONTENT_AT:body_at])
        self._standing = None if context.asker is None else context.asker.standing()


def place_of_body(frame: memoryview, request: object, version: int) -> int:
    """Return the place of the body of a request; 0 unless it has the bytes that our encoder makes.

    Only then the entries are certainly where they are expected.
    """
    body = encode(request, version)
    at = len(frame) - len(body)
    return 0 if at < CONTENT_AT or frame[at:] != body else at
