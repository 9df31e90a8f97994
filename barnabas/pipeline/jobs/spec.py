"""The specification of a job file: what its keys mean and which values they take.

The models check one value at a time, and the views of a job against each other. Whether Spark can
run the queries is found out by `barnabas.pipeline.spark.plan`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from barnabas.config.spelling import closest
from barnabas.pipeline.jobs.references import IN_CLEAR, References
from barnabas.pipeline.security import is_security
from barnabas.registry.client import LATEST, Reference
from barnabas.registry.settings import RegistrySettings, read_settings
from barnabas.registry.subjects import Naming
from barnabas.registry.usable import CODECS

Location = tuple[str | int, ...]
"""The keys and indexes that lead from the root of a job file to a value."""

REFERENCES: Final = "references"
"""The name of the references of a job file in the context of a validation."""
FAIL: Final = "fail"
AVAILABLE_NOW: Final = "available-now"
OF_REGISTRY: Final = ("subject", "naming", "record", "version")
"""Keys that only the codecs with a registry have."""

_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
_DURATION = re.compile(r"(\d{1,9}) (millisecond|second|minute|hour|day)s?")
_WITHOUT_BATCHES = re.compile(r"(?i)continuous|real[-_ ]?time")
SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
_TYPE = re.compile(r"([a-z_]+)(\s*\(\s*\d+\s*(,\s*\d+\s*)?\))?")
_NOT_NULL = re.compile(r"\s+not\s+null$", re.IGNORECASE)
_TYPES: Final = (
    *("string", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint"),
    *("long", "float", "real", "double", "decimal", "dec", "numeric", "date", "timestamp"),
    *("timestamp_ntz", "timestamp_ltz", "binary", "array", "map", "struct", "variant", "char"),
    *("varchar", "interval", "void"),
)
_SET_BY_KEY: Final = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "source.topic",
    "assign": "source.topic",
    "subscribepattern": "source.pattern",
    "topic": "sink.topic",
    "sinkid": "sink.id",
    "checkpointlocation": "checkpoint",
    "querytype": "a job, which is always a stream",
}
"""Options of the formats, in lower case, that a job file has keys for."""


def seconds_of(duration: str) -> float:
    """Return a duration of a job file in seconds."""
    number, unit, _ = re.split(r" (millisecond|second|minute|hour|day)", duration)
    return timedelta(**{f"{unit}s": int(number)}).total_seconds()


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to `name`, if one is near."""
    names = sorted(known)
    # Half of the letters: so two letters in the wrong order are still near.
    return closest(name, names, 0.5) or closest(name.lower(), names, 0.5)


def nearest(name: str, known: Collection[str]) -> str:
    """Return the advice for a name that is not known: the nearest one, or all of them."""
    if close := near(name, known):
        return f"did you mean {close!r}?"
    return f"known: {', '.join(sorted(known))}" if known else "there are none"


def _error(text: str) -> PydanticCustomError:
    return PydanticCustomError("job", "{text}", {"text": text})


