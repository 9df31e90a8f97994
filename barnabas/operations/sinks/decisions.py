"""The records of a sink's decisions topic: JSON with a version, checked field by field. Pure.

All records of a sink have one key, so that compaction keeps the last decision. A record counts if
the transaction that it was written in is committed.
"""

import json
from typing import Final, NamedTuple, TypeGuard

VERSION: Final = 1
_TOPIC: Final = ".decisions"


class Identity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"


class Place(NamedTuple):
    """The offset of a record in a partition."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


class DecisionError(ValueError):
    """A record of the decisions topic that no sink of this version has written."""


class DecidedWinner(NamedTuple):
    """A transaction that a decision commits; `client` is the identity that may end it."""

    transactional_id: str
    ongoing: Identity
    client: Identity
    rows: int
    first: Place


class SinkDecision(NamedTuple):
    """The decision that a batch of a query is in the output."""

    query_id: str
    number: int
    digest: str | None
    """A digest of the batch's offsets in the checkpoint, None if they could not be read."""
    winners: tuple[DecidedWinner, ...]
    lost: tuple[DecidedWinner, ...] = ()
    """Transactions that were aborted after the decision; the operator has accepted the loss."""

    @property
    def named(self) -> frozenset[tuple[str, Identity]]:
        """The transactions that the decision commits, by whole identity: ids are used again."""
        return frozenset((each.transactional_id, each.ongoing) for each in self.winners)


def decisions_topic(sink_id: str) -> str:
    """Return the topic of a sink's decisions."""
    return f"{sink_id}{_TOPIC}"


def sink_of(topic: str) -> str | None:
    """Return the sink whose decisions a topic has, by its name; None for another topic."""
    return topic.removesuffix(_TOPIC) if topic.endswith(_TOPIC) and topic != _TOPIC else None


def key_of(sink_id: str) -> bytes:
    """Return the key of a sink's decisions."""
    return json.dumps({"sink": sink_id}, separators=(",", ":")).encode()


def encode(decision: SinkDecision) -> bytes:
    """Return the value of a decision's record."""
    value = {
        "version": VERSION,
        "query": decision.query_id,
        "batch": decision.number,
        "digest": decision.digest,
        "winners": [_encode(each) for each in decision.winners],
        "lost": [_encode(each) for each in decision.lost],
    }
    return json.dumps(value, separators=(",", ":")).encode()


def _encode(winner: DecidedWinner) -> dict[str, object]:
    return {
        "id": winner.transactional_id,
        "ongoing": winner.ongoing,
        "client": winner.client,
        "rows": winner.rows,
        "first": winner.first,
    }


def decode(value: bytes) -> SinkDecision:
    """Return the decision of a record; raises DecisionError."""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise DecisionError(f"it is not JSON: {error}") from error
    if not _is_object(parsed):
        raise DecisionError("it is not a JSON object")
    version = parsed.get("version")
    if version != VERSION:
        raise DecisionError(f"its version is {version}, this program knows {VERSION}")
    digest = parsed.get("digest")
    if digest is not None and not isinstance(digest, str):
        raise DecisionError("digest is not a string")
    return SinkDecision(
        _text(parsed, "query"),
        _number(parsed, "batch"),
        digest,
        tuple(_decode(each) for each in _rows(parsed, "winners")),
        tuple(_decode(each) for each in _rows(parsed, "lost")),
    )


def _decode(row: object) -> DecidedWinner:
    if not _is_object(row):
        raise DecisionError("a transaction is not a JSON object")
    match row.get("first"):
        case [str(topic), int(partition), int(offset)]:
            first = Place(topic, partition, offset)
        case _:
            raise DecisionError("first is not a topic, a partition and an offset")
    return DecidedWinner(
        _text(row, "id"),
        _identity(row, "ongoing"),
        _identity(row, "client"),
        _number(row, "rows"),
        first,
    )


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _text(row: dict[str, object], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise DecisionError(f"{name} is not a string")
    return value


def _number(row: dict[str, object], name: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DecisionError(f"{name} is not a number")
    return value


def _identity(row: dict[str, object], name: str) -> Identity:
    match row.get(name):
        case [int(producer_id), int(epoch)]:
            return Identity(producer_id, epoch)
        case _:
            raise DecisionError(f"{name} is not a producer id and an epoch")


def _rows(row: dict[str, object], name: str) -> list[object]:
    value = row.get(name)
    if not isinstance(value, list):
        raise DecisionError(f"{name} is not a list")
    return value
