"""Rows of the source in the form that `Topics.read` has, and its options."""

from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, Row

from tests.support.topics import Seen, Topics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def options(topics: Topics, topic: str, given: dict[str, object]) -> dict[str, str]:
    """Return options of the source as text; `given` has underscores for the dots."""
    least = {
        "kafka.bootstrap.servers": topics.servers,
        # A loss is told after this time.
        "kafka.default.api.timeout.ms": "1000",
        "subscribe": topic,
    }
    if {"assign", "subscribePattern"} & given.keys():
        del least["subscribe"]
    return least | {key.replace("_", "."): str(value) for key, value in given.items()}


def values(rows: DataFrame) -> list[str]:
    """Return the values, in order of their texts."""
    return sorted(bytes(row.value).decode() for row in rows.collect())


def _as_seen(row: Row) -> Seen:
    timestamp = row.timestamp.replace(tzinfo=UTC) - _EPOCH
    headers = None
    if "headers" in row and row.headers is not None:
        headers = [
            (each.key, None if each.value is None else bytes(each.value)) for each in row.headers
        ]
    return Seen(
        None if row.key is None else bytes(row.key),
        None if row.value is None else bytes(row.value),
        row.topic,
        row.partition,
        row.offset,
        timestamp // timedelta(milliseconds=1),
        row.timestampType,
        headers,
    )


def seen(rows: DataFrame) -> list[Seen]:
    """Return all fields, in order of topic, partition and offset."""
    return sorted(map(_as_seen, rows.collect()), key=lambda each: each[2:5])