def _text_of_scalar(value: object) -> object:
    """Return a number or a boolean as Spark's options spell it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _texts(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _text_of_scalar(each) for key, each in value.items()}
    return {} if value is None else value


def _texts_or_references(value: object, info: ValidationInfo) -> object:
    """Return options in which no secret stands in clear."""
    given = _texts(value)
    if not isinstance(given, Mapping):
        return given
    references: References = (info.context or {})[REFERENCES]
    found = {}
    for name, each in given.items():
        try:
            text = references.resolve(name, each)
        except ValueError as error:
            raise _error(str(error)) from None
        if text is None and SECRET.search(name):
            raise _error(f"{name}: {IN_CLEAR}")
        found[name] = each if text is None else text
    return found


def _codec_alone(value: object) -> object:
    return {"codec": value} if isinstance(value, str) else value


def _list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _duration(value: object) -> object:
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return value
    raise _error(f"{value!r} is not a duration such as '10 seconds' or '5 minutes'")


def _trigger(value: object) -> object:
    if _WITHOUT_BATCHES.search(str(value)):
        raise _error(
            "continuous processing and real-time mode have no batches that a sink could decide:"
            " give the time between batches, '0 seconds' for the next one at once"
        )
    return value if value == AVAILABLE_NOW else _duration(value)


def _column_type(value: object) -> object:
    if not isinstance(value, str):
        raise _error("the type of a column must be text, such as 'string' or 'bigint not null'")
    simple = _TYPE.fullmatch(_NOT_NULL.sub("", value.strip()).lower())
    if simple and simple[1] not in _TYPES:
        raise _error(f"{value!r} is not a type of Spark SQL; {nearest(simple[1], _TYPES)}")
    return value


def _security(value: object) -> object:
    if not isinstance(value, Mapping):
        raise _error("security must be a mapping of a client's keys, such as security.protocol")
    return {str(key): each for key, each in value.items()}


def _refuse_names_of_records(columns: Iterable[str]) -> None:
    for column in columns:
        if column.startswith("_"):
            raise _error(f"column {column!r}: names that begin with _ are for the record")


def _registry(value: object) -> object:
    if isinstance(value, str):
        return {"url": value}
    if not isinstance(value, Mapping):
        raise _error("registry must be an address or a mapping of keys, such as url")
    return {str(key): each for key, each in value.items()}


def _schema_text(value: object, info: ValidationInfo) -> object:
    """Return the text of a schema, which may stand in a file next to the job file."""
    references: References = (info.context or {})[REFERENCES]
    try:
        found = references.resolve("schema", value, goes_along=True)
    except ValueError as error:
        raise _error(str(error)) from None
    if found is not None:
        return found
    if isinstance(value, str):
        return value
    raise _error("schema must be {file: PATH}, or the text of a schema")


def _version(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if is_number or value == LATEST:
        return value
    raise _error(f"version: {value!r} is not possible; give {LATEST} or a number from 1 on")


def _reference(value: object) -> object:
    match value:
        case {"name": str(name), "subject": str(subject), "version": int(version), **more} if (
            not more
        ):
            return Reference(name, subject, version)
    raise _error("a reference needs name, subject and version, which is a number")


Texts = Annotated[dict[str, str], BeforeValidator(_texts)]
Duration = Annotated[str, BeforeValidator(_duration)]
Name = Annotated[str, Field(pattern=_NAME)]
Topic = Annotated[str, Field(pattern=_TOPIC)]
SinkId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")]
Codec = Literal["json", "string", "binary", "avro", "protobuf", "json-schema"]
KeyCodec = Literal["string", "binary", "avro", "protobuf", "json-schema"]
Version = Annotated[int | str, PlainValidator(_version)]


class _Part(BaseModel):
    """A mapping of the job file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


class Watermark(_Part):
    """The limit for late rows: `delay` behind the latest time in `column`."""

    column: str
    delay: Duration


class Coded(_Part):
    """Values or keys of a codec; those of a schema registry have a subject."""

    codec: Codec
    subject: Annotated[str, Field(min_length=1)] | None = None
    naming: Naming = "topic"
    record: str | None = None
    version: Version = LATEST

    @property
    def is_registered(self) -> bool:
        """Whether a schema registry has the schema of the values."""
        return self.codec in CODECS

    @property
    def with_keys(self) -> "Mapping[str, Coded]":
        """This, and the codec of its keys if it has one, by the names of their job keys."""
        return {"codec": self}

    @property
    def has_schemas(self) -> bool:
        """Whether a schema registry has the schema of the values, or that of their keys."""
        return any(each.is_registered for each in self.with_keys.values())

    def _check_registered(self, *names: str) -> None:
        """Refuse keys that only the codecs with a registry have."""
        given = {*OF_REGISTRY, *names} & self.model_fields_set
        if given and not self.is_registered:
            name = type(self).model_fields[min(given)].alias or min(given)
            raise _error(f"{name!r} needs one of the codecs {', '.join(CODECS)}")


class Key(Coded):
    """The keys of an input."""

    codec: KeyCodec = "string"


