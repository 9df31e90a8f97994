"""Where a marker has to go: to this broker's own log, to another leader, or nowhere for now."""

import asyncio
from collections.abc import Callable

from barnabas.broker.coordination.line import Asked
from barnabas.broker.coordination.marker_line import Errand, MarkerLine
from barnabas.broker.coordination.marker_writer import MarkerWriter
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.protocol.topic_partition import TopicPartition


class MarkerRoutes:
    """Carries errands to the leaders of their partitions, as far as this broker knows them.

    What has no leader waits here, and disturbs nobody, until the metadata names one.
    """

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        writer: MarkerWriter,
        connect: Callable[[int], Asked],
    ) -> None:
        """`connect` gives a line of its own to another broker."""
        self._broker_id = broker_id
        self._cache = cache
        self._writer = writer
        self._connect = connect
        self._lines: dict[int, MarkerLine] = {}
        self._leaderless: dict[TopicPartition, list[Errand]] = {}
        cache.on_change(self._metadata_changed)

    @property
    def leaderless(self) -> int:
        """Errands that wait for a leader."""
        return sum(map(len, self._leaderless.values()))

    def carry(self, errand: Errand) -> None:
        """See to it that the errand is told what became of it, when there is somebody to ask."""
        place = errand.place
        known = self._cache.partition(*place)
        # Of what nobody has heard of the own log says so.
        if known is None or known.leader == self._broker_id:
            self._writer.write(*place, errand.marker, errand.done)
        elif known.leader in self._cache.brokers:
            self._line(known.leader).put(errand)
        else:
            self._leaderless.setdefault(place, []).append(errand)

    def forget_unwanted(self) -> None:
        """Somebody else coordinates some of the transactions."""
        for place, errands in list(self._leaderless.items()):
            errands[:] = [each for each in errands if each.wanted]
            if not errands:
                del self._leaderless[place]

    def _line(self, broker_id: int) -> MarkerLine:
        line = self._lines.get(broker_id)
        if line is None:
            line = self._lines[broker_id] = MarkerLine(self._connect(broker_id))
        return line

    def _metadata_changed(self) -> None:
        for broker_id, line in self._lines.items():
            if broker_id not in self._cache.brokers:
                line.abort()
        for place in list(self._leaderless):
            known = self._cache.partition(*place)
            if known is None or known.leader in self._cache.brokers:
                for errand in self._leaderless.pop(place):
                    errand.again()

    async def close(self) -> None:
        """Ask nobody any more."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))
