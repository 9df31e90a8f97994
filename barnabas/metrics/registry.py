"""Metrics that cost an integer addition: cells for the hot path, collected only by a scrape.

The app owns one `Registry`. A family is asked once for the cell of its label values; the caller
keeps the cell and adds to it:

    bytes_in = registry.counter("kafka_..._bytesin_total", "Bytes ...", ("topic",))
    cell = bytes_in.cell("orders")
    cell.value += len(batch)

Only the event loop uses cells and `snapshot`, so an addition needs no lock.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Generic, Literal, NamedTuple, TypeVar

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram"]

LATENCY_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30000)
"""Upper bounds for times in milliseconds, from a cached response to a timeout."""

LATENCY_SECONDS: Final = tuple(bound / 1000 for bound in LATENCY_MS)
"""The same bounds in seconds."""


class Cell:
    """One number. The number of a counter only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class HistogramCell:
    """Counts of observations between the bounds, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        """Count one observation; a bucket includes its upper bound, as in Prometheus."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class HistogramSample(NamedTuple):
    """A copy of a histogram cell: counts by bucket; the last bucket is above every bound."""

    bounds: Sequence[float]
    counts: tuple[int, ...]
    sum: float


class FamilySnapshot(NamedTuple):
    """A metric at one moment: its samples by label values."""

    name: str
    help: str
    kind: Kind
    labels: Labels
    samples: list[tuple[Labels, float | HistogramSample]]


Read = Callable[[], float]
ReadLabelled = Callable[[], Iterable[tuple[Labels, float]]]
C = TypeVar("C", Cell, HistogramCell)


class Family(Generic[C]):
    """One metric: cells by label values, or a function that is called by each scrape."""

    def __init__(
        self, name: str, help: str, kind: Kind, labels: Labels, make: Callable[[], C]
    ) -> None:
        self.name = name
        self.help = help
        self.kind: Kind = kind
        self.labels = labels
        self._make: Callable[[], C] = make
        self._cells: dict[Labels, C] = {}
        self._read: ReadLabelled | None = None

    def cell(self, *values: str) -> C:
        """Return the cell of these label values, always the same one."""
        cell = self._cells.get(values)
        if cell is None:
            if len(values) != len(self.labels):
                raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
            cell = self._cells[values] = self._make()
        return cell

    def remove(self, *values: str) -> None:
        """Drop the cell of a topic, group or listener that no longer exists."""
        self._cells.pop(values, None)

    def read_with(self, read: Read) -> None:
        """Call `read` for the value of a metric without labels in each scrape."""
        self._read = lambda: [((), read())]

    def read_each_with(self, read: ReadLabelled) -> None:
        """Call `read` in each scrape for all samples, as pairs of label values and value."""
        self._read = read

    def snapshot(self) -> FamilySnapshot:
        """Return a copy of every sample."""
        samples: list[tuple[Labels, float | HistogramSample]] = [
            (values, _copy(cell)) for values, cell in self._cells.items()
        ]
        if self._read is not None:
            samples.extend(self._read())
        return FamilySnapshot(self.name, self.help, self.kind, self.labels, samples)


def _copy(cell: Cell | HistogramCell) -> float | HistogramSample:
    if isinstance(cell, Cell):
        return cell.value
    return HistogramSample(cell.bounds, tuple(cell.counts), cell.sum)


class Registry:
    """All metrics of one broker. A name is registered only once."""

    def __init__(self) -> None:
        self._families: dict[str, Family[Cell] | Family[HistogramCell]] = {}

    def counter(self, name: str, help: str, labels: Labels = ()) -> Family[Cell]:
        """Register a number that only grows; its name ends in `_total`."""
        if not name.endswith("_total"):
            raise ValueError(f"a counter's name ends in _total: {name}")
        return self._add(Family(name, help, "counter", labels, Cell))

    def gauge(
        self, name: str, help: str, labels: Labels = (), read: Read | None = None
    ) -> Family[Cell]:
        """Register a number that rises and falls; `read` returns it in each scrape."""
        family = self._add(Family(name, help, "gauge", labels, Cell))
        if read is not None:
            family.read_with(read)
        return family

    def histogram(
        self,
        name: str,
        help: str,
        labels: Labels = (),
        buckets: Sequence[float] = LATENCY_MS,
    ) -> Family[HistogramCell]:
        """Register a histogram; `buckets` are the upper bounds, ascending."""
        bounds = tuple(buckets)
        return self._add(Family(name, help, "histogram", labels, lambda: HistogramCell(bounds)))

    def leave_out(self, labels: Labels) -> None:
        """Report no metric with exactly these labels; their cells can still be used."""
        self._families = {
            name: family for name, family in self._families.items() if family.labels != labels
        }

    def snapshot(self, names: Collection[str] | None = None) -> Iterator[FamilySnapshot]:
        """Yield the metrics with these names, or all, in order of registration; each is copied
        when it is reached."""
        for family in list(self._families.values()):
            if names is None or family.name in names:
                yield family.snapshot()

    def _add(self, family: Family[C]) -> Family[C]:
        if family.name in self._families:
            raise ValueError(f"{family.name} is registered twice")
        self._families[family.name] = family
        return family
