"""A file system in memory that remembers what was synced, and forgets the rest in a crash.

    bytes    durable after `File.sync`; each unsynced write may be lost, kept or torn by itself
    names    durable after `Files.sync_dir`; a crash loses all others from some point on, in the
             order in which they were made, as a journalling file system does
    faults   any call can be made to fail (`Fault`); a later sync does not save the bytes of a
             failed one, because Linux marks their pages clean
    limit    files that stay open may be limited, as descriptors are (`most_kept`)

The same seed produces the same crash.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from barnabas.protocol.records.varint import Buffer


@dataclass(slots=True)
class Fault:
    """A fault: the `nth` call of `call` on a path that ends with `suffix` fails, or all from it
    on."""

    call: str
    """`open`, `append`, `read`, `truncate`, `sync`, `sync_dir`, `rename`, `unlink`, `make_dir`,
    `reserve`, `give_back`."""
    suffix: str = ""
    nth: int = 1
    error: int = errno.EIO
    from_then_on: bool = False
    written: int = 0
    """Bytes of a failing append that reach the file nevertheless."""
    seen: int = 0
    hits: int = 0
    """Number of calls that failed so far."""

    def strikes(self, call: str, path: str) -> bool:
        """Count a call, and return whether it fails."""
        if call != self.call or not path.endswith(self.suffix):
            return False
        self.seen += 1
        struck = self.seen == self.nth or (self.from_then_on and self.seen > self.nth)
        self.hits += struck
        return struck


class _Content:
    """The bytes of a file, as processes see them and as a crash would leave them."""

    __slots__ = ("data", "durable", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # Changes that are not durable yet, in order: bytes at a position, or None for a truncation.
        self.pending: list[tuple[int, bytes | None]] = []

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, *change)
        self.pending.clear()

    def crash(self, rng: Random, mode: str) -> None:
        for position, data in self.pending:
            if mode == "keep all" or (mode == "some" and rng.random() < 0.5):
                if data is not None and mode == "some" and rng.random() < 0.5:
                    data = data[: rng.randrange(len(data) + 1)]
                _apply(self.durable, position, data)
        self.pending.clear()
        self.data = bytearray(self.durable)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
    else:
        # The bytes in between were lost: a hole reads as zeros.
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


_Node = _Content | None
"""The target of a path: a file, or None for a directory."""


class MemFile:
    """An open file in memory; see `barnabas.storage.files.files.File`."""

    __slots__ = ("_content", "_crashes", "_files", "path")

    def __init__(self, files: "MemFiles", path: str, content: _Content) -> None:
        self.path = path
        self._files = files
        self._content = content
        self._crashes = files.crashes
        files.open_count += 1

    def __del__(self) -> None:
        self._files.open_count -= 1

    def size(self) -> int:
        return len(self._content.data)

    def append(self, data: Buffer) -> None:
        fault = self._struck("append")
        kept = bytes(data) if fault is None else bytes(data[: fault.written])
        content = self._content
        content.pending.append((len(content.data), kept))
        content.data += kept
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self.path)

    def read(self, length: int, offset: int) -> bytes:
        self._check("read")
        return bytes(self._content.data[offset : offset + length])

    def read_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        return self.read(length, offset)

    def send(self, socket: int, length: int, offset: int) -> int | None:  # noqa: ARG002
        return None

    def truncate(self, size: int) -> None:
        self._check("truncate")
        if size != len(self._content.data):
            self._content.pending.append((size, None))
            _apply(self._content.data, size, None)

    def sync(self) -> None:
        fault = self._struck("sync")
        if fault is not None:
            self._content.pending.clear()
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        self._content.sync()

    def reserve(self, size: int) -> None:  # noqa: ARG002
        self._check("reserve")

    def give_back(self) -> None:
        self._check("give_back")

    def _struck(self, call: str) -> Fault | None:
        # A process that a crash has ended must not act any more.
        assert self._crashes == self._files.crashes, "a file was used after a crash"
        return self._files.strike(call, self.path)

    def _check(self, call: str) -> None:
        fault = self._struck(call)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self.path)


class _MemLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemFiles:
    """See `barnabas.storage.files.files.Files`. Paths are absolute, `/` exists."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.crashes = 0
        self.open_count = 0
        """The number of open files."""
        self.most_kept: int | None = None
        """The number of open files from which on `open_to_keep` fails; None for no limit."""
        self._nodes: dict[str, _Node] = {"/": None}
        # The paths in `_nodes` by directory, in order.
        self._entries: dict[str, dict[str, None]] = {}
        self._durable: dict[str, _Node] = {"/": None}
        # Names that are not durable yet, in order: removed paths, then added ones.
        self._pending: list[tuple[list[str], dict[str, _Node]]] = []
        self._held: set[str] = set()

    def crash(self, seed: int) -> None:
        """Lose power: what is not durable is lost, kept or torn, as `seed` decides.

        Open files are unusable afterwards.
        """
        rng = Random(seed)
        mode = rng.choice(("keep none", "keep all", "some", "some"))
        kept = {"keep none": 0, "keep all": len(self._pending)}.get(mode)
        for change in self._pending[: rng.randint(0, len(self._pending)) if kept is None else kept]:
            _rename_nodes(self._durable, *change)
        self._pending.clear()
        for node in dict.fromkeys(self._durable.values()):
            if node is not None:
                node.crash(rng, mode)
        self._nodes = dict(self._durable)
        self._entries = {}
        self._enter(self._nodes)
        self.kill()

    def kill(self) -> None:
        """Kill the process but not the machine: locks are free, open files unusable."""
        self._held.clear()
        self.crashes += 1

    def strike(self, call: str, path: str) -> Fault | None:
        """Count a call, and return the fault that makes it fail."""
        struck = [fault for fault in self.faults if fault.strikes(call, path)]
        return struck[0] if struck else None

    def open(self, path: str, *, create: bool = False) -> MemFile:
        self._check("open", path)
        if path not in self._nodes and create:
            self._require(os.path.dirname(path))
            self._change([], {path: _Content()})
        content = self._require(path)
        if content is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return MemFile(self, path, content)

    def open_to_keep(self, path: str) -> MemFile:
        if self.most_kept is not None and self.open_count >= self.most_kept:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return self.open(path)

    def restrict(self, path: str) -> None:
        """Do nothing: there are no other users."""
        self._require(path)

    def exists(self, path: str) -> bool:
        return path in self._nodes

    def size(self, path: str) -> int:
        content = self._require(path)
        return 0 if content is None else len(content.data)

    def read_bytes(self, path: str) -> bytes:
        file = self.open(path)
        return file.read(file.size(), 0)

    def listdir(self, path: str) -> list[str]:
        self._require(path)
        return sorted(map(os.path.basename, self._entries.get(path.rstrip("/") or "/", ())))

    def is_dir(self, path: str) -> bool:
        return path in self._nodes and self._nodes[path] is None

    def make_dir(self, path: str) -> None:
        self._check("make_dir", path)
        self._require(os.path.dirname(path))
        if path in self._nodes:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._change([], {path: None})

    def rename(self, source: str, target: str) -> None:
        self._check("rename", source)
        self._require(source)
        self._require(os.path.dirname(target))
        moved = self._tree(source)
        self._change(list(moved), {target + path[len(source) :]: moved[path] for path in moved})

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        if self._require(path) is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._change([path], {})

    def remove_tree(self, path: str) -> None:
        self._check("unlink", path)
        self._require(path)
        self._change(list(self._tree(path)), {})

    def sync_dir(self, path: str) -> None:
        self._check("sync_dir", path)
        self._require(path)
        # A journal is written in order: earlier changes of other directories become durable too.
        touched = [i for i, change in enumerate(self._pending) if _touches(change, path)]
        done = touched[-1] + 1 if touched else 0
        for change in self._pending[:done]:
            _rename_nodes(self._durable, *change)
        del self._pending[:done]

    def lock(self, path: str) -> _MemLock:
        self.open(path, create=True)
        if path in self._held:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self._held.add(path)
        return _MemLock(self._held, path)

    def space(self, path: str) -> tuple[int, int]:
        self._require(path)
        used = sum(len(node.data) for node in self._nodes.values() if node is not None)
        return 1 << 40, (1 << 40) - used

    def most_open(self) -> int | None:
        return self.most_kept

    def _check(self, call: str, path: str) -> None:
        fault = self.strike(call, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def _require(self, path: str) -> _Node:
        if path not in self._nodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._nodes[path]

    def _tree(self, path: str) -> dict[str, _Node]:
        tree = {path: self._nodes[path]}
        for below in self._entries.get(path, ()):
            tree |= self._tree(below)
        return tree

    def _change(self, removed: list[str], added: dict[str, _Node]) -> None:
        _rename_nodes(self._nodes, removed, added)
        for path in removed:
            del self._entries[os.path.dirname(path)][path]
        self._enter(added)
        self._pending.append((removed, added))

    def _enter(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path != "/":
                self._entries.setdefault(os.path.dirname(path), {})[path] = None


def _rename_nodes(nodes: dict[str, _Node], removed: list[str], added: dict[str, _Node]) -> None:
    for path in removed:
        del nodes[path]
    nodes.update(added)


def _touches(change: tuple[list[str], dict[str, _Node]], directory: str) -> bool:
    removed, added = change
    return any(os.path.dirname(path) == directory for path in (*removed, *added))
