"""The routes of markers: to a log of this broker, to another leader, or to a queue without one."""

import asyncio
from collections.abc import Callable, Iterable

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.transactions.marker_channel import MarkerChannel, PendingMarker
from barnabas.broker.transactions.marker_writer import MarkerWrite, MarkerWriter
from barnabas.broker.transactions.request_batcher import Requester
from barnabas.protocol.messages.expect_producers import ExpectedProducer
from barnabas.protocol.steps import at_once
from barnabas.protocol.topic_partition import TopicPartition


class MarkerRoutes:
    """The way of pending markers to the leaders of their partitions.

    A marker whose partition has no leader waits here until the metadata names one.
    """

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        writer: MarkerWriter,
        connect: Callable[[int], Requester],
        *,
        fast: bool = True,
    ) -> None:
        """`connect` returns a new connection to another broker; `fast` as in `MarkerChannel`."""
        self._broker_id = broker_id
        self._cache = cache
        self._writer = writer
        self._connect = connect
        self._fast = fast
        self._channels: dict[int, MarkerChannel] = {}
        self._leaderless: dict[TopicPartition, list[PendingMarker]] = {}
        cache.on_change(self._metadata_changed)

    @property
    def leaderless(self) -> int:
        """The number of markers that wait for a leader."""
        return sum(map(len, self._leaderless.values()))

    def route(self, markers: Iterable[PendingMarker]) -> None:
        """Send markers to the leaders of their partitions, or keep them until there is one."""
        own: list[MarkerWrite] = []
        for pending in markers:
            partition = pending.partition
            known = self._cache.partition(*partition)
            # Unknown partition: write locally, our log answers UNKNOWN_TOPIC_OR_PARTITION.
            if known is None or known.leader == self._broker_id:
                own.append(MarkerWrite(partition, pending.marker, pending.done))
            elif known.leader in self._cache.brokers:
                self._channel(known.leader).send(pending)
            else:
                self._leaderless.setdefault(partition, []).append(pending)
        # The sender routes few markers at a time: they need no slices.
        at_once(self._writer.write(own))

    def expect(self, producer: ExpectedProducer) -> bool:
        """Tell the leader of a partition, another broker, whom to expect there; return whether it
        can be told."""
        known = self._cache.partition(producer.topic, producer.partition_index)
        channel = None if known is None else self._channels.get(known.leader)
        return channel is not None and channel.expect(producer)

    def forget_unwanted(self) -> None:
        """Drop the markers of transactions that another broker coordinates."""
        for partition, waiting in list(self._leaderless.items()):
            waiting[:] = [each for each in waiting if each.wanted]
            if not waiting:
                del self._leaderless[partition]

    def _channel(self, broker_id: int) -> MarkerChannel:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = MarkerChannel(self._connect(broker_id), fast=self._fast)
            self._channels[broker_id] = channel
        return channel

    def _metadata_changed(self) -> None:
        for broker_id, channel in self._channels.items():
            if broker_id not in self._cache.brokers:
                channel.abort()
        for partition in list(self._leaderless):
            known = self._cache.partition(*partition)
            if known is None or known.leader in self._cache.brokers:
                for pending in self._leaderless.pop(partition):
                    pending.retry()

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
