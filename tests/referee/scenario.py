"""A scenario: a function that talks to one broker through a Peer.

    scenario = Scenarios(API)

    @scenario
    def an_unknown_topic(s: Peer) -> None:
        s.ask(request)

It runs once for the API's lowest, a middle and its highest version, against Kafka and against
Barnabas; what it `ask`ed and what came back is the transcript that must be equal. Names that it
makes by `s.name` are the same on both brokers and its own, in a second play too: what a test that
failed has left does not decide its rerun.

Scenarios of transactions run at each level of transaction.version, with the versions that clients
use there: what only the newer protocol has (KIP-890) needs level 2, where older clients go on with
older versions.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

from barnabas.protocol.schema import Api
from tests.referee.releases import is_later, is_left_out, last_version, levels_of
from tests.support.raw import APIS, Closed, Connection

LEVELS = (0, 1, 2)
"""The levels of transaction.version."""

NEWER_SINCE = {0: 12, 24: 4, 26: 5, 28: 5}
"""Versions of Produce, AddPartitionsToTxn, EndTxn and TxnOffsetCommit that need level 2 to change
anything: at level 0 Kafka refuses to log what they ask for, and the transactional id is lost."""

CLIENTS_UNTIL = {24: 3}
"""The last version of AddPartitionsToTxn for clients; later ones are for brokers."""

OLDER_ONLY = 25
"""AddOffsetsToTxn: clients of the newer protocol never send it."""

DEADLINE_S = 15.0
"""Seconds that `until` waits for asynchronous work of a broker."""

PLAYS = 2
"""Plays of a scenario at most: a test that fails is run once more (`tests/run`)."""

WORN = "worn"
"""Suffix of a transactional id whose epochs are almost used up."""

CLOSED = "connection closed"
"""The answer in a transcript if the broker closed the connection."""


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
        level: transaction.version of the cluster.
        newer: whether the client under test speaks the newer protocol of transactions.
        transcript: what was asked and answered, to be compared.
        sent: keys of the requests, those of the setting included. A request that is repeated
            counts once, one that only waits for the setting not at all.
    """

    def __init__(
        self, host: str, port: int, api: Api, version: int, slug: str, level: int = 0
    ) -> None:
        self.api = api
        self.version = version
        self.level = level
        self.newer = level == LEVELS[-1] and version == last_version(api) and api.key != OLDER_ONLY
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
        """Return a name for a topic or group that no other scenario uses."""
        return name(self._slug, self.version, suffix)

    def version_of(self, request: Any) -> int:
        """Return the version under test for the scenario's own API, the highest for any other."""
        api = APIS[type(request)]
        return self.version if api is self.api else last_version(api)

    def last_version(self, request: Any) -> int:
        """Return the highest version that a client of the protocol under test uses."""
        api = APIS[type(request)]
        highest = min(CLIENTS_UNTIL.get(api.key, api.versions[-1]), last_version(api))
        return highest if self.newer else min(highest, NEWER_SINCE.get(api.key, highest + 1) - 1)

    def ask(
        self,
        request: Any,
        *,
        on: str = "main",
        until: Callable[[Any], bool] | None = None,
        pick: Callable[[Any], Any] | None = None,
        version: int | None = None,
    ) -> Any:
        """Send a request, record the answer and return it; CLOSED if the broker closed the
        connection.

        `until` repeats the request until the answer satisfies it or DEADLINE_S have passed, and
        records only the last answer; `pick` selects the part of the answer that belongs to this
        scenario.
        """
        end = time.monotonic() + DEADLINE_S
        self.sent.append(APIS[type(request)].key)
        while True:
            self._post(request, on, version)
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
        """Send a request of the setting, by default in its highest version. The answer is not
        compared."""
        end = time.monotonic() + DEADLINE_S
        connection = self._connection(on)
        api = APIS[type(request)]
        if until is None:
            self.sent.append(api.key)
        while True:
            connection.post(request, last_version(api) if version is None else version)
            answer = connection.take()
            if until is None or until(answer):
                return answer
            assert time.monotonic() < end, f"{api.name} did not settle: {answer}"
            time.sleep(0.01)

    def post(self, request: Any, *, on: str = "main", answered: bool = True) -> None:
        """Send a request whose answer is taken later, or never comes."""
        self.sent.append(APIS[type(request)].key)
        self._post(request, on, answered=answered)

    def take(self, on: str = "main") -> Any:
        """Record and return the answer to the oldest posted request."""
        exchange = self._take(on)
        self.transcript.append(exchange)
        return exchange.answer

    def ask_bytes(self, body: bytes, version: int, *, answer_version: int | None = None) -> Any:
        """Send a body unchanged under a version that need not fit, and record the answer."""
        self.sent.append(self.api.key)
        self._posted.setdefault("main", []).append((self.api, version))
        connection = self._connection("main")
        connection.post_bytes(self.api, version, body, answer_version=answer_version)
        return self.take()

    def ask_frame(self, frame: bytes, *, size: int | None = None, version: int = 0) -> Any:
        """Send header and body unchanged, after a size that need not fit; record the answer.

        The answer is read in `version`.
        """
        self.sent.append(self.api.key)
        self._posted.setdefault("main", []).append((self.api, self.version))
        self._connection("main").post_frame(self.api, version, frame, size)
        return self.take()

    def _post(
        self, request: Any, on: str, version: int | None = None, *, answered: bool = True
    ) -> None:
        api = APIS[type(request)]
        version = self.version_of(request) if version is None else version
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


