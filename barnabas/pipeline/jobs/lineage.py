"""Lineage: the header that names the input records of an output record, and how often each came.

`lineage: true` adds the header. Its value is a list of places such as `orders/0@17`, separated by
commas; a record of an aggregate has several.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

LINEAGE_HEADER: Final = "barnabas.lineage"


Partition = tuple[str, int]


class InputPlace(NamedTuple):
    """The place of an input record."""

    topic: str
    partition: int
    offset: int

    @property
    def of(self) -> Partition:
        """The topic and number of the partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


class RecordRange(NamedTuple):
    """Offsets of a partition that follow each other among its records; `last` is included."""

    topic: str
    partition: int
    first: int
    last: int
    records: int

    def __str__(self) -> str:
        many = f"..{self.last}" if self.last > self.first else ""
        return f"{self.topic}/{self.partition}@{self.first}{many}"


def parse_places(value: bytes) -> list[InputPlace]:
    """Return the places in the value of a header; raises ValueError."""
    return [_place(part) for part in value.decode("ascii").split(",")] if value else []


def _place(text: str) -> InputPlace:
    partition_of, at, offset = text.rpartition("@")
    topic, slash, partition = partition_of.rpartition("/")
    if not (at and slash and topic and partition.isdigit() and offset.isdigit()):
        raise ValueError(f"{text!r} is not TOPIC/PARTITION@OFFSET")
    return InputPlace(topic, int(partition), int(offset))


class Lineage:
    """The multiplicity of each input record in the output; filled in any order."""

    def __init__(self) -> None:
        self._inputs: dict[Partition, set[int]] = {}
        self._counts: dict[str, dict[Partition, Counter[int]]] = {}
        """By topic of the output: several sinks may write the same records."""
        self._same: dict[InputPlace, Hashable] = {}
        self.outputs = 0
        """The number of output records with lineage."""

    def read(self, place: InputPlace, key: Hashable | None = None) -> None:
        """Note an input record; of all records with the same key, one is enough."""
        self._inputs.setdefault(place.of, set()).add(place.offset)
        if key is not None:
            self._same[place] = key

    def wrote(self, topic: str, places: Iterable[InputPlace]) -> None:
        """Note an output record of a topic with the places in its header."""
        self.outputs += 1
        counts = self._counts.setdefault(topic, {})
        for place in places:
            counts.setdefault(place.of, Counter())[place.offset] += 1

    @property
    def inputs(self) -> int:
        """The number of input records."""
        return sum(map(len, self._inputs.values()))

    def seen(self, partition: Partition) -> range:
        """Return the offsets from the first to the last that the output names."""
        named = self._named(partition)
        return range(min(named), max(named) + 1) if named else range(0)

    def foreign(self, starts: Mapping[Partition, int]) -> list[RecordRange]:
        """Return the places in the output that are not in the input.

        Records before `starts` may have been deleted since.
        """
        return self._ranges(
            {
                each: {
                    offset
                    for offset in self._named(each) - self._inputs.get(each, set())
                    if offset >= starts.get(each, 0)
                }
                for each in set().union(*self._counts.values())
            }
        )

    def repeated(self) -> list[RecordRange]:
        """Return the input records that came into one topic more than once."""
        chosen: dict[Partition, set[int]] = {}
        for by_partition in self._counts.values():
            for each, counts in by_partition.items():
                found = {offset for offset, count in counts.items() if count > 1}
                chosen.setdefault(each, set()).update(found)
        return self._ranges(chosen)

    def missing(self, due: Mapping[Partition, range]) -> list[RecordRange]:
        """Return the input records in the ranges that came never, and no equal one came."""
        present = {key for place, key in self._same.items() if self._came(place)}
        return self._ranges(
            {
                partition: {
                    offset
                    for offset in self._never(partition, offsets)
                    if self._same.get(InputPlace(*partition, offset)) not in present
                }
                for partition, offsets in due.items()
            }
        )

    def dropped(self, due: Mapping[Partition, range]) -> int:
        """Return the number of records in the ranges that never came because an equal one did."""
        never = sum(len(self._never(partition, offsets)) for partition, offsets in due.items())
        return never - sum(each.records for each in self.missing(due))

    def _came(self, place: InputPlace) -> bool:
        return any(place.offset in each.get(place.of, ()) for each in self._counts.values())

    def _named(self, partition: Partition) -> set[int]:
        """Return the offsets of a partition that the output names."""
        return set().union(*(each.get(partition, ()) for each in self._counts.values()))

    def _never(self, partition: Partition, due: range) -> set[int]:
        inputs = {each for each in self._inputs.get(partition, ()) if each in due}
        return inputs - self._named(partition)

    def _ranges(self, chosen: Mapping[Partition, set[int]]) -> list[RecordRange]:
        """Return chosen offsets as ranges: those with no other input between them together."""
        found = []
        for partition, offsets in sorted(chosen.items()):
            group: list[int] = []
            for offset in sorted(offsets | self._inputs.get(partition, set())):
                if offset in offsets:
                    group.append(offset)
                elif group:
                    found.append(RecordRange(*partition, group[0], group[-1], len(group)))
                    group = []
            if group:
                found.append(RecordRange(*partition, group[0], group[-1], len(group)))
        return found
