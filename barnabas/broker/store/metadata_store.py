"""The metadata port: a small tree of versioned nodes, modelled on ZooKeeper.

It has all state that brokers must agree on: topics, leaders, configurations, live brokers, the
controller. The end of a session deletes its ephemeral nodes. Every change has a transaction id
(zxid), and zxids only grow.

Callers may rely on this order: a change is atomic and durable before it is answered, all sessions
see changes in the order of their zxids, and a watch is called for a change before or when the
change is answered to the session that made it. A change by another session may be seen late, even
after its owner has announced it: see `catch_up_with_all`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, cast

CHECKS_PER_SESSION: Final = 12
"""The checks of `is_silent` within one session timeout."""
_MAX_SILENCE: Final = 2 / 3
"""Fraction of the session timeout."""
ANY_VERSION = -1
"""Expected version that matches every version."""
UNKNOWN_ZXID = -1
"""Zxid of a transaction whose node was gone before the store could be asked for it."""


class StoreError(Exception):
    """The store refused a request; `path` is the node that caused it."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreError):
    """The node to be created already exists."""


class BadVersion(StoreError):
    """The node's version is not the expected one: another session has changed it."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):
    """The parent of the node to be created is ephemeral."""


class SessionExpired(StoreError):
    """The session has ended and its ephemeral nodes are gone; only `renew` opens another."""


class NotAllowed(StoreError):
    """The store denies the operation: this broker's credentials are missing or wrong."""


class TooLarge(StoreError):
    """The request is larger than the store accepts, which is about a megabyte."""


class StoreUnavailable(StoreError):
    """The store cannot answer now; whether a change took effect is unknown."""


class Stat(NamedTuple):
    """The metadata of a node."""

    version: int
    """Number of times that the data was set."""
    czxid: int
    """Transaction that created the node."""
    mzxid: int
    """Transaction that last set the data."""
    ephemeral_owner: int
    """Session whose end deletes the node; 0 for a persistent node."""
    child_count: int


class CreateResult(NamedTuple):
    """The path of a created node, with its sequence number if it has one, and its first stat."""

    path: str
    stat: Stat


class Create(NamedTuple):
    """Create a node under an existing parent.

    `sequence` appends ten digits that grow with every node created under the same parent.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the transaction unless the node has this version."""

    path: str
    version: int = ANY_VERSION


Op = Create | SetData | Delete | Check
OpResult = CreateResult | Stat | None
"""The result of a Create, of a SetData, and of the other operations."""

Watch = Callable[[str], None]
"""A callback on the event loop, called with the watched path."""


class WatchHandle(Protocol):
    """An active watch."""

    def cancel(self) -> None: ...


class MetadataStore(Protocol):
    """One session with the store.

    Every method raises SessionExpired once the session has ended, and StoreUnavailable while the
    store cannot be reached. A new session begins only when the owner calls `renew`, so no operation
    of an expired session can take effect in the next one.
    """

    @property
    def session_id(self) -> int:
        """The id of the current or last session."""
        ...

    @property
    def session_timeout(self) -> float:
        """Seconds of silence after which the store ends the session; infinite for an embedded
        store."""
        ...

    def silent_for(self) -> float:
        """Return the seconds since the last answered request was sent."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> CreateResult:
        """Create a node. Raises NodeExists, NoNode (no parent), NoChildrenForEphemerals."""
        ...

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Return the data and the stat of a node. Raises NoNode."""
        ...

    async def exists(self, path: str) -> Stat | None: ...

    async def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the children, in order. Raises NoNode."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Set the data of a node. Raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Run all operations or none; later ones see earlier ones. Raises the error of the first
        that fails."""
        ...

    def watch_data(self, path: str, watch: Watch) -> WatchHandle:
        """Call `watch` at the node's creation, changes and deletion, until cancelled.

        The node need not exist. Quick successive changes may cause one call.
        """
        ...

    def watch_children(self, path: str, watch: Watch) -> WatchHandle:
        """Call `watch` when a child is created or deleted, until cancelled. Otherwise as
        `watch_data`."""
        ...

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call back whenever a session ends other than by `close`."""
        ...

    async def renew(self) -> None:
        """Open another session after the last has expired; do nothing while one is alive.

        Watches stay active, and all are called, since any node may have changed. Raises
        SessionExpired after `close`, StoreUnavailable.
        """
        ...

    async def close(self) -> None:
        """End the session at once: its ephemeral nodes are deleted. Idempotent."""
        ...


class SingleOperations(ABC):
    """Base class: each call for a single change is a transaction; see `MetadataStore`."""

    @abstractmethod
    async def multi(self, ops: Sequence[Op]) -> list[OpResult]: ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> CreateResult:
        (result,) = await self.multi((Create(path, data, ephemeral, sequence),))
        return cast(CreateResult, result)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (result,) = await self.multi((SetData(path, data, version),))
        return cast(Stat, result)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi((Delete(path, version),))


def is_silent(store: MetadataStore) -> bool:
    """Return whether the store has not answered for two thirds of the session timeout.

    The session may end soon, and other brokers may then be elected. An embedded store is never
    silent.
    """
    return store.silent_for() > store.session_timeout * _MAX_SILENCE


def parent_of(path: str) -> str:
    """Return the path of the parent; "/" for a top-level node."""
    return path.rpartition("/")[0] or "/"


EndEarlierSession = Callable[[int], Awaitable[bool]]
"""Ends the session with the given id if an earlier run of this broker has left it; returns whether
it did."""


async def no_earlier_session(_session_id: int) -> bool:
    """Return False: sessions of this store end with their process, so none is ever left."""
    return False
