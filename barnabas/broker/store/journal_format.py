"""The byte format of the embedded store's journal (format 1); pure.

A journal is a header, a snapshot of the tree, and the transactions after it:

    header:       "BRNBMETA" int16 format
    frame:        marker int32 | length int32 | crc-32c of the payload | payload
    snapshot:     int8 0 | zxid int64 | count int32 | nodes
    transaction:  int8 1 | zxid int64 | session int64 | count int32 | operations

Only the last frame can be torn: each frame is durable before the next is written. The first frame
never is, because a new journal is complete before it gets its name. A broken frame before a valid
one is damage, and reading fails.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.broker.store.metadata_store import Create, Delete, Op, SetData
from barnabas.broker.store.tree import StagedTransaction, Tree, TreeNode
from barnabas.protocol.records.checksum import crc32c

FORMAT = 1
_MAGIC = b"BRNBMETA"
_HEADER = struct.Struct(">8sH")
_MARKER = b"\xf7\x9dTx"
_FRAME = struct.Struct(">4sII")
_SNAPSHOT, _TRANSACTION = 0, 1
_SNAPSHOT_HEAD = struct.Struct(">bqI")
_TRANSACTION_HEAD = struct.Struct(">bqqI")
_NODE = struct.Struct(">iqqqiiI")
_LENGTH = struct.Struct(">I")
_PATH = struct.Struct(">H")
_CREATE, _CREATE_EPHEMERAL, _SET, _DELETE = 1, 2, 3, 4


class JournalError(Exception):
    """The journal is damaged, or a newer Barnabas has written it."""


class JournalTransaction(NamedTuple):
    zxid: int
    owner: int
    ops: list[Op]


def encode_header() -> bytes:
    return _HEADER.pack(_MAGIC, FORMAT)


def check_header(data: bytes) -> int:
    """Return the length of the header; raise JournalError unless this code can read the journal."""
    if len(data) < _HEADER.size:
        raise JournalError("the metadata journal is shorter than its header")
    magic, version = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise JournalError("the file is not a metadata journal")
    if version > FORMAT:
        raise JournalError(
            f"the metadata journal has format {version}, this version of Barnabas reads formats "
            f"up to {FORMAT}: start the newer version that wrote it"
        )
    return _HEADER.size


def encode_snapshot(tree: Tree) -> bytes:
    """Return a frame with all nodes."""
    parts = []
    count = 0
    for path, node in tree.items():
        count += 1
        parts.append(_encode_path(path))
        parts.append(
            _NODE.pack(
                node.version,
                node.czxid,
                node.mzxid,
                node.ephemeral_owner,
                node.child_count,
                node.next_sequence,
                len(node.data),
            )
        )
        parts.append(node.data)
    return _frame(_SNAPSHOT_HEAD.pack(_SNAPSHOT, tree.zxid, count) + b"".join(parts))


def encode_transaction(staged: StagedTransaction) -> bytes:
    """Return a frame with the operations as they were applied: full names, no conditions."""
    parts = [_TRANSACTION_HEAD.pack(_TRANSACTION, staged.zxid, staged.owner, len(staged.ops))]
    for op in staged.ops:
        match op:
            case Create():
                code, data = _CREATE_EPHEMERAL if op.ephemeral else _CREATE, op.data
            case SetData():
                code, data = _SET, op.data
            case _:
                code, data = _DELETE, b""
        parts += (bytes((code,)), _encode_path(op.path), _LENGTH.pack(len(data)), data)
    return _frame(b"".join(parts))


def decode_snapshot(payload: memoryview, tree: Tree) -> None:
    """Load the tree from the first frame of a journal."""
    kind, zxid, count = _SNAPSHOT_HEAD.unpack_from(payload)
    if kind != _SNAPSHOT:
        raise JournalError("the metadata journal does not begin with a snapshot")
    at = _SNAPSHOT_HEAD.size
    nodes = {}
    for _ in range(count):
        path, at = _decode_path(payload, at)
        version, czxid, mzxid, owner, children, sequence, length = _NODE.unpack_from(payload, at)
        at += _NODE.size
        data = bytes(payload[at : at + length])
        at += length
        nodes[path] = TreeNode(data, version, czxid, mzxid, owner, children, sequence)
    tree.load(zxid, nodes)


def decode_transaction(payload: memoryview) -> JournalTransaction:
    kind, zxid, owner, count = _TRANSACTION_HEAD.unpack_from(payload)
    if kind != _TRANSACTION:
        raise JournalError(f"the metadata journal holds a frame of unknown kind {kind}")
    at = _TRANSACTION_HEAD.size
    ops: list[Op] = []
    for _ in range(count):
        code = payload[at]
        path, at = _decode_path(payload, at + 1)
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        data = bytes(payload[at : at + length])
        at += length
        if code == _SET:
            ops.append(SetData(path, data))
        elif code == _DELETE:
            ops.append(Delete(path))
        else:
            ops.append(Create(path, data, ephemeral=code == _CREATE_EPHEMERAL))
    return JournalTransaction(zxid, owner, ops)


def frames(data: bytes, at: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the payloads of the valid frames from `at` on, each with the position after it.

    It stops at the end of the file or at a torn frame; raises JournalError if valid frames follow
    that.
    """
    while (payload := _frame_at(data, at)) is not None:
        at += _FRAME.size + len(payload)
        yield payload, at
    behind = data.find(_MARKER, at + 1)
    while behind >= 0:
        if _frame_at(data, behind) is not None:
            raise JournalError(
                f"the metadata journal is damaged at byte {at}, with good entries behind it"
            )
        behind = data.find(_MARKER, behind + 1)


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(_MARKER, len(payload), crc32c(payload)) + payload


def _frame_at(data: bytes, at: int) -> memoryview | None:
    if len(data) - at < _FRAME.size:
        return None
    marker, length, crc = _FRAME.unpack_from(data, at)
    at += _FRAME.size
    # The checksum of no bytes is zero, so a torn frame head followed by zeros must not be valid.
    if marker != _MARKER or not 0 < length <= len(data) - at:
        return None
    payload = memoryview(data)[at : at + length]
    return payload if crc32c(payload) == crc else None


def _encode_path(path: str) -> bytes:
    raw = path.encode()
    return _PATH.pack(len(raw)) + raw


def _decode_path(payload: memoryview, at: int) -> tuple[str, int]:
    (length,) = _PATH.unpack_from(payload, at)
    at += _PATH.size
    return str(payload[at : at + length], "utf-8"), at + length