def name(slug: str, version: int, suffix: str) -> str:
    """Return a name for a topic, group or transactional id of one scenario."""
    return f"{slug}-{version}-{suffix}"


Play = Callable[[Peer], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario at one version, and one level of transaction.version.

    Attributes:
        worn: whether both brokers hold transactional ids, `worn_ids`, whose epochs are almost
            used up.
    """

    api: Api
    play: Play
    version: int
    level: int = 0
    worn: bool = False

    @property
    def title(self) -> str:
        """The name in tests and differences, without the version."""
        return f"{self.api.name}/{self.play.__name__}"

    @property
    def slug(self) -> str:
        """The prefix of the names of its topics and groups."""
        slug = f"{self.api.key}.{self.play.__name__}"
        return f"{slug}-at-{self.level}" if self.level else slug

    @property
    def worn_ids(self) -> list[str]:
        """The transactional ids of a scenario with `worn`, one for each play."""
        return [name(self.slug_of(play), self.version, WORN) for play in range(1, PLAYS + 1)]

    def slug_of(self, play: int) -> str:
        """Return the prefix of the names in a play; the first is 1."""
        return self.slug if play == 1 else f"{self.slug}-{play}"

    def peer(self, broker: tuple[str, int], play: int = 1) -> Peer:
        """Return the peer that plays the scenario against a broker."""
        return Peer(*broker, self.api, self.version, self.slug_of(play), self.level)

    def __str__(self) -> str:
        return f"{self.title}-v{self.version}" + (f"-at-{self.level}" if self.level else "")


class Played(NamedTuple):
    """A scenario and the cases in which it is played; see `Scenarios`."""

    play: Play
    versions: range
    worn: bool
    any_level: bool
    key: str


@dataclass(slots=True)
class Scenarios:
    """The scenarios of one API; called as the decorator that adds one.

    Attributes:
        levels: of transaction.version, at which they are played.
        also: further versions at which they are played, where the lowest, the middle and the
            highest one do not show every form of the request.
    """

    api: Api
    levels: tuple[int, ...] = (0,)
    also: frozenset[int] = frozenset()
    plays: list[Played] = field(default_factory=list)

    @overload
    def __call__(self, play: Play) -> Play: ...
    @overload
    def __call__(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        worn: bool = False,
        any_level: bool = False,
        key: str = "",
    ) -> Callable[[Play], Play]: ...
    def __call__(
        self,
        play: Play | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        worn: bool = False,
        any_level: bool = False,
        key: str = "",
    ) -> Play | Callable[[Play], Play]:
        """Add a scenario, for all versions of the API or those from `since` to `until`, inclusive.

        With `any_level` newer versions are played at older levels too. `key` is a key of the
        configuration that the scenario needs.
        """
        served = self.api.versions
        first = served[0] if since is None else since
        last = served[-1] if until is None else until

        def add(play: Play) -> Play:
            self.plays.append(Played(play, range(first, last + 1), worn, any_level, key))
            return play

        return add if play is None else add(play)

    def __iter__(self) -> Iterator[Scenario]:
        for each in self.plays:
            for level in levels_of(self.levels):
                for version in self._versions(each, level):
                    yield Scenario(self.api, each.play, version, level, each.worn)

    def _versions(self, played: Played, level: int) -> list[int]:
        last = min(played.versions[-1], last_version(self.api))
        versions = range(played.versions[0], last + 1)
        title = f"{self.api.name}/{played.play.__name__}"
        if not versions or is_later(played.key) or is_left_out(title):
            return []
        if len(self.levels) > 1 and level < LEVELS[-1] and not played.any_level:
            newer = NEWER_SINCE.get(self.api.key, versions[-1] + 1)
            versions = range(versions[0], min(versions[-1] + 1, newer))
        if not versions:
            return []
        middle = versions[len(versions) // 2]
        if len(self.levels) > 1 and level < LEVELS[-1]:
            # Level 1 differs from 0 only in the coordinator's log, not on the wire.
            return sorted({versions[0] if level == 0 else versions[-1], versions[-1]})
        return sorted({versions[0], middle, versions[-1], *self.also.intersection(versions)})
