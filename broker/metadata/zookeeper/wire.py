"""The port's operations as ZooKeeper's requests, and its answers and errors as the port's; pure.

A creation by itself is answered with its stat (create2), since the czxid of a registration is the
broker's epoch. Within a transaction (multi) ZooKeeper answers creations with nothing but paths.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol import serialization as zk
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.broker.metadata.store import (
    BadVersion,
    Check,
    Create,
    Created,
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
from barnabas.broker.metadata.tree import check_path

MAX_REQUEST_BYTES = 1_000_000
"""ZooKeeper takes 1,048,575 bytes (`jute.maxbuffer`), and closes the connection above it."""

_EPHEMERAL, _SEQUENCE = 1, 2
_MULTI_HEADER = struct.Struct("!i?i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_INT = struct.Struct("!i")
_ERROR = -1
_ROLLED_BACK = (0, -2)
"""Codes of operations that would have been well but for another one."""
_SECRET_ROOTS = ("/config/brokers", "/config/users")
"""Below these, nodes may hold passwords: as in Kafka nobody but brokers reads them."""

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
"""To one operation: the path of a creation, the stat of a change."""


class Transaction(NamedTuple):
    """A multi request; its answer is a list with an `Answer` for each operation."""

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


class RolledBack(StoreError):
    """Of an operation that did not take effect because another of its transaction failed."""


def transaction(ops: Sequence[Op], chroot: str, *, set_acl: bool) -> Transaction:
    """Raises ValueError for what is no path, TooLarge."""
    body = bytearray()
    for op in ops:
        request = _request(op, chroot, set_acl=set_acl)
        body += _MULTI_HEADER.pack(request.type, False, -1)
        body += request.serialize()
    body += _MULTI_HEADER.pack(-1, True, -1)
    _check_size(body, ops[0])
    return Transaction(bytes(body), tuple(op.path for op in ops), chroot)


def creation(op: Create, chroot: str, *, set_acl: bool) -> Any:
    """A request of its own, which is answered with the stat. Raises as `transaction`."""
    create = _request(op, chroot, set_acl=set_acl)
    request = zk.Create2(*create)
    _check_size(request.serialize(), op)
    return request


def answers_of(answers: Sequence[Answer]) -> Sequence[str | Stat | None]:
    """Of a transaction that took effect; raises what the operation raises that failed."""
    failures = [each for each in answers if isinstance(each, StoreError)]
    for failure in failures:
        if not isinstance(failure, RolledBack):
            raise failure
    if failures:
        raise failures[0]
    return [each for each in answers if not isinstance(each, StoreError)]


def results_of(
    ops: Sequence[Op], answers: Sequence[str | Stat | None], zxid: int, session_id: int
) -> list[OpResult]:
    """The port's results of a transaction that has this id."""
    results: list[OpResult] = []
    for op, answer in zip(ops, answers, strict=True):
        if isinstance(op, Create) and isinstance(answer, str):
            stat = Stat(0, zxid, zxid, session_id if op.ephemeral else 0, 0)
            results.append(Created(answer, stat))
        else:
            results.append(answer if isinstance(answer, Stat) else None)
    return results


def acl_of(path: str, *, set_acl: bool) -> Sequence[ACL]:
    """Who may do what with a new node."""
    if not set_acl:
        return list(OPEN_ACL_UNSAFE)
    if any(path == root or path.startswith(root + "/") for root in _SECRET_ROOTS):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def error_of(error: BaseException, path: str) -> StoreError:
    """The port's error for one of kazoo's."""
    if isinstance(error, StoreError):
        return error
    kind = next((_ERRORS[each] for each in type(error).__mro__ if each in _ERRORS), None)
    if kind is None:
        return StoreError(f"{path}: {error!r}")
    return kind(path)


def full_path(chroot: str, path: str) -> str:
    """Where ZooKeeper has the node."""
    return chroot + path if path != "/" else chroot or "/"


def stat_of(stat: Any) -> Stat:
    """Of kazoo's ZnodeStat."""
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
        return RolledBack(path)
    return error_of(exceptions.EXCEPTIONS[code](), path)


def _read_stat(data: bytes, offset: int) -> Stat:
    czxid, mzxid, _, _, version, _, _, owner, _, children, _ = _STAT.unpack_from(data, offset)
    return Stat(version, czxid, mzxid, owner, children)
