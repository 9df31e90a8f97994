"""The protocol between a served store and its clients; pure.

A frame is a length (int32) and a JSON object. A request has an `id`, which its response repeats,
and an operation `do`. A message that the store sends on its own has no `id`. Data is one character
per byte (latin-1): node data is JSON itself, and so stays readable in a trace.
"""

import json
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from barnabas.broker.store import metadata_store
from barnabas.broker.store.metadata_store import (
    Check,
    Create,
    CreateResult,
    Delete,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
)

LARGEST_FRAME: Final = 64 << 20
"""Bytes; a larger transaction or response is refused."""

_SIZE: Final = Struct(">i")
_ERRORS: Final[Mapping[str, type[StoreError]]] = {
    each.__name__: each
    for each in (
        metadata_store.NoNode,
        metadata_store.NodeExists,
        metadata_store.BadVersion,
        metadata_store.NotEmpty,
        metadata_store.NoChildrenForEphemerals,
        metadata_store.SessionExpired,
        metadata_store.StoreUnavailable,
    )
}


class FormatError(Exception):
    """The bytes are not a message in this format."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return the frame of a message. Raises FormatError if it is too large."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > LARGEST_FRAME:
        raise FormatError(f"a message of {len(body)} bytes; at most {LARGEST_FRAME} are carried")
    return _SIZE.pack(len(body)) + body


def decode(frame: memoryview) -> dict[str, Any]:
    """Return the message in the body of a frame. Raises FormatError."""
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
    """Return the operations; raise ValueError or TypeError if they are malformed."""
    return [_op_from_json(*op) for op in ops]


def results_to_json(results: Sequence[OpResult]) -> list[Any]:
    return [
        [result.path, list(result.stat)]
        if isinstance(result, CreateResult)
        else None
        if result is None
        else list(result)
        for result in results
    ]


def results_from_json(ops: Sequence[Op], results: Sequence[Any]) -> list[OpResult]:
    return [_result_from_json(op, result) for op, result in zip(ops, results, strict=True)]


def error_to_json(error: StoreError | ValueError) -> dict[str, str]:
    """Return the fields of a response for an error of the port, or for an invalid path."""
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
            return CreateResult(path, Stat(*stat))
        case SetData():
            return Stat(*result)
        case _:
            return None