class Source(Coded):
    """An input: its topics, and the codec that turns values into columns."""

    topics: Annotated[list[Topic], BeforeValidator(_list), Field(min_length=1)] | None = Field(
        None, alias="topic"
    )
    pattern: str | None = None
    view: Name = "source"
    codec: Codec = "binary"
    columns: dict[str, Annotated[str, BeforeValidator(_column_type)]] = Field({}, alias="schema")
    key: Annotated[Key, BeforeValidator(_codec_alone)] = Key()
    watermark: Watermark | None = None
    json_options: Texts = {}
    options: Texts = {}

    @property
    def with_keys(self) -> Mapping[str, Coded]:
        return {"codec": self, "key": self.key}

    @model_validator(mode="after")
    def _fits_together(self) -> "Source":
        if (self.topics is None) == (self.pattern is None):
            raise _error("a source needs one of the keys 'topic' and 'pattern'")
        self._check_codec()
        return self

    def _check_codec(self) -> None:
        if self.codec == "json" and not self.columns:
            raise _error("codec json needs the key 'schema', a mapping of columns to their types")
        if self.codec != "json" and (self.columns or self.json_options):
            raise _error("'schema' and 'json_options' need codec json")
        _refuse_names_of_records(self.columns)
        self._check_registered()

    def matches(self, topic: str) -> bool:
        """Return whether `pattern` matches the whole name of a topic."""
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None


