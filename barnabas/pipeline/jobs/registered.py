"""The schemas of a job that a registry has: what its source reads, and what its sink writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from barnabas.pipeline.jobs.spec import Location, Problem, Sink, Source
from barnabas.registry.client import SchemaRegistry, SchemaText
from barnabas.registry.codecs import require_kind, use_of
from barnabas.registry.errors import RegistryError
from barnabas.registry.settings import RegistrySettings
from barnabas.registry.subjects import subject_of
from barnabas.registry.usable import CODECS, UsableSchema


class Format(NamedTuple):
    """The schema that records are decoded for or encoded with; it goes to Spark's workers."""

    settings: RegistrySettings
    codec: str
    subject: str
    schema: SchemaText
    record: str | None

    def usable(self) -> UsableSchema:
        """Return the schema, parsed."""
        return use_of(self.codec)(self.schema, self.record)


def source_format(settings: RegistrySettings, source: Source, location: Location) -> Format:
    """Return the reader's schema of a source at a location of the job file; raises Problem."""
    topics = source.topics or []
    topic = topics[0] if len(topics) == 1 else None
    with told_at(location):
        use = use_of(source.codec)
        subject = source.subject or subject_of(source.naming, topic, source.record)
        found = SchemaRegistry(settings).version(subject, source.version)
        require_kind(source.codec, subject, found.schema)
        record = source.record or use(found.schema, None).record
        return Format(settings, source.codec, subject, found.schema, record)


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


def sink_format(settings: RegistrySettings, sink: Sink, location: Location) -> SinkFormat:
    """Return the schema of a sink at a location of the job file; raises Problem."""
    with told_at(location):
        use = use_of(sink.codec)
        registry = SchemaRegistry(settings)
        if sink.schema_text is None:
            subject = sink.subject or subject_of(sink.naming, sink.topic, sink.record)
            found = registry.version(subject, sink.version)
            schema, number = found.schema, found.id
            require_kind(sink.codec, subject, schema)
            record = sink.record or use(schema, None).record
        else:
            kind = CODECS[sink.codec]
            schema = registry.with_references(kind, sink.schema_text, sink.references)
            record, number = use(schema, sink.record).record, None
            subject = sink.subject or subject_of(sink.naming, sink.topic, record)
        return SinkFormat(Format(settings, sink.codec, subject, schema, record), location, number)


@contextmanager
def told_at(location: Location) -> Iterator[None]:
    """Make what the registry refuses a Problem at the codec."""
    try:
        yield
    except (RegistryError, ValueError) as error:
        raise Problem((*location, "codec"), str(error)) from error
