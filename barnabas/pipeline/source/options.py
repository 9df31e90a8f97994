"""The options of the source: names, defaults and refusals of Spark's stock Kafka connector.

Two differ: `kafka.isolation.level` is read_committed by default, so a range that was planned always
has the same rows. And an option that has no effect is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas.client.cluster import parse_address
from barnabas.config.key import ConfigError
from barnabas.pipeline.security import OPEN, Security, split_security
from barnabas.pipeline.source.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    Bound,
    ByPartition,
    Everywhere,
    OffsetsError,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    spell,
)
from barnabas.pipeline.source.option_values import OptionError, Options
from barnabas.protocol.topic_partition import TopicPartition

T = TypeVar("T")

SERVERS = "kafka.bootstrap.servers"
CHECK = "kafka.metadata.cluster.check.enable"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SELECTIONS = ("subscribe", "subscribePattern", "assign")
PROGRESS_GROUP = "progressGroup"
KNOWN = (
    *SELECTIONS,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "minOffsetsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    PROGRESS_GROUP,
    SERVERS,
    "kafka.client.id",
    "kafka.isolation.level",
    "kafka.default.api.timeout.ms",
    "kafka.request.timeout.ms",
    "kafka.fetch.min.bytes",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.max.partition.fetch.bytes",
    CHECK,
)

_CHECKPOINT = "Spark's checkpoint holds the position, remove this option"
_TIMEOUT = "set kafka.default.api.timeout.ms, which bounds each call with its retries"
_BINARY = "keys and values are binary columns, remove this option and CAST them"
_GROUP = f"the source joins no group, remove this option; lag tools use {PROGRESS_GROUP}"
_NO_CACHE = "a Python worker keeps its connections, remove this option"
ADVICE = {
    "path": "call load() without a path, and give subscribe, subscribePattern or assign",
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest",
    "kafka.key.deserializer": _BINARY,
    "kafka.value.deserializer": _BINARY,
    "kafka.enable.auto.commit": _CHECKPOINT,
    "kafka.interceptor.classes": "remove this option",
    "kafka.group.id": _GROUP,
    "groupIdPrefix": _GROUP,
    "kafkaConsumer.pollTimeoutMs": _TIMEOUT,
    "fetchOffset.numRetries": _TIMEOUT,
    "fetchOffset.retryIntervalMs": _TIMEOUT,
    "kafka.max.poll.records": "set maxOffsetsPerTrigger or maxRecordsPerPartition",
    "kafka.session.timeout.ms": _GROUP,
    "kafka.heartbeat.interval.ms": _GROUP,
    "kafka.partition.assignment.strategy": _GROUP,
    "kafka.consumer.cache.capacity": _NO_CACHE,
    "kafka.consumer.cache.timeout": _NO_CACHE,
}


class Subscribe(NamedTuple):
    """All partitions of topics by name."""

    topics: tuple[str, ...]


class Pattern(NamedTuple):
    """All partitions of the topics whose whole name matches, internal ones left out."""

    regex: str


class Assign(NamedTuple):
    """Partitions that are named one by one."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | Pattern | Assign


class Fetching(NamedTuple):
    """The settings of the connections and Fetch requests; sizes in bytes, times in s."""

    servers: str
    client_id: str = "barnabas-source"
    timeout: float = 60.0
    request_timeout: float = 30.0
    read_committed: bool = True
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    partition_max_bytes: int = 2_097_152
    """More than Kafka's 1 MiB: a task reads one partition, and each response costs a wake-up."""
    max_wait: float = 0.5
    security: Security = OPEN
    check_cluster: bool = True


NO_END: Final = Everywhere(LATEST)
ENDINGS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
"""The options of the end of a batch, or of a stream with Trigger.AvailableNow."""


class SourceOptions(NamedTuple):
    """The options of a batch or a stream, checked."""

    fetching: Fetching
    selection: Selection
    start: Bound
    end: Bound
    error_without_match: bool
    """Fail if a starting timestamp has no record at or after it; otherwise start at the end."""
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records: int | None
    min_offsets: int | None
    max_offsets: int | None
    max_delay: float
    """Seconds after which a trigger runs with fewer offsets than `min_offsets`."""
    progress_group: str | None


def includes_headers(given: Mapping[str, str]) -> bool:
    """Return whether the schema has the column of headers.

    Spark asks for the schema first, and does not tell whether for a stream. Raises OptionError for
    options that neither a stream nor a batch can have.
    """
    try:
        return read_options(given, stream=True).include_headers
    except OptionError:
        return read_options(given, stream=False).include_headers


