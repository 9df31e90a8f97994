"""The queue of long appends: their records are validated in steps, with other work in between.

A partition's appends keep their order: while one waits, the next must be queued too. The partitions
of a topic take turns, one append each, so a topic has only one batch decompressed at a time. Topics
do not wait for each other.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any

from barnabas.broker.replication.leader.record_work import Interrupted, RecordWork
from barnabas.broker.replication.partition import Partition, PendingAppend
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.varint import Buffer
from barnabas.protocol.steps import Steps
from barnabas.storage.log.log_parts import LogAppendInfo
from barnabas.storage.log.validator import Rules, Validated, validation
from barnabas.storage.origin import Origin


class AppendQueue:
    """The long appends of all partitions of this broker."""

    def __init__(self, work: RecordWork) -> None:
        self._work = work
        self._topics: dict[str, deque[Partition]] = {}
        """Partitions with queued appends; the first append of the first one is in progress."""

    def put(
        self,
        partition: Partition,
        data: Buffer,
        *,
        now_ms: int,
        header: BatchHeader | None = None,
        **options: Any,
    ) -> "asyncio.Future[LogAppendInfo]":
        """Queue a copy of `data` to be appended; `options` as in `Partition.append`.

        The future raises as that method does. Cancelling it takes the append out of the queue.
        """
        append = PendingAppend(bytes(data), header, now_ms, options)
        partition.appends.append(append)
        if len(partition.appends) == 1:
            topic = self._topics.get(partition.topic)
            if topic is not None:
                topic.append(partition)
            else:
                self._topics[partition.topic] = deque((partition,))
                self._work.slicer.run(self._serve(partition.topic))
        return append.done

    def _serve(self, topic: str) -> Steps[None]:
        """Append the queued batches of a topic until its queue is empty."""
        partitions = self._topics[topic]
        while partitions:
            partition = partitions[0]
            append = partition.appends[0]
            try:
                if not append.done.cancelled():
                    yield from self._append(partition, append)
            except Exception as error:
                if not append.done.done():
                    append.done.set_exception(error)
            partition.appends.popleft()
            partitions.popleft()
            if partition.appends:
                partitions.append(partition)
            yield None
        del self._topics[topic]

    def _append(self, partition: Partition, append: PendingAppend) -> Steps[None]:
        validated = None
        while validated is None:
            partition.require_leader()
            rules = partition.log.rules
            steps = validation(
                append.data,
                rules,
                origin=Origin.CLIENT,
                now_ms=append.now_ms,
                header=append.header,
            )
            is_wanted = partial(_is_wanted, partition, append, rules)
            try:
                validated = yield from self._work.carry_out(partition.topic, steps, is_wanted)
            except Interrupted:
                if append.done.cancelled():
                    return
                # A configuration that changed meanwhile applies: validate again from the start.
        _finish(partition, append, validated)


def _is_wanted(partition: Partition, append: PendingAppend, rules: Rules) -> bool:
    return partition.log.rules is rules and not append.done.cancelled()


def _finish(partition: Partition, append: PendingAppend, validated: Validated) -> None:
    append.done.set_result(
        partition.append(append.data, now_ms=append.now_ms, validated=validated, **append.options)
    )
