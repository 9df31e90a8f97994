"""The client properties of a benchmark, with Kafka's names; unknown names are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TextIO

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.client.consumer import FetchSettings
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.client.producer import ProducerSettings
from barnabas.config.properties import parse_properties
from barnabas.protocol.records.compression import Compression

_RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_LEVELS = {"read_committed": True, "read_uncommitted": False}
_CODECS = {codec.name.lower(): codec for codec in Compression}


class _Properties:
    """A set of properties; each field has the name of a property, with underscores for dots."""

    @classmethod
    def parse(cls, file: TextIO | None, pairs: Sequence[str]) -> Self:
        """Parse a file and NAME=VALUE pairs, which override the file.

        Raises UsageError for unknown names and wrong values.
        """
        given = {**(parse_properties(file.read()) if file else {}), **parse_pairs(pairs)}
        known = {each.name.replace("_", "."): each for each in fields(cls)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                raise click.UsageError(
                    f"{name}: unknown; the known names are {', '.join(sorted(known))}"
                )
            default = known[name].default
            try:
                values[known[name].name] = int(text) if isinstance(default, int) else text
            except ValueError:
                raise click.UsageError(f"{name}={text}: not a number") from None
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ConsumerProperties(_Properties):
    """The properties of the consumer; sizes in bytes, times in ms."""

    auto_offset_reset: str = "earliest"
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_min_bytes: int = 1
    group_instance_id: str | None = None
    isolation_level: str = "read_committed"
    max_partition_fetch_bytes: int = 1024 * 1024
    max_poll_records: int = 500
    session_timeout_ms: int = 45_000

    @property
    def instance_id(self) -> str | None:
        return self.group_instance_id

    @property
    def session_timeout(self) -> float:
        """The timeout in s."""
        return self.session_timeout_ms / 1000

    def settings(self, max_wait: float) -> FetchSettings:
        """Return the settings of the client; `max_wait` is in s."""
        return FetchSettings(
            min_bytes=self.fetch_min_bytes,
            max_bytes=self.fetch_max_bytes,
            partition_max_bytes=self.max_partition_fetch_bytes,
            max_wait=max_wait,
            read_committed=_one_of("isolation.level", self.isolation_level, _LEVELS),
            offset_reset=_one_of("auto.offset.reset", self.auto_offset_reset, _RESETS),
        )


@dataclass(frozen=True, slots=True)
class ProducerProperties(_Properties):
    """The properties of the producer; sizes in bytes, times in ms."""

    batch_size: int = 512 * 1024
    buffer_memory: int = 32 * 1024 * 1024
    compression_type: str = "none"
    delivery_timeout_ms: int = 120_000
    linger_ms: int = 0
    transaction_timeout_ms: int = 60_000

    @property
    def transaction_timeout(self) -> float:
        """The timeout in s."""
        return self.transaction_timeout_ms / 1000

    def settings(self) -> ProducerSettings:
        """Return the settings of the client."""
        return ProducerSettings(
            compression=_one_of("compression.type", self.compression_type, _CODECS),
            linger=self.linger_ms / 1000,
            batch_size=self.batch_size,
            buffer_size=self.buffer_memory,
            delivery_timeout=self.delivery_timeout_ms / 1000,
        )


def _one_of(name: str, value: str, known: Mapping[str, Any]) -> Any:
    if value not in known:
        raise click.UsageError(f"{name}={value}: must be one of {', '.join(known)}")
    return known[value]