class Table(Source):
    """A table for joins: files, a database, or the last value of each key of a topic."""

    view: Name
    format: Literal["parquet", "csv", "json", "delta", "jdbc"] | None = None
    path: Annotated[str, Field(min_length=1)] | None = None
    refresh: Duration | None = None
    options: Annotated[dict[str, str], BeforeValidator(_texts_or_references)] = Field(
        {}, repr=False
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Table":
        given = self.model_fields_set
        if (self.topics is None) == (self.format is None):
            raise _error(f"table {self.view!r} needs one of the keys 'topic' and 'format'")
        if self.topics is not None:
            self._refuse(given & {"path"}, "is for a format")
            self._check_codec()
            if len(self.topics) > 1:
                raise _error(f"table {self.view!r}: a table has one topic")
        else:
            self._refuse(given & {"codec", "key", "json_options", *OF_REGISTRY}, "is for a topic")
            if (self.path is None) != (self.format == "jdbc"):
                key = "the options 'url' and 'dbtable'" if self.path else "the key 'path'"
                raise _error(f"table {self.view!r}: format {self.format} needs {key}")
            if self.format in ("csv", "json") and not self.columns:
                raise _error(f"table {self.view!r}: format {self.format} needs the key 'schema'")
        self._refuse(given & {"pattern", "watermark"}, "is for a source")
        return self

    def _refuse(self, keys: Iterable[str], why: str) -> None:
        for key in keys:
            raise _error(f"table {self.view!r}: key {key!r} {why}")


class ViewWatermark(Watermark):
    """The watermark of an earlier view."""

    view: Name | None = Field(None, alias="from")


class Dedupe(_Part):
    """The first of all rows that are equal in `columns`."""

    view: Name | None = Field(None, alias="from")
    columns: Annotated[list[str], BeforeValidator(_list), Field(min_length=1)]
    within_watermark: bool = False


class Parse(_Part):
    """The parsing of a column of an earlier view, which has JSON as text."""

    view: Name | None = Field(None, alias="from")
    column: str = "value"
    columns: dict[str, Annotated[str, BeforeValidator(_column_type)]] = Field(
        alias="schema", min_length=1
    )
    json_options: Texts = {}

    @model_validator(mode="after")
    def _has_no_names_of_records(self) -> "Parse":
        _refuse_names_of_records(self.columns)
        return self


class Step(_Part):
    """A named view: a query, or a watermark, deduplication or parsing of an earlier view."""

    view: Name
    sql: str | None = None
    watermark: ViewWatermark | None = None
    dedupe: Dedupe | None = None
    parse: Parse | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> "Step":
        keys = ("sql", "watermark", "dedupe", "parse")
        if sum(getattr(self, key) is not None for key in keys) != 1:
            known = ", ".join(map(repr, keys))
            raise _error(f"step {self.view!r} needs one of the keys {known}")
        return self

    @property
    def input(self) -> str | None:
        """The view that `from` names; None if it is left out, or if the step is a query."""
        part = self.watermark or self.dedupe or self.parse
        return part.view if part else None

    @property
    def from_location(self) -> Location:
        """The location of `from` in the step."""
        parts = ("watermark", "dedupe", "parse")
        return (next(each for each in parts if getattr(self, each)), "from")


Mode = Literal["append", "update", "complete"]


class Written(Coded):
    """Values or keys that are written; a registry gets their schema, or has it."""

    schema_text: Annotated[str, BeforeValidator(_schema_text)] | None = Field(None, alias="schema")
    """Made from the columns if it is left out."""
    references: list[Annotated[Any, PlainValidator(_reference)]] = []
    registers: bool = Field(True, alias="register")

    @model_validator(mode="after")
    def _has_schema(self) -> "Written":
        self._check_registered("schema_text", "references", "registers")
        if self.codec == "protobuf" and self.registers and self.schema_text is None:
            raise _error(
                "codec protobuf needs the key 'schema', or 'register: false' for the schema that"
                " the registry has: columns have no field numbers"
            )
        if not self.registers and (self.schema_text is not None or self.references):
            raise _error("with 'register: false' the registry has the schema: remove 'schema'")
        if self.registers and "version" in self.model_fields_set:
            raise _error("'version' needs 'register: false'")
        return self


class SinkKey(Written):
    """The codec of an output's keys."""

    codec: KeyCodec = "string"


class Sink(Written):
    """An output: its topic, and the codec that turns columns into values."""

    topic: Topic
    view: Name | None = Field(None, alias="from")
    where: str | None = None
    """A condition in SQL for the rows of the view that are written."""
    id: SinkId | None = None
    codec: Codec = "json"
    key: str | None = None
    key_codec: Annotated[SinkKey, BeforeValidator(_codec_alone)] = SinkKey.model_validate({})
    timestamp: str | None = None
    mode: Mode = "append"
    json_options: Texts = {}
    options: Texts = {}

    @property
    def with_keys(self) -> Mapping[str, Coded]:
        return {"codec": self, "key_codec": self.key_codec}


class FileSink(_Part):
    """An output into files: a folder for each batch below `path`."""

    path: Annotated[str, Field(min_length=1)]
    format: Literal["parquet", "json", "csv"]
    view: Name | None = Field(None, alias="from")
    where: str | None = None
    options: Annotated[dict[str, str], BeforeValidator(_texts_or_references)] = Field(
        {}, repr=False
    )


SINKS: Final[Mapping[str, type[_Part]]] = {"<topic>": Sink, "<files>": FileSink}
"""The kinds of sinks by their tags, which stand in the locations of pydantic's errors."""


def _kind_of_sink(given: object) -> str:
    names = given if isinstance(given, Mapping) else ()
    is_files = "topic" not in names and ("path" in names or "format" in names)
    return "<files>" if is_files else "<topic>"


_AnySink = Annotated[
    Annotated[Sink, Tag("<topic>")] | Annotated[FileSink, Tag("<files>")],
    Discriminator(_kind_of_sink),
]


class Job(_Part):
    """A job file."""

    name: SinkId
    bootstrap: str = "localhost:9092"
    source: Source | None = None
    sources: Annotated[list[Source], Field(min_length=1)] | None = None
    tables: list[Table] = []
    steps: list[Step] = []
    sink: Sink | None = None
    sinks: Annotated[list[_AnySink], Field(min_length=1)] | None = None
    bad_records: Topic = FAIL
    lineage: bool = False
    trigger: Annotated[str, BeforeValidator(_trigger)] = "0 seconds"
    checkpoint: Annotated[str, Field(min_length=1)]
    spark: Texts = {}
    security: Annotated[dict[str, Any], PlainValidator(_security)] = Field({}, repr=False)
    """The security keys of a client; `JobFile` puts their values in the place of references."""
    registry: Annotated[dict[str, Any], PlainValidator(_registry)] = Field({}, repr=False)
    """The keys of the schema registry, likewise."""

    @model_validator(mode="after")
    def _has_one_form(self) -> "Job":
        if (self.source is None) == (self.sources is None):
            raise _error("the job needs one of the keys 'source' and 'sources'")
        if (self.sink is None) == (self.sinks is None):
            raise _error("the job needs one of the keys 'sink' and 'sinks'")
        if not self.outputs:
            raise _error("the job needs a sink with a topic: its decisions end the batches")
        return self

    @property
    def inputs(self) -> Sequence[tuple[Location, Source]]:
        """The sources, each with its location."""
        if self.source is not None:
            return [(("source",), self.source)]
        return [(("sources", index), each) for index, each in enumerate(self.sources or ())]

    @property
    def outputs(self) -> Sequence[tuple[Location, Sink]]:
        """The sinks of topics, each with its location. Their rows are in one decision."""
        if self.sink is not None:
            return [(("sink",), self.sink)]
        sinks = enumerate(self.sinks or ())
        return [(("sinks", index), each) for index, each in sinks if isinstance(each, Sink)]

    @property
    def files(self) -> Sequence[tuple[Location, FileSink]]:
        """The sinks of files, each with its location."""
        sinks = enumerate(self.sinks or ())
        return [(("sinks", index), each) for index, each in sinks if isinstance(each, FileSink)]

    @property
    def every_sink(self) -> Sequence[tuple[Location, Sink | FileSink]]:
        """The sinks of topics, and those of files, each with its location."""
        return [*self.outputs, *self.files]

    @property
    def sink_id(self) -> str:
        """The sink's id: the `id` of a sink, or the name of the job."""
        return next((sink.id for _, sink in self.outputs if sink.id), self.name)

    @property
    def mode(self) -> Mode:
        """The output mode of the query."""
        given = (sink.mode for _, sink in self.outputs if "mode" in sink.model_fields_set)
        return next(given, "append")

    @property
    def sink_options(self) -> Mapping[str, str]:
        """The options of all sinks."""
        return {name: text for _, sink in self.outputs for name, text in sink.options.items()}

    @property
    def last_view(self) -> str:
        """The view that a sink writes unless `sink.from` names another."""
        return self.steps[-1].view if self.steps else self.inputs[-1][1].view

    @property
    def bad_topic(self) -> str | None:
        """The topic of records that cannot be parsed; None if they fail the job."""
        return None if self.bad_records == FAIL else self.bad_records

    @property
    def topics(self) -> Sequence[str]:
        """The topics that the job writes, each once; that of bad records is the last."""
        named = [sink.topic for _, sink in self.outputs]
        return list(dict.fromkeys([*named, *([self.bad_topic] if self.bad_topic else [])]))

    @property
    def unique_columns(self) -> Sequence[str]:
        """The columns of the values of which the job keeps the first row only."""
        known = self.inputs[0][1].columns.keys() if len(self.inputs) == 1 else ()
        for step in self.steps:
            if step.dedupe and set(step.dedupe.columns) <= set(known):
                return step.dedupe.columns
        return []

    @property
    def keeps_all(self) -> bool:
        """Whether every record must reach the output: no query, watermark or where drops any."""
        narrowing = any(step.sql or step.watermark for step in self.steps) or all(
            sink.where is not None for _, sink in self.outputs
        )
        if narrowing or len(self.inputs) != 1 or self.inputs[0][1].watermark is not None:
            return False
        # Of values with a schema id it is not known which ones are repetitions.
        return not (self.inputs[0][1].is_registered and any(step.dedupe for step in self.steps))

    @property
    def registry_settings(self) -> RegistrySettings:
        """The address of the schema registry, its login and TLS."""
        return read_settings(self.registry)


class Problem(Exception):
    """A fault of a job file: its location, and one line that says what to do."""

    def __init__(self, location: Location, text: str) -> None:
        super().__init__(text)
        self.location = location
        self.text = text


def check_references(job: Job) -> list[Problem]:
    """Return the faults between keys: views that are not there, options that have a key."""
    problems = []
    views: list[str] = []

    def add(location: Location, view: str) -> None:
        # Spark does not tell the case of names apart.
        if view.lower() in map(str.lower, views):
            text = f"view {view!r} is there already; choose another name"
            problems.append(Problem((*location, "view"), text))
        views.append(view)

    tables = [(("tables", index), table) for index, table in enumerate(job.tables)]
    for location, source in (*job.inputs, *tables):
        add(location, source.view)
    for index, step in enumerate(job.steps):
        if step.input is not None and step.input not in views:
            problems.append(_unknown_view(("steps", index, *step.from_location), step.input, views))
        add(("steps", index), step.view)
    for location, sink in job.every_sink:
        if sink.view is not None and sink.view not in views:
            problems.append(_unknown_view((*location, "from"), sink.view, views))
        if sink.view in [table.view for table in job.tables]:
            text = f"view {sink.view!r} is a table; a sink writes the view of a stream"
            problems.append(Problem((*location, "from"), text))
    if job.bad_topic in [sink.topic for _, sink in job.outputs]:
        problems.append(Problem(("bad_records",), "bad records need a topic of their own"))
    problems += _contradictions(job) + _faults_of_files(job)
    of_topics = [each for each in tables if each[1].format is None]
    parts: list[tuple[Location, Source | Sink]] = [*job.inputs, *of_topics, *job.outputs]
    for location, part in parts:
        for key, coded in part.with_keys.items():
            if coded.is_registered and not job.registry:
                text = f"codec {coded.codec} needs the key 'registry', the address of a registry"
                problems.append(Problem((*location, key), text))
        for name in part.options:
            owner = _SET_BY_KEY.get(name.lower())
            if is_security(name):
                owner = "security"
            if owner:
                text = f"option {name!r} is set by {owner}; remove it"
                problems.append(Problem((*location, "options", name), text))
    return problems


def _contradictions(job: Job) -> list[Problem]:
    """Return the faults between sinks: one batch has one id, one mode and one set of options."""
    problems = []
    known: dict[Location, tuple[str, Any]] = {}
    written: set[tuple[str, str, str | None]] = set()
    for location, sink in job.outputs:
        given: dict[Location, Any] = {
            (name,): getattr(sink, name) for name in ("id", "mode") if name in sink.model_fields_set
        }
        given |= {("options", name): text for name, text in sink.options.items()}
        for key, value in given.items():
            name, first = known.setdefault(key, (sink.topic, value))
            if value != first:
                text = (
                    f"{key[-1]} {value!r} contradicts {first!r} of the sink for {name}: the sinks"
                    " of a job have one batch, so give it once"
                )
                problems.append(Problem((*location, *key), text))
        _, codec = known.setdefault(("codec of", sink.topic), ("", sink.codec))
        if codec != sink.codec:
            text = f"topic {sink.topic} has codec {codec} in an earlier sink; a topic has one codec"
            problems.append(Problem((*location, "codec"), text))
        target = (sink.topic, sink.view or job.last_view, sink.where)
        if target in written and codec == sink.codec:
            text = f"an earlier sink writes these rows to {sink.topic} already; remove this one"
            problems.append(Problem((*location, "topic"), text))
        written.add(target)
    return problems


def _faults_of_files(job: Job) -> list[Problem]:
    problems = []
    paths: set[str] = set()
    for location, sink in job.files:
        if job.mode != "append":
            text = f"files take rows that stay as they are: mode {job.mode} has no files"
            problems.append(Problem(location, text))
        path = sink.path.rstrip("/")
        if path in paths:
            text = f"an earlier sink writes files to {path}; choose another path"
            problems.append(Problem((*location, "path"), text))
        paths.add(path)
        for name in sink.options:
            if name.lower() == "path":
                text = f"option {name!r} is set by path; remove it"
                problems.append(Problem((*location, "options", name), text))
    return problems


def _unknown_view(location: Location, name: str, views: Sequence[str]) -> Problem:
    return Problem(location, f"no view {name!r} stands before; {nearest(name, views)}")
