"""The options of Spark's readers and writers for the parts of a job."""

from collections.abc import Mapping
from typing import Final

from barnabas.pipeline.jobs.spec import AVAILABLE_NOW, Job, Location, Problem, Source
from barnabas.pipeline.security import options_of
from barnabas.pipeline.sink.options import SinkOptionsError
from barnabas.pipeline.sink.options import parse_options as parse_sink_options
from barnabas.pipeline.source.option_values import OptionError
from barnabas.pipeline.source.options import ENDINGS
from barnabas.pipeline.source.options import read_options as read_source_options

FORMAT: Final = "barnabas"


def check_options(job: Job) -> None:
    """Raise Problem for an option that a source or the sink refuses."""
    for location, source in job.inputs:
        source_options(job, location, source)
    for index, table in enumerate(job.tables):
        if table.format is None:
            source_options(job, ("tables", index), table, stream=False)
    sink_options(job)


def source_options(
    job: Job, location: Location, source: Source, *, stream: bool = True
) -> dict[str, str]:
    """Return the options of a stream or a table; raises Problem for one that is refused."""
    options = dict(source.options)
    if source.topics is not None:
        options["subscribe"] = ",".join(source.topics)
    else:
        options["subscribePattern"] = source.pattern or ""
    options["kafka.bootstrap.servers"] = job.bootstrap
    options |= options_of(job.security)
    if source.has_schemas or (stream and job.bad_topic is not None):
        # Bad records leave with their headers, and a header may have the id of a schema.
        options["includeHeaders"] = "true"
    if stream and job.trigger != AVAILABLE_NOW:
        for name in source.options:
            if name.lower() in map(str.lower, ENDINGS):
                text = f"option {name!r} needs the trigger {AVAILABLE_NOW}: a stream has no end"
                raise Problem((*location, "options", name), text)
    try:
        read_source_options(options, stream=stream)
    except OptionError as error:
        raise _option_problem(location, source.options, str(error)) from None
    return options


def sink_options(job: Job) -> dict[str, str]:
    """Return the options for `writeStream`; raises Problem for one that the sink refuses."""
    options = dict(job.sink_options)
    options["kafka.bootstrap.servers"] = job.bootstrap
    options |= options_of(job.security)
    options["sinkId"] = job.sink_id
    try:
        parse_sink_options(options, streaming=True)
    except SinkOptionsError as error:
        problems = [
            _option_problem(location, sink.options, str(error)) for location, sink in job.outputs
        ]
        # At the option that it names, if one has it.
        raise max(problems, key=lambda each: len(each.location)) from None
    return options


def _option_problem(location: Location, options: Mapping[str, str], text: str) -> Problem:
    """Return a refusal of source or sink, at the option that it names."""
    named = [name for name in options if name.lower() in text.lower()]
    longest = sorted(named, key=len)[-1:]
    return Problem((*location, "options", *longest), text)
