"""The rates of topics and brokers: from counters of the brokers' HTTP endpoints, or from offsets.

A rate is that between two samples, which are at least PERIOD_S apart; only the last two are kept.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.operations.broker_http import Endpoints
from barnabas.protocol.errors import KafkaError

PERIOD_S: Final = 10.0
MOST_TOPICS: Final = 1000
"""The topics whose offsets are remembered: the last that were shown."""
_METRIC: Final = "kafka_server_brokertopicmetrics_{}_total"
_COUNTED: Final = ("messagesin", "bytesin", "bytesout")
_PATH: Final = "/metrics?" + "&".join(f"name[]={_METRIC.format(each)}" for each in _COUNTED)
_LINE: Final = re.compile(
    rf'^{_METRIC.format(f"({chr(124).join(_COUNTED)})")}{{topic="([^"]*)"}} (\S+)$', re.M
)


class Rate(NamedTuple):
    """Records and bytes in a second; None is unknown."""

    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None


UNKNOWN: Final = Rate(None, None, None)
_Counts = tuple[float, ...]
_NOTHING: Final[_Counts] = (0.0,) * len(_COUNTED)


class _Sample(NamedTuple):
    at: float
    counts: Mapping[str, _Counts]
    """By topic."""


class _Pair(NamedTuple):
    """The last two samples of a broker, or of the offsets of a topic."""

    before: _Sample | None
    last: _Sample

    def rates(self, topic: str) -> _Counts | None:
        """Return the growth in a second of each count of a topic; None before two samples."""
        if self.before is None:
            return None
        seconds = self.last.at - self.before.at
        before = self.before.counts.get(topic)
        # A topic without traffic has no counters.
        now = self.last.counts.get(topic, _NOTHING)
        if before is None or any(a > b for a, b in zip(before, now, strict=True)):
            # The topic is new here, or the broker has begun to count again.
            before = (0.0,) * len(now)
        return tuple((b - a) / seconds for a, b in zip(before, now, strict=True))


class Rates:
    """The rates of a cluster, as of its last two samples."""

    def __init__(
        self, cluster: Cluster, endpoints: Endpoints, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._endpoints = endpoints
        self._now = now
        self._brokers: dict[int, _Pair] = {}
        self._offsets: OrderedDict[str, _Pair] = OrderedDict()
        self.problems: dict[int, str] = {}
        """Why the counters of a broker are missing, as of the last sample."""

    @property
    def are_counted(self) -> bool:
        """Whether every live broker has given its counters."""
        return not self.problems and bool(self._brokers)

    async def sample(self) -> None:
        """Read the counters of all brokers, unless they were read a moment ago."""
        newest = max((pair.last.at for pair in self._brokers.values()), default=None)
        if newest is not None and self._now() - newest < PERIOD_S / 2:
            return
        await self._cluster.refresh(())
        self.problems = {}
        for broker in self._brokers.keys() - self._cluster.nodes.keys():
            del self._brokers[broker]
        await asyncio.gather(*map(self._sample, sorted(self._cluster.nodes)))

    async def _sample(self, broker: int) -> None:
        try:
            text = (await self._endpoints.get(broker, _PATH)).decode(errors="replace")
        except (KafkaError, BrokerUnreachable, OSError, TimeoutError) as error:
            self.problems[broker] = str(error) or type(error).__name__
            self._brokers.pop(broker, None)
            return
        sample = _Sample(self._now(), _counts(text))
        known = self._brokers.get(broker)
        self._brokers[broker] = _Pair(None if known is None else known.last, sample)

    def note_offsets(self, topic: str, end: int) -> None:
        """Take the sum of the end offsets of a topic as a sample, if the last one is old enough."""
        known, sample = self._offsets.get(topic), _Sample(self._now(), {topic: (float(end),)})
        if known is None or sample.at - known.last.at >= PERIOD_S:
            self._offsets[topic] = _Pair(None if known is None else known.last, sample)
        self._offsets.move_to_end(topic)
        while len(self._offsets) > MOST_TOPICS:
            self._offsets.popitem(last=False)

    def of_topic(self, topic: str) -> Rate:
        """Return the rate of a topic: of all brokers, or else of its offsets."""
        if self.are_counted:
            return _sum(pair.rates(topic) for pair in self._brokers.values())
        pair = self._offsets.get(topic)
        found = None if pair is None else pair.rates(topic)
        return UNKNOWN if found is None else Rate(found[0], None, None)

    def of_broker(self, broker: int) -> Rate:
        """Return the rate of a broker."""
        pair = self._brokers.get(broker)
        return UNKNOWN if pair is None else _sum(_of_all_topics(pair))

    def of_cluster(self) -> Rate:
        """Return the rate of all brokers; unknown if one of them is silent."""
        if not self.are_counted:
            return UNKNOWN
        return _sum(each for pair in self._brokers.values() for each in _of_all_topics(pair))


def _of_all_topics(pair: _Pair) -> Iterator[_Counts | None]:
    if pair.before is not None:
        yield _NOTHING
    for topic in pair.last.counts:
        yield pair.rates(topic)


def _sum(rates: Iterable[_Counts | None]) -> Rate:
    known = [each for each in rates if each is not None]
    return Rate(*map(sum, zip(*known, strict=True))) if known else UNKNOWN


def _counts(text: str) -> dict[str, _Counts]:
    found: dict[str, list[float]] = {}
    for metric, topic, value in _LINE.findall(text):
        counts = found.setdefault(topic, [0.0] * len(_COUNTED))
        counts[_COUNTED.index(metric)] = float(value)
    return {topic: tuple(counts) for topic, counts in found.items()}
