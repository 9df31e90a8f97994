"""The metadata port: a small tree of versioned nodes, shaped like ZooKeeper.

Everything a cluster must agree on goes through here: topics, leaders, configurations, who is alive,
who is the controller. A session that ends takes its ephemeral nodes with it. Every change has a
transaction id (zxid) that only grows.

Ordering that callers may rely on: changes are atomic and durable before they are answered, all
sessions see them in the order of their zxids, and a watch is told of a change not later than the
change is answered to the session that made it. What another session has changed may be seen late,
even after its owner told of it: see `catch_up_with_all`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

ANY_VERSION = -1
"""As an expected version: accept whatever version the node has."""
UNKNOWN_ZXID = -1
"""Of a node that a transaction created, and that had gone when the store was asked about it."""


class StoreError(Exception):
    """A request the store refused; `path` is the node it failed on."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreError):
    """The node to be created is there already."""


class BadVersion(StoreError):
    """The node's version is not the expected one: somebody else was faster."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):
    """The parent of the node to be created is ephemeral."""


class SessionExpired(StoreError):
    """The session has ended; its ephemeral nodes are gone, and it does nothing before `renew`."""


class NotAllowed(StoreError):
    """The store does not let this broker do that: its credentials are missing or others."""


class TooLarge(StoreError):
    """The request holds more than the store takes at once: about a megabyte."""


class StoreUnavailable(StoreError):
    """The store cannot answer now; whether the change took effect is unknown."""


class Stat(NamedTuple):
    """What the store knows about a node beside its data."""

    version: int
    """Number of times the data was set."""
    czxid: int
    """Transaction that created the node."""
    mzxid: int
    """Transaction that last set its data."""
    ephemeral_owner: int
    """Session whose end deletes the node; 0 for a persistent one."""
    child_count: int


class Created(NamedTuple):
    """The name a node got (a sequence number may have been appended) and its first stat."""

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
    """Change nothing, but fail the transaction unless the node has this version."""

    path: str
    version: int = ANY_VERSION


Op = Create | SetData | Delete | Check
OpResult = Created | Stat | None
"""Of a Create, of a SetData, and of the others."""

Watch = Callable[[str], None]
"""Called on the event loop with the watched path."""


class Watching(Protocol):
    """A watch that is set."""

    def cancel(self) -> None: ...


class MetadataStore(Protocol):
    """One session with the store. Every method raises SessionExpired once the session has ended,
    and StoreUnavailable while the store cannot be reached.

    A session that has expired is followed by another one when the owner asks for it (`renew`) and
    not before: nothing that was begun in one session happens in the next.
    """

    @property
    def session_id(self) -> int:
        """Of the session that lives or lived last."""
        ...

    @property
    def session_timeout(self) -> float:
        """Seconds of silence after which the store ends the session; infinite in one process."""
        ...

    def silent_for(self) -> float:
        """Seconds since the beginning of the last thing that the store has answered."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Created:
        """Raises NodeExists, NoNode (no parent), NoChildrenForEphemerals."""
        ...

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Raises NoNode."""
        ...

    async def exists(self, path: str) -> Stat | None: ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) in order. Raises NoNode."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing; later ops see earlier ones. Raises what the first failing op raises."""
        ...

    def watch_data(self, path: str, watch: Watch) -> Watching:
        """Tell of the node's creation, changes and deletion, until cancelled.

        The node need not exist. Changes in quick succession may be told as one.
        """
        ...

    def watch_children(self, path: str, watch: Watch) -> Watching:
        """Tell when a child appears or goes, until cancelled. Otherwise as `watch_data`."""
        ...

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call back whenever a session ends other than by `close`."""
        ...

    async def renew(self) -> None:
        """After a session has expired, begin another; does nothing while one lives.

        Watches stay set, and all are told, since anything may have changed meanwhile. Raises
        SessionExpired after `close`, StoreUnavailable.
        """
        ...

    async def close(self) -> None:
        """End the session at once: its ephemeral nodes are deleted. Idempotent."""
        ...


class ByTransaction(ABC):
    """A store's calls for a single change, each a transaction of its own; see `MetadataStore`."""

    @abstractmethod
    async def multi(self, ops: Sequence[Op]) -> list[OpResult]: ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Created:
        (result,) = await self.multi((Create(path, data, ephemeral, sequence),))
        return cast(Created, result)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (result,) = await self.multi((SetData(path, data, version),))
        return cast(Stat, result)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi((Delete(path, version),))


def parent_of(path: str) -> str:
    """The path of the node above; that of a top-level node is "/"."""
    return path.rpartition("/")[0] or "/"
