"""The records of `__consumer_offsets` and `__transaction_state` as lines of JSON."""

import click

from barnabas.cli import json_answers
from barnabas.client.consumer import Message
from barnabas.operations.internal_records import DECODERS, decoded


def require_internal(topics: tuple[str, ...]) -> None:
    """Raise a usage error for a topic whose records have no meaning that is known here."""
    for topic in topics:
        if topic not in DECODERS:
            raise click.UsageError(f"--decode is for {' and '.join(DECODERS)}, not for {topic}")


def to_json(message: Message) -> bytes:
    """Return a record as a line with its `kind`, or with the `error` of a damaged one."""
    place = message.topic, message.partition, message.offset, message.timestamp
    answer = decoded(place, message.key, message.value)
    return json_answers.to_json("consume", answer, indent=None).encode() + b"\n"
