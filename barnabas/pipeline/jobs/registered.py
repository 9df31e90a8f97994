"""The schemas of a job that a registry has: what its source reads, and what its sink writes."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from barnabas.pipeline.jobs.spec import Coded, Location, Problem, Written
from barnabas.registry.client import SchemaRegistry, SchemaText
from barnabas.registry.codecs import require_kind, use_of
from barnabas.registry.errors import RegistryError
from barnabas.registry.settings import RegistrySettings
from barnabas.registry.subjects import subject_of
from barnabas.registry.usable import CODECS, UsableSchema
from barnabas.registry.wire import Part


class Format(NamedTuple):
    """The schema that records are decoded for or encoded with; it goes to Spark's workers."""

    settings: RegistrySettings
    codec: str
    subject: str
    schema: SchemaText
    record: str | None
    part: Part

    def usable(self) -> UsableSchema:
        """Return the schema, parsed."""
        return use_of(self.codec)(self.schema, self.record)


def source_format(
    settings: RegistrySettings,
    coded: Coded,
    topics: Sequence[str],
    location: Location,
    part: Part = "value",
) -> Format:
    """Return the reader's schema of values or keys; raises Problem at the location."""
    topic = topics[0] if len(topics) == 1 else None
    with told_at(location):
        use = use_of(coded.codec)
        subject = coded.subject or subject_of(coded.naming, topic, coded.record, part)
        found = SchemaRegistry(settings).version(subject, coded.version)
        require_kind(coded.codec, subject, found.schema)
        record = coded.record or use(found.schema, None).record
        return Format(settings, coded.codec, subject, found.schema, record, part)


class SinkFormat(NamedTuple):
    """The schema of a sink, which may not be registered yet."""

    format: Format
    location: Location
    number: int | None
    """Its id; None if it has to be registered."""

    def register(self) -> int:
        """Return the id of the schema, registered where it has to be; raises Problem."""
        if self.number is not None:
            return self.number
        with told_at(self.location):
            made = self.format
            return SchemaRegistry(made.settings).register(made.subject, made.schema)

    def check(self) -> int:
        """Ask the registry whether it would register the schema; raises Problem."""
        if self.number is None:
            with told_at(self.location):
                SchemaRegistry(self.format.settings).check(self.format.subject, self.format.schema)
        return self.number or 0


def sink_format(
    settings: RegistrySettings,
    written: Written,
    topic: str,
    text_of: Callable[[str], str],
    location: Location,
    part: Part = "value",
) -> SinkFormat:
    """Return the schema of values or keys; raises Problem at the location.

    `text_of` makes a schema of the columns, with a name, where the job and the registry have none.
    """
    with told_at(location):
        use = use_of(written.codec)
        registry = SchemaRegistry(settings)
        if not written.registers:
            subject = written.subject or subject_of(written.naming, topic, written.record, part)
            found = registry.version(subject, written.version)
            schema, number = found.schema, found.id
            require_kind(written.codec, subject, schema)
            record = written.record or use(schema, None).record
        else:
            text = written.schema_text
            if text is None:
                text = text_of(written.record or _name_of(topic, part))
            schema = registry.with_references(CODECS[written.codec], text, written.references)
            record, number = use(schema, written.record).record, None
            subject = written.subject or subject_of(written.naming, topic, record, part)
        form = Format(settings, written.codec, subject, schema, record, part)
        return SinkFormat(form, location, number)


def _name_of(topic: str, part: Part) -> str:
    """Return the name of the record that is made for a topic."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic if part == "value" else f"{topic}_key")
    return f"_{name}" if name[0].isdigit() else name


@contextmanager
def told_at(location: Location) -> Iterator[None]:
    """Make what the registry refuses a Problem at the codec."""
    try:
        yield
    except (RegistryError, ValueError) as error:
        raise Problem((*location, "codec"), str(error)) from error
