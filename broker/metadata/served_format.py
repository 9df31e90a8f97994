"""What travels between a store that is served and its clients; pure.

A frame is a length (int32) and a JSON object. A request has an `id`, which its answer repeats, and
says what to `do`; what the store tells by itself has no `id`. Data are bytes, one character each
(latin-1): metadata are JSON themselves, and stay readable in a trace.
"""

import json
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from barnabas.broker.metadata import store
from barnabas.broker.metadata.store import (
    Check,
    Create,
    Created,
    Delete,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
)

LARGEST_FRAME: Final = 64 << 20
"""Bytes; a transaction or an answer above it is refused."""

_SIZE: Final = Struct(">i")
_ERRORS: Final[Mapping[str, type[StoreError]]] = {
    each.__name__: each
    for each in (
        store.NoNode,
        store.NodeExists,
        store.BadVersion,
        store.NotEmpty,
        store.NoChildrenForEphemerals,
        store.SessionExpired,
        store.StoreUnavailable,
    )
}


class FormatError(Exception):
    """Bytes that are no message of this format."""


def encode(message: Mapping[str, Any]) -> bytes:
    """The frame of a message. Raises FormatError where it is too large."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > LARGEST_FRAME:
        raise FormatError(f"a message of {len(body)} bytes; at most {LARGEST_FRAME} are carried")
    return _SIZE.pack(len(body)) + body


def decode(frame: memoryview) -> dict[str, Any]:
    """The message in a frame's body. Raises FormatError."""
    try:
        message = json.loads(bytes(frame))
    except ValueError as cause:
        raise FormatError(f"no JSON: {bytes(frame[:100])!r}") from cause
    if not isinstance(message, dict):
        raise FormatError(f"no object: {bytes(frame[:100])!r}")
    return message


def data_text(data: bytes) -> str:
    return data.decode("latin-1")


def text_data(text: str) -> bytes:
    return text.encode("latin-1")


def ops_to_json(ops: Sequence[Op]) -> list[list[Any]]:
    return [_op_to_json(op) for op in ops]


def ops_from_json(ops: Sequence[Sequence[Any]]) -> list[Op]:
    """Raises ValueError or TypeError for what are none."""
    return [_op_from_json(*op) for op in ops]


def results_to_json(results: Sequence[OpResult]) -> list[Any]:
    return [
        [result.path, list(result.stat)]
        if isinstance(result, Created)
        else None
        if result is None
        else list(result)
        for result in results
    ]


def results_from_json(ops: Sequence[Op], results: Sequence[Any]) -> list[OpResult]:
    return [_result_from_json(op, result) for op, result in zip(ops, results, strict=True)]


def error_to_json(error: StoreError | ValueError) -> dict[str, str]:
    """What an answer says of an error, the port's own or that of a path that can name no node."""
    if isinstance(error, StoreError):
        return {"error": type(error).__name__, "path": error.path}
    return {"error": "ValueError", "path": str(error)}


def error_from_json(message: Mapping[str, Any]) -> StoreError | ValueError:
    kind, path = message["error"], message["path"]
    return ValueError(path) if kind == "ValueError" else _ERRORS[kind](path)


def _op_to_json(op: Op) -> list[Any]:
    match op:
        case Create():
            return ["create", op.path, data_text(op.data), op.ephemeral, op.sequence]
        case SetData():
            return ["set", op.path, data_text(op.data), op.version]
        case Delete():
            return ["delete", op.path, op.version]
        case Check():
            return ["check", op.path, op.version]


def _op_from_json(kind: str, path: str, *rest: Any) -> Op:
    match kind, rest:
        case "create", (str(text), bool(ephemeral), bool(sequence)):
            return Create(path, text_data(text), ephemeral, sequence)
        case "set", (str(text), int(version)):
            return SetData(path, text_data(text), version)
        case "delete", (int(version),):
            return Delete(path, version)
        case "check", (int(version),):
            return Check(path, version)
    raise ValueError(f"no operation: {kind} {rest}")


def _result_from_json(op: Op, result: Any) -> OpResult:
    match op:
        case Create():
            path, stat = result
            return Created(path, Stat(*stat))
        case SetData():
            return Stat(*result)
        case _:
            return None
