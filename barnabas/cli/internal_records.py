"""The records of `__consumer_offsets` and `__transaction_state` as lines of JSON."""

import click

from barnabas.cli import answers
from barnabas.cli.json_records import place_of
from barnabas.client.consumer import Message
from barnabas.operations.internal_records import DECODERS, fields


def require_internal(topics: tuple[str, ...]) -> None:
    """Raise a usage error for a topic whose records have no meaning that is known here."""
    for topic in topics:
        if topic not in DECODERS:
            raise click.UsageError(f"--decode is for {' and '.join(DECODERS)}, not for {topic}")


def to_json(message: Message) -> bytes:
    """Return a record as a line with its `kind`, or with the `error` of a damaged one."""
    row = place_of(message) | fields(message.topic, message.key, message.value)
    return answers.to_json("consume", row, indent=None).encode() + b"\n"
