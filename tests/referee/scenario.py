"""What a scenario is: a function that talks to one broker through a Peer.

    scenario = Scenarios(API)

    @scenario
    def an_unknown_topic(s: Peer) -> None:
        s.ask(request)

It runs once for the API's lowest, a middle and its highest version, against Kafka and against
Barnabas; what it `ask`ed and what came back is the transcript that must be equal. Names that it
makes by `s.name` are the same on both brokers and its own.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, overload

from barnabas.protocol.schema import Api
from tests.referee.raw import APIS, Closed, Connection

DEADLINE_S = 15.0
"""How long `until` waits for what a broker does in its own time."""

CLOSED = "connection closed"
"""Stands for an answer where the broker hung up."""


@dataclass(slots=True)
class Exchange:
    """One request of a transcript and its answer: a response, or CLOSED."""

    api: Api
    version: int
    answer: Any


class Peer:
    """One of the two brokers, as a scenario sees it; a context manager that ends its connections.

    Attributes:
        version: the version under test of the scenario's API.
        transcript: what was asked and answered, to be compared.
        sent: keys of the requests, those of the setting included. A request that is repeated
            counts once, one that only waits for the setting not at all.
    """

    def __init__(self, host: str, port: int, api: Api, version: int, slug: str) -> None:
        self.api = api
        self.version = version
        self.transcript: list[Exchange] = []
        self.sent: list[int] = []
        self._address = (host, port)
        self._slug = slug
        self._connections: dict[str, Connection] = {}
        self._posted: dict[str, list[tuple[Api, int]]] = {}

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def name(self, suffix: str = "a") -> str:
        """A name for a topic or group that no other scenario uses."""
        return f"{self._slug}-{self.version}-{suffix}"

    def version_of(self, request: Any) -> int:
        """The version under test for the scenario's own API, the highest for any other."""
        api = APIS[type(request)]
        return self.version if api is self.api else api.versions[-1]

    def ask(
        self,
        request: Any,
        *,
        on: str = "main",
        until: Callable[[Any], bool] | None = None,
        pick: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Sends a request, records the answer and returns it (CLOSED when the broker hung up).

        `until` repeats the request until the answer satisfies it or DEADLINE_S passed, and records
        only the last; `pick` cuts out of the answer what belongs to this scenario.
        """
        end = time.monotonic() + DEADLINE_S
        self.sent.append(APIS[type(request)].key)
        while True:
            self._post(request, on)
            exchange = self._take(on)
            answer = exchange.answer
            if until is None or until(answer) or time.monotonic() > end:
                break
            time.sleep(0.01)
        if pick is not None:
            exchange.answer = pick(answer)
        self.transcript.append(exchange)
        return answer

    def do(
        self,
        request: Any,
        *,
        until: Callable[[Any], bool] | None = None,
        on: str = "setting",
        version: int | None = None,
    ) -> Any:
        """Sends a request to set the scene, by default in its highest version; the answer is not
        compared."""
        end = time.monotonic() + DEADLINE_S
        connection = self._connection(on)
        api = APIS[type(request)]
        if until is None:
            self.sent.append(api.key)
        while True:
            connection.post(request, api.versions[-1] if version is None else version)
            answer = connection.take()
            if until is None or until(answer):
                return answer
            assert time.monotonic() < end, f"{api.name} did not settle: {answer}"
            time.sleep(0.01)

    def post(self, request: Any, *, on: str = "main", answered: bool = True) -> None:
        """Sends a request whose answer is taken later, or never comes."""
        self.sent.append(APIS[type(request)].key)
        self._post(request, on, answered=answered)

    def take(self, on: str = "main") -> Any:
        """Records and returns the answer to the oldest posted request."""
        exchange = self._take(on)
        self.transcript.append(exchange)
        return exchange.answer

    def ask_bytes(self, body: bytes, version: int, *, answer_version: int | None = None) -> Any:
        """Sends a body as it is under a version that need not fit, and records the answer."""
        self.sent.append(self.api.key)
        self._posted.setdefault("main", []).append((self.api, version))
        connection = self._connection("main")
        connection.post_bytes(self.api, version, body, answer_version=answer_version)
        return self.take()

    def ask_frame(self, frame: bytes, *, size: int | None = None, version: int = 0) -> Any:
        """Sends header and body as they are, behind a size that need not fit; records the answer.

        It is read in `version`.
        """
        self.sent.append(self.api.key)
        self._posted.setdefault("main", []).append((self.api, self.version))
        self._connection("main").post_frame(self.api, version, frame, size)
        return self.take()

    def _post(self, request: Any, on: str, *, answered: bool = True) -> None:
        api, version = APIS[type(request)], self.version_of(request)
        if answered:
            self._posted.setdefault(on, []).append((api, version))
        self._connection(on).post(request, version, answered=answered)

    def _take(self, on: str) -> Exchange:
        api, version = self._posted[on].pop(0)
        try:
            return Exchange(api, version, self._connection(on).take())
        except Closed:
            self._connections.pop(on).close()
            self._posted.pop(on)
            return Exchange(api, version, CLOSED)

    def _connection(self, on: str) -> Connection:
        if on not in self._connections:
            self._connections[on] = Connection(*self._address, client_id=on)
        return self._connections[on]


Play = Callable[[Peer], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario at one version."""

    api: Api
    play: Play
    version: int

    @property
    def title(self) -> str:
        """What tests and differences call it, without the version."""
        return f"{self.api.name}/{self.play.__name__}"

    @property
    def slug(self) -> str:
        """Prefix of the topics and groups that it makes."""
        return f"{self.api.key}.{self.play.__name__}"

    def __str__(self) -> str:
        return f"{self.title}-v{self.version}"


@dataclass(slots=True)
class Scenarios:
    """The scenarios of one API; called as the decorator that adds one."""

    api: Api
    plays: list[tuple[Play, range]] = field(default_factory=list)

    @overload
    def __call__(self, play: Play) -> Play: ...
    @overload
    def __call__(
        self, *, since: int | None = None, until: int | None = None
    ) -> Callable[[Play], Play]: ...
    def __call__(
        self, play: Play | None = None, *, since: int | None = None, until: int | None = None
    ) -> Play | Callable[[Play], Play]:
        """Adds a scenario, for all versions of the API or those `since` and `until`, inclusive."""
        served = self.api.versions
        first = served[0] if since is None else since
        last = served[-1] if until is None else until

        def add(play: Play) -> Play:
            self.plays.append((play, range(first, last + 1)))
            return play

        return add if play is None else add(play)

    def __iter__(self) -> Iterator[Scenario]:
        for play, versions in self.plays:
            middle = versions[len(versions) // 2]
            for version in sorted({versions[0], middle, versions[-1]}):
                yield Scenario(self.api, play, version)
