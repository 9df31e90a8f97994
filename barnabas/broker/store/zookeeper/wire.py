"""The conversion of the port's operations, results and errors to and from ZooKeeper's; pure.

A single creation returns the stat (create2), since the czxid of a registration is the broker epoch.
Inside a transaction (multi) ZooKeeper returns only the paths of creations.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol import serialization as zk
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.broker.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    CreateResult,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Op,
    OpResult,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from barnabas.broker.store.tree import check_path

MAX_REQUEST_BYTES = 1_000_000
"""ZooKeeper accepts 1,048,575 bytes (`jute.maxbuffer`), and closes the connection for more."""

_EPHEMERAL, _SEQUENCE = 1, 2
_MULTI_HEADER = struct.Struct("!i?i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_INT = struct.Struct("!i")
_ERROR = -1
_ROLLED_BACK = (0, -2)
"""Codes of operations that were valid but undone because another operation failed."""
_SECRET_ROOTS = ("/config/brokers", "/config/users", "/delegation_token/tokens", "/scram_stand_ins")
"""Nodes below these may have passwords: as in Kafka, only brokers may read them."""
GUARDED_ROOTS = (*_SECRET_ROOTS, "/kafka-acl", "/kafka-acl-extended")
"""Nodes below these decide which clients get in, and their rights."""

_ERRORS: dict[type[Exception], type[StoreError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    exceptions.SessionExpiredError: SessionExpired,
    exceptions.NoAuthError: NotAllowed,
    exceptions.AuthFailedError: NotAllowed,
    exceptions.InvalidACLError: NotAllowed,
    exceptions.ConnectionLoss: StoreUnavailable,
    exceptions.ConnectionClosedError: StoreUnavailable,
    exceptions.OperationTimeoutError: StoreUnavailable,
}


Answer = str | Stat | StoreError | None
"""The result of one operation: the path of a creation, the stat of a change."""


class MultiRequest(NamedTuple):
    """A multi request; its response is a list with an `Answer` for each operation."""

    body: bytes
    paths: tuple[str, ...]
    chroot: str

    @property
    def type(self) -> int:
        kind: int = zk.Transaction.type
        return kind

    def serialize(self) -> bytes:
        return self.body

    def deserialize(self, data: bytes, offset: int) -> list[Answer]:
        answers: list[Answer] = []
        while True:
            kind, done, _ = _MULTI_HEADER.unpack_from(data, offset)
            offset += _MULTI_HEADER.size
            if done:
                return answers
            answer: Answer = None
            if kind == _ERROR:
                (code,) = _INT.unpack_from(data, offset)
                offset += _INT.size
                answer = _failure(code, self.paths[len(answers)])
            elif kind == zk.Create.type:
                path, offset = zk.read_string(data, offset)
                answer = path.removeprefix(self.chroot)
            elif kind == zk.SetData.type:
                answer = _read_stat(data, offset)
                offset += _STAT.size
            answers.append(answer)


class RolledBackError(StoreError):
    """The operation was undone because another one of its transaction failed."""


def multi_request(ops: Sequence[Op], chroot: str, *, set_acl: bool) -> MultiRequest:
    """Return a multi request. Raises ValueError for an invalid path, TooLarge."""
    body = bytearray()
    for op in ops:
        request = _request(op, chroot, set_acl=set_acl)
        body += _MULTI_HEADER.pack(request.type, False, -1)
        body += request.serialize()
    body += _MULTI_HEADER.pack(-1, True, -1)
    _check_size(body, ops[0])
    return MultiRequest(bytes(body), tuple(op.path for op in ops), chroot)


def creation(op: Create, chroot: str, *, set_acl: bool) -> Any:
    """Return a single creation, whose response has the stat. Raises as `multi_request`."""
    create = _request(op, chroot, set_acl=set_acl)
    request = zk.Create2(*create)
    _check_size(request.serialize(), op)
    return request


def answers_of(answers: Sequence[Answer]) -> Sequence[str | Stat | None]:
    """Return the answers of a successful transaction; raise the error of the failed operation."""
    failures = [each for each in answers if isinstance(each, StoreError)]
    for failure in failures:
        if not isinstance(failure, RolledBackError):
            raise failure
    if failures:
        raise failures[0]
    return [each for each in answers if not isinstance(each, StoreError)]


def results_of(
    ops: Sequence[Op], answers: Sequence[str | Stat | None], zxid: int, session_id: int
) -> list[OpResult]:
    """Return the port's results of the transaction with this zxid."""
    results: list[OpResult] = []
    for op, answer in zip(ops, answers, strict=True):
        if isinstance(op, Create) and isinstance(answer, str):
            stat = Stat(0, zxid, zxid, session_id if op.ephemeral else 0, 0)
            results.append(CreateResult(answer, stat))
        else:
            results.append(answer if isinstance(answer, Stat) else None)
    return results


def acl_of(path: str, *, set_acl: bool) -> Sequence[ACL]:
    """Return the access rights of a new node."""
    if not set_acl:
        return list(OPEN_ACL_UNSAFE)
    if any(path == root or path.startswith(root + "/") for root in _SECRET_ROOTS):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def is_open(path: str, acl: Sequence[ACL]) -> bool:
    """Return whether these access rights give the world more than `zookeeper.set.acl` gives it."""
    return _of_world(acl) & ~_of_world(acl_of(path, set_acl=True)) != 0


def _of_world(acl: Sequence[ACL]) -> int:
    permissions = 0
    for each in acl:
        if each.id.scheme == "world":
            permissions |= each.perms
    return permissions


def error_of(error: BaseException, path: str) -> StoreError:
    """Return the port's error for one of kazoo's."""
    if isinstance(error, StoreError):
        return error
    kind = next((_ERRORS[each] for each in type(error).__mro__ if each in _ERRORS), None)
    if kind is None:
        return StoreError(f"{path}: {error!r}")
    return kind(path)


def full_path(chroot: str, path: str) -> str:
    """Return the path of a node in ZooKeeper."""
    return chroot + path if path != "/" else chroot or "/"


def stat_of(stat: Any) -> Stat:
    """Return the port's stat for kazoo's ZnodeStat."""
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.numChildren)


def _request(op: Op, chroot: str, *, set_acl: bool) -> Any:
    path = full_path(chroot, op.path)
    match op:
        case Create():
            flags = _EPHEMERAL * op.ephemeral | _SEQUENCE * op.sequence
            check_path(op.path)
            return zk.Create(path, op.data, acl_of(op.path, set_acl=set_acl), flags)
        case SetData():
            return zk.SetData(path, op.data, op.version)
        case Delete():
            return zk.Delete(path, op.version)
        case Check():
            return zk.CheckVersion(path, op.version)


def _check_size(body: bytes | bytearray, op: Op) -> None:
    if len(body) > MAX_REQUEST_BYTES:
        raise TooLarge(op.path)


def _failure(code: int, path: str) -> StoreError:
    if code in _ROLLED_BACK:
        return RolledBackError(path)
    return error_of(exceptions.EXCEPTIONS[code](), path)


def _read_stat(data: bytes, offset: int) -> Stat:
    czxid, mzxid, _, _, version, _, _, owner, _, children, _ = _STAT.unpack_from(data, offset)
    return Stat(version, czxid, mzxid, owner, children)