def read_options(given: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """Check the options of a batch or a stream. Raises OptionError, one line."""
    try:
        security, rest = split_security(given)
    except ConfigError as error:
        raise OptionError(str(error)) from None
    options = Options(rest, KNOWN, ADVICE)
    least, most = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        text = f"{least} is higher than maxOffsetsPerTrigger, {most}: lower it"
        raise OptionError(f"option minOffsetsPerTrigger contradicts another: {text}")
    start = _bound(options, "starting", Everywhere(LATEST if stream else EARLIEST))
    end = _bound(options, "ending", NO_END)
    if not stream or end != NO_END:
        _check_batch(start, end)
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    group = options.spelled(PROGRESS_GROUP)
    if group == "":
        raise options.bad(PROGRESS_GROUP, "give the name of a group, or remove the option")
    return SourceOptions(
        fetching=_fetching(options)._replace(security=security),
        selection=_selection(options),
        start=start,
        end=end,
        error_without_match=strategy == "error",
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        include_headers=options.boolean("includeHeaders", False),
        min_partitions=options.number("minPartitions", high=2**31 - 1),
        max_records=options.number("maxRecordsPerPartition"),
        min_offsets=least,
        max_offsets=most,
        max_delay=options.milliseconds("maxTriggerDelay", 15 * 60_000) / 1000,
        progress_group=group,
    )


def _fetching(options: Options) -> Fetching:
    fetching = Fetching(options.required(SERVERS, "localhost:9092"))
    try:
        for part in fetching.servers.split(","):
            parse_address(part.strip())
    except ValueError:
        raise options.bad(SERVERS, "give HOST:PORT, with commas between several") from None
    isolation = options.choice(
        "kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
    )
    timeout = options.number("kafka.default.api.timeout.ms", high=2**31 - 1)
    request = options.number("kafka.request.timeout.ms", high=2**31 - 1)
    wait = options.number("kafka.fetch.max.wait.ms", low=0, high=2**31 - 1)
    size = 2**31 - 1
    partition_max_bytes = options.number("kafka.max.partition.fetch.bytes", high=size)
    return Fetching(
        servers=fetching.servers,
        client_id=options.spelled("kafka.client.id") or fetching.client_id,
        timeout=fetching.timeout if timeout is None else timeout / 1000,
        request_timeout=fetching.request_timeout if request is None else request / 1000,
        read_committed=isolation == "read_committed",
        min_bytes=options.number("kafka.fetch.min.bytes", low=0, high=size) or fetching.min_bytes,
        max_bytes=options.number("kafka.fetch.max.bytes", high=size) or fetching.max_bytes,
        partition_max_bytes=partition_max_bytes or fetching.partition_max_bytes,
        max_wait=fetching.max_wait if wait is None else wait / 1000,
        check_cluster=options.boolean(CHECK, fetching.check_cluster),
    )


def _selection(options: Options) -> Selection:
    given = [name for name in SELECTIONS if name in options]
    if not given:
        text = "give one of subscribe, subscribePattern and assign"
        raise OptionError(f"no option says which topics to read: {text}")
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} contradict each other: give one of them")
    text = options.spelled(given[0]) or ""
    if given[0] == "assign":
        return Assign(tuple(_parsed(options, "assign", parse_partitions)))
    if given[0] == "subscribe":
        topics = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
        if not topics:
            raise options.bad("subscribe", "give topics with commas between them")
        for name in topics:
            if not _TOPIC.fullmatch(name):
                raise options.bad("subscribe", f"{name!r} cannot be the name of a topic")
        return Subscribe(tuple(topics))
    if not text:
        raise options.bad("subscribePattern", "give a pattern such as orders-.*")
    try:
        re.compile(text)
    except re.error as error:
        raise options.bad("subscribePattern", f"correct the pattern, {error}") from None
    return Pattern(text)


def _bound(options: Options, side: str, default: Bound) -> Bound:
    """Return the start or the end; the order of precedence is that of the stock connector."""
    at_time, at_times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    timestamp = options.number(at_time, low=0)
    if timestamp is not None:
        return AtTime(timestamp)
    if at_times in options:
        return AtTimes(_parsed(options, at_times, parse_timestamps))
    text = options.spelled(offsets)
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise options.bad(offsets, 'give earliest, latest or offsets such as {"topicA":{"0":23}}')
    return ByPartition(_parsed(options, offsets, parse_offsets))


def _parsed(options: Options, name: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(options.spelled(name) or "")
    except OffsetsError as error:
        raise options.bad(name, str(error)) from None


def _check_batch(start: Bound, end: Bound) -> None:
    """Refuse a batch that starts at the end, ends at the start, or ends before it starts."""
    latest = _with(start, LATEST)
    if latest is not None:
        text = "a batch cannot start at the end, give earliest, offsets or a timestamp"
        raise OptionError(f"option startingOffsets is latest{latest}: {text}")
    earliest = _with(end, EARLIEST)
    if earliest is not None:
        text = "a batch cannot end at the start, give latest, offsets or a timestamp"
        raise OptionError(f"option endingOffsets is earliest{earliest}: {text}")
    pairs = (
        (start.offsets, end.offsets)
        if isinstance(start, ByPartition) and isinstance(end, ByPartition)
        else (start.timestamps, end.timestamps)
        if isinstance(start, AtTimes) and isinstance(end, AtTimes)
        else ({}, {})
    )
    if odd := pairs[0].keys() ^ pairs[1].keys():
        text = f"only one of them has {spell(odd)}"
        raise OptionError(f"starting and ending offsets need the same partitions: {text}")
    for partition, first in pairs[0].items():
        last = pairs[1][partition]
        if first > last >= 0:
            text = f"it starts at {first} and ends at {last}, swap or correct them"
            raise OptionError(f"partition {spell([partition])} ends before it starts: {text}")


def _with(bound: Bound, offset: int) -> str | None:
    """Return where a bound has EARLIEST or LATEST, as words; None if nowhere."""
    if isinstance(bound, Everywhere) and bound.offset == offset:
        return ""
    if isinstance(bound, ByPartition):
        found = [partition for partition, each in bound.offsets.items() if each == offset]
        return f" for {spell(found)}" if found else None
    return None
