"""The published table: the differences between two answers that do not count.

All fields that this table does not name are compared unchanged. docs/COMPATIBILITY.md prints it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from barnabas.protocol.apis import api
from barnabas.protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    BatchHeader,
    crc_matches,
    read_header,
)
from barnabas.protocol.schema import Message, fields_of
from tests.referee.releases import WITHOUT_OLD_VERSIONS, is_later, last_version, referee
from tests.referee.scenario import CLOSED, Exchange
from tests.support.raw import SERVED


class How(Enum):
    """The treatment of a field before the comparison."""

    NAMED = "each distinct value gets a name, by first appearance in the scenario"
    PRESENT = "only whether it is there"
    SORTED = "the order of the list does not count"
    SERVED = "only what both have"
    IGNORED = "not compared"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: the field (`Api.field.field`, `*` for any), its treatment, and the
    reason."""

    path: str
    how: How
    why: str


TABLE = (
    Rule("*.error_message", How.PRESENT, "texts for people are our own"),
    Rule("*.documentation", How.PRESENT, "texts for people are our own"),
    Rule("*.batch_index_error_message", How.PRESENT, "texts for people are our own"),
    Rule("*.cluster_id", How.PRESENT, "each cluster has its own"),
    Rule("*.port", How.NAMED, "each broker listens on its own"),
    Rule("*.topic_id", How.NAMED, "drawn at random"),
    Rule("*.member_id", How.NAMED, "ends in a random uuid"),
    Rule("JoinGroup.leader", How.NAMED, "ends in a random uuid"),
    Rule("Fetch.session_id", How.NAMED, "drawn at random"),
    Rule("*.producer_id", How.NAMED, "depends on who asked before"),
    Rule("*.coordinator_epoch", How.NAMED, "counts the elections of a leader"),
    Rule("*.log_append_time_ms", How.PRESENT, "the broker's clock"),
    Rule("DescribeProducers.*.last_timestamp", How.PRESENT, "the broker's clock after a marker"),
    Rule("DescribeTransactions.*_start_time_ms", How.PRESENT, "the broker's clock"),
    Rule("ListTransactions.transaction_states", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DescribeTransactions.*topics*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DescribeProducers.*active_producers", How.SORTED, "Kafka's order is that of a hash"),
    Rule("*.results_by_*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("*.topic_results*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("WriteTxnMarkers.markers", How.SORTED, "Kafka's order is that of a hash"),
    Rule("WriteTxnMarkers.markers.topics*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("Fetch.*.aborted_transactions", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DescribeLogDirs.results.topics*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DescribeLogDirs.results.log_dir", How.PRESENT, "a path on this machine"),
    Rule("DescribeLogDirs.results.*_bytes", How.PRESENT, "of the machine's disk"),
    Rule("*UserScramCredentials.results", How.SORTED, "Kafka's order is that of a hash"),
    Rule("*ClientQuotas.entries*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("*.credential_infos", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DeleteGroups.results", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DeleteTopics.responses", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DeleteRecords.topics*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("ListOffsets.topics*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DescribeConfigs.results.configs", How.SORTED, "Kafka's order is that of a hash"),
    Rule("ListConfigResources.config_resources", How.SORTED, "Kafka's order is that of a hash"),
    Rule("Produce.responses*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("Fetch.responses*", How.SORTED, "Kafka puts those with errors last"),
    Rule("*AlterConfigs.responses", How.SORTED, "Kafka puts refused ones first"),
    Rule("DescribeProducers.topics", How.SORTED, "Kafka puts refused ones first"),
    Rule("DescribeTransactions.transaction_states", How.SORTED, "Kafka puts refused ones first"),
    Rule("OffsetCommit.topics*", How.SORTED, "Kafka puts those with errors first"),
    Rule("OffsetDelete.topics*", How.SORTED, "Kafka puts those with errors first"),
    Rule("TxnOffsetCommit.topics*", How.SORTED, "Kafka puts those with errors first"),
    Rule("OffsetFetch.*topics*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("DescribeGroups.groups*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("ConsumerGroup*.topic_partitions", How.SORTED, "Kafka's order is that of a hash"),
    Rule("ConsumerGroupDescribe.groups*", How.SORTED, "Kafka's order is that of a hash"),
    Rule("JoinGroup.members", How.SORTED, "Kafka's order is that of a hash"),
    Rule("Metadata.topics", How.SORTED, "Kafka puts those with errors last"),
    Rule("*.configs", How.SERVED, "tiered storage is Kafka's alone, one key is Barnabas's alone"),
    Rule("ApiVersions.api_keys", How.SERVED, "other APIs come with later releases"),
    Rule("ApiVersions.*_features", How.SERVED, "the others are of KRaft and of later releases"),
    Rule("ApiVersions.finalized_features_epoch", How.IGNORED, "counts the records of KRaft's log"),
)

ABSENT: tuple[Any, ...] = (None, "", -1, 0, bytes(16))
"""Values that mean "none" and never get a name."""

COORDINATOR_EPOCH = slice(12, 16)
"""The position of the coordinator epoch in the record of a marker."""

_OF_ONE_BROKER = ("remote.storage.", "remote.log.", "local.retention.", "message.records.")
"""Beginnings of topic keys that only one of the two brokers has."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(^|(?<=-))[A-Za-z0-9_-]{22}$")


def plain(value: Any, version: int) -> Any:
    """Return a message as dicts and lists, with the fields of its version; records as batches."""
    if isinstance(value, Message):
        return {
            spec.name: (
                _batches(getattr(value, spec.name))
                if spec.type.kind == "records"
                else plain(getattr(value, spec.name), version)
            )
            for spec in fields_of(type(value))
            if spec.exists(version)
        }
    if isinstance(value, list | tuple):
        return [plain(item, version) for item in value]
    return value


def _batches(records: Any) -> Any:
    if records is None:
        return None
    shown: list[Any] = []
    at = 0
    while at + HEADER_SIZE <= len(records):
        header = read_header(records, at, False)
        if at + header.size > len(records):
            break
        shown.append(_batch(records, at, header))
        at += header.size
    if at < len(records):
        shown.append({"cut off after bytes": len(records) - at})
    return shown


def _batch(records: Any, at: int, header: BatchHeader) -> dict[str, Any]:
    shown = header._asdict()
    shown["crc"] = "fits" if crc_matches(records, at, header) else "does not fit"
    if header.timestamp_type:
        shown["log_append_time_ms"] = shown.pop("max_timestamp")
    payload = bytes(records[at + HEADER_SIZE : at + header.size])
    if header.attributes & CONTROL:
        shown["log_append_time_ms"] = shown.pop("max_timestamp")
        del shown["base_timestamp"]
        shown["coordinator_epoch"] = int.from_bytes(payload[COORDINATOR_EPOCH])
        payload = payload[: COORDINATOR_EPOCH.start] + payload[COORDINATOR_EPOCH.stop :]
    return shown | {"payload": payload.hex()}


@dataclass(slots=True)
class Normaliser:
    """The table, applied to the answers of one scenario on one broker, in their order."""

    names: dict[Any, str] = field(default_factory=dict)

    def __call__(self, exchange: Exchange) -> Any:
        """Return the answer in the form in which it is compared."""
        if exchange.answer == CLOSED:
            return CLOSED
        answer = _sorted(exchange.api.name, plain(exchange.answer, exchange.version))
        return self._walk(exchange.api.name, answer)

    def _walk(self, path: str, value: Any) -> Any:
        for rule in _rules(path):
            value = self._apply(rule.how, value)
        return self._inside(path, value)

    def _inside(self, path: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._walk(f"{path}.{key}", item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._inside(path, item) for item in value]
        return value

    def _apply(self, how: How, value: Any) -> Any:
        match how:
            case How.IGNORED:
                return "ignored"
            case How.PRESENT:
                return "absent" if value in ABSENT else "present"
            case How.SORTED:
                return value
            case How.SERVED:
                return [_as_in_both(entry) for entry in value if _is_served(entry)]
            case How.NAMED:
                return self._named(value)

    def _named(self, value: Any) -> Any:
        if value in ABSENT:
            return value
        if isinstance(value, str):
            return _UUID.sub(lambda found: self._name(found[0]), value)
        return self._name(value)

    def _name(self, value: Any) -> str:
        return self.names.setdefault(value, f"#{len(self.names) + 1}")


def _rules(path: str) -> list[Rule]:
    return [rule for rule in TABLE if fnmatchcase(path, rule.path)]


def _sorted(path: str, value: Any) -> Any:
    """Sort lists from the inside out, before any value in them gets a name."""
    if isinstance(value, dict):
        return {key: _sorted(f"{path}.{key}", item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items = [_sorted(path, item) for item in value]
    if any(rule.how is How.SORTED for rule in _rules(path)):
        items.sort(key=lambda item: repr(_identity(item)))
    return items


def _is_served(entry: dict[str, Any]) -> bool:
    """Return whether both brokers have an API, a config key or a feature at all."""
    if "api_key" in entry:
        return entry["api_key"] in SERVED
    if "value" in entry:
        return not entry["name"].startswith(_OF_ONE_BROKER) and not is_later(entry["name"])
    return bool(entry["name"] == "transaction.version")


def _as_in_both(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an API of an answer with the versions that an older referee may have as well."""
    if "api_key" not in entry:
        return entry
    ours = api(entry["api_key"])
    shown = entry | {"max_version": min(entry["max_version"], last_version(ours))}
    if referee() < WITHOUT_OLD_VERSIONS:
        shown["min_version"] = max(entry["min_version"], ours.versions[0])
    return shown


def _identity(entry: Any) -> Any:
    """Return the key of a list's entry: its name or index, for topic ids the rest of the entry."""
    if not isinstance(entry, dict):
        return entry
    subject = [_sortable(entry[key]) for key in _SUBJECTS if entry.get(key) is not None]
    return subject or [repr(value) for value in entry.values() if not isinstance(value, bytes)]


def _sortable(value: Any) -> str:
    return f"{value:020}" if isinstance(value, int) else str(value)


_SUBJECTS = (
    *("name", "group_id", "member_id", "transactional_id"),
    *("topic", "topic_name", "partition_index", "partition", "index", "producer_id"),
)


def _by_name(value: Any) -> Any:
    """Return a list of named entries as a dict, so that one additional entry is one difference."""
    if isinstance(value, list) and all(isinstance(e, dict) and "name" in e for e in value):
        named = {entry["name"]: entry for entry in value}
        if len(named) == len(value):
            return named
    return value


def differences(kafka: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two normalised answers: the field, Kafka's value and ours."""
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) != len(ours):
        theirs, mine = _by_name(kafka), _by_name(ours)
        if isinstance(theirs, dict) and isinstance(mine, dict):
            for name in theirs | mine:
                pair = theirs.get(name, "nothing"), mine.get(name, "nothing")
                yield from differences(*pair, f"{path}[{name}]")
            return
    if isinstance(kafka, dict) and isinstance(ours, dict) and kafka.keys() == ours.keys():
        for key in kafka:
            yield from differences(kafka[key], ours[key], f"{path}.{key}")
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, pair in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif kafka != ours:
        yield path, kafka, ours


def normalised(transcript: Iterable[Exchange]) -> list[Any]:
    """Return all answers of a transcript; names are assigned over the whole transcript."""
    normalise = Normaliser()
    return [normalise(exchange) for exchange in transcript]
