"""The tree of the embedded store, pure, with one code path for live and replayed changes.

A transaction is first *staged*: checked against the tree and computed without changing it. Once its
operations are durable, the staged result is *installed*. A replay of the journal does the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.broker.store.metadata_store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    CreateResult,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
    Stat,
    parent_of,
)


class TreeNode(NamedTuple):
    """An immutable version of a node."""

    data: bytes = b""
    version: int = 0
    czxid: int = 0
    mzxid: int = 0
    ephemeral_owner: int = 0
    child_count: int = 0
    next_sequence: int = 0

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.ephemeral_owner, self.child_count)


@dataclass(slots=True)
class StagedTransaction:
    """A checked transaction: its effect on nodes, and the paths to notify."""

    zxid: int
    owner: int
    ops: list[Op] = field(default_factory=list)
    results: list[OpResult] = field(default_factory=list)
    nodes: dict[str, TreeNode | None] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    """Paths whose node was created, set or deleted, in order."""
    children_changed: dict[str, None] = field(default_factory=dict)


class Tree:
    """The nodes by path. The root always exists."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes: dict[str, TreeNode] = {"/": TreeNode()}
        self._children: dict[str, set[str]] = {}

    def node(self, path: str) -> TreeNode:
        """Return a node. Raises NoNode."""
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNode(path) from None

    def find(self, path: str) -> TreeNode | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        self.node(path)
        return sorted(self._children.get(path, ()))

    def ephemerals(self, owner: int | None = None) -> list[str]:
        """Return the paths of the ephemeral nodes of one session, or of all."""
        return [
            path
            for path, node in self._nodes.items()
            if node.ephemeral_owner and owner in (None, node.ephemeral_owner)
        ]

    def items(self) -> Iterator[tuple[str, TreeNode]]:
        """Return every node, parents before children."""
        return iter(sorted(self._nodes.items()))

    def load(self, zxid: int, nodes: dict[str, TreeNode]) -> None:
        """Replace the tree by the content of a snapshot."""
        self.zxid = zxid
        self._nodes = nodes
        self._children = {}
        for path in nodes:
            if path != "/":
                self._children.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])

    def stage(self, ops: Sequence[Op], owner: int) -> StagedTransaction:
        """Stage a transaction; raise the error of its first failing operation."""
        staged = StagedTransaction(self.zxid + 1, owner)
        for op in ops:
            match op:
                case Create():
                    self._stage_create(staged, op)
                case SetData():
                    node = self._expect(staged, op.path, op.version)
                    node = node._replace(data=op.data, version=node.version + 1, mzxid=staged.zxid)
                    staged.nodes[op.path] = node
                    staged.changed[op.path] = None
                    staged.ops.append(SetData(op.path, op.data))
                    staged.results.append(node.stat)
                case Delete():
                    self._stage_delete(staged, op)
                case Check():
                    self._expect(staged, op.path, op.version)
                    staged.results.append(None)
        return staged

    def install(self, staged: StagedTransaction) -> None:
        """Apply a staged transaction. No other may have been installed since it was staged."""
        assert staged.zxid == self.zxid + 1
        self.zxid = staged.zxid
        for path, node in staged.nodes.items():
            parent, _, name = path.rpartition("/")
            if node is None:
                # The transaction created and deleted the node, so it never existed.
                self._nodes.pop(path, None)
                self._children.get(parent or "/", set()).discard(name)
                continue
            self._nodes[path] = node
            if name:
                self._children.setdefault(parent or "/", set()).add(name)

    def _stage_create(self, staged: StagedTransaction, op: Create) -> None:
        check_path(op.path)
        parent_path = parent_of(op.path)
        parent = self._staged_node(staged, parent_path)
        if parent is None:
            raise NoNode(op.path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(op.path)
        path = f"{op.path}{parent.next_sequence:010d}" if op.sequence else op.path
        if self._staged_node(staged, path) is not None:
            raise NodeExists(path)
        owner = staged.owner if op.ephemeral else 0
        node = TreeNode(op.data, 0, staged.zxid, staged.zxid, owner)
        staged.nodes[path] = node
        staged.nodes[parent_path] = parent._replace(
            child_count=parent.child_count + 1, next_sequence=parent.next_sequence + 1
        )
        staged.changed[path] = None
        staged.children_changed[parent_path] = None
        staged.ops.append(Create(path, op.data, op.ephemeral))
        staged.results.append(CreateResult(path, node.stat))

    def _stage_delete(self, staged: StagedTransaction, op: Delete) -> None:
        node = self._expect(staged, op.path, op.version)
        if node.child_count or op.path == "/":
            raise NotEmpty(op.path)
        parent_path = parent_of(op.path)
        parent = self._staged_node(staged, parent_path)
        assert parent is not None
        staged.nodes[op.path] = None
        staged.nodes[parent_path] = parent._replace(child_count=parent.child_count - 1)
        staged.changed[op.path] = None
        staged.children_changed[parent_path] = None
        staged.ops.append(Delete(op.path))
        staged.results.append(None)

    def _staged_node(self, staged: StagedTransaction, path: str) -> TreeNode | None:
        if path in staged.nodes:
            return staged.nodes[path]
        return self._nodes.get(path)

    def _expect(self, staged: StagedTransaction, path: str, version: int) -> TreeNode:
        node = self._staged_node(staged, path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node


def check_path(path: str) -> None:
    """Raise ValueError for an invalid path: not absolute, empty, "." or ".." parts, NUL."""
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or "\0" in path:
        raise ValueError(f"not a path: {path!r}")
    if any(part in ("", ".", "..") for part in parts[1:]):
        raise ValueError(f"not a path: {path!r}")
