"""A small blocking client that sends exactly the given bytes, also wrong ones."""

from collections import deque
from contextlib import suppress
from typing import Any

from barnabas.broker.routes import API_TABLE
from barnabas.protocol.apis import FIRST_OWN_KEY, api
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.schema import Api
from tests.support.frames import Client, Closed

__all__ = ["Closed"]

SERVED = tuple(
    sorted(row.api.key for row in API_TABLE if row.clients and row.api.key < FIRST_OWN_KEY)
)
"""The keys of Kafka's APIs that Barnabas serves to clients; its others come with later releases."""

APIS: dict[type, Api] = {api(key).request: api(key) for key in SERVED}


class Connection(Client):
    """One connection; requests may be pipelined, responses arrive in their order."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float = 5) -> None:
        super().__init__(port, host=host, timeout_s=timeout_s)
        self._client_id = client_id
        self._correlation_id = 0
        self._expected: deque[tuple[Api, int, int]] = deque()

    def post(self, request: Any, version: int, *, answered: bool = True) -> None:
        """Send a request; `take` returns its response, if it has one."""
        api = APIS[type(request)]
        self.post_bytes(api, version, encode(request, version), answered=answered)

    def post_bytes(
        self,
        api: Api,
        version: int,
        body: bytes,
        *,
        answered: bool = True,
        answer_version: int | None = None,
    ) -> None:
        """Send a request whose body is already encoded, correctly or not."""
        self._correlation_id += 1
        header = encode_request_header(api.key, version, self._correlation_id, self._client_id)
        if answered:
            answers_in = version if answer_version is None else answer_version
            self._expected.append((api, answers_in, self._correlation_id))
        # If the broker has closed the connection already, `take` raises.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send((len(header) + len(body)).to_bytes(4, "big") + header + body)

    def post_frame(self, api: Api, version: int, frame: bytes, size: int | None = None) -> None:
        """Send header and body as they are, after their size or a wrong one.

        The response is expected to be of `api` and `version`.
        """
        correlation_id = int.from_bytes(frame[4:8], signed=True)
        self._expected.append((api, version, correlation_id))
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send(
                (len(frame) if size is None else size).to_bytes(4, "big", signed=True) + frame
            )

    def take(self) -> Any:
        """Return the response to the oldest unanswered request. Raises Closed if the broker
        disconnected."""
        api, version, correlation_id = self._expected.popleft()
        frame = self.receive()
        answered, offset = decode_response_header(api.key, version, frame)
        assert answered == correlation_id, f"answer to {answered} instead of {correlation_id}"
        return decode(api.response, version, frame, offset)
