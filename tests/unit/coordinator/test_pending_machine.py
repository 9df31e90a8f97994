"""Any sequence of offset commits and transactions: after every step and after a reload, the state
machine holds the same as a plain reading of its log.

The reading is Kafka's: of all that is committed the record at the greatest log offset counts. The
state machine uses no log offsets, so the two are different programs.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.group.records import OffsetRecord, decode_record
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import iter_records
from tests.support.coordinator.harness import FakeLog, Groups

Place = tuple[str, str]

GROUPS = st.sampled_from(["g", "h"])
PLACES = [("g", "t"), ("g", "u"), ("h", "t")]
A_PLACE = st.sampled_from(PLACES)
PRODUCERS = st.sampled_from([1, 2])


class Reading:
    """A reading of a log, record by record."""

    def __init__(self, log: FakeLog) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.pending: dict[int, dict[Place, tuple[int, int]]] = {}
        for batch in log.batches:
            for position, header in iter_headers(batch):
                if header.next_offset <= log.committed:
                    self._read(batch, position, header)

    def _read(self, batch: bytes, position: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = read_marker(batch, position, header)
            offsets = self.pending.pop(header.producer_id, {})
            if marker is not None and marker.type is ControlType.COMMIT:
                for place, offset in offsets.items():
                    self.committed[place] = max(offset, self.committed.get(place, offset))
            return
        for at, record in _offsets(batch, position, header):
            place = (record.group_id, record.topic)
            if record.committed is None:
                self.committed.pop(place, None)
                for offsets in self.pending.values():
                    offsets.pop(place, None)
            elif header.is_transactional:
                self.pending.setdefault(header.producer_id, {})[place] = (
                    at,
                    record.committed.offset,
                )
            else:
                self.committed[place] = (at, record.committed.offset)


def _offsets(
    batch: bytes, position: int, header: BatchHeader
) -> Iterator[tuple[int, OffsetRecord]]:
    for each in iter_records(batch, position, header):
        assert each.key is not None
        record = decode_record(each.key, each.value)
        if isinstance(record, OffsetRecord):
            yield each.offset, record


class OffsetsMachine(RuleBasedStateMachine):
    """A group with commits, transactions and deletions in any order, on a log that may lag."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.groups = self.run(Groups().load())
        self.offset = 0

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.groups.log.release()
            self.reload()
            self.holds_what_the_log_says()
            self.loop.close()

    def run(self, story: Any) -> Any:
        return self.loop.run_until_complete(story)

    def ask(self, request: Any) -> None:
        """Send a request; one that waits is answered when the log is released."""

        async def asked() -> None:
            answer = request()
            if asyncio.iscoroutine(answer):
                answer = asyncio.ensure_future(answer)
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(lambda done: done.exception())
            await asyncio.sleep(0)

        self.run(asked())

    def next_offset(self) -> int:
        self.offset += 1
        return self.offset

    @rule(place=A_PLACE)
    def commit(self, place: Place) -> None:
        group, topic = place
        offset = self.next_offset()
        self.ask(lambda: self.groups.commit(offset, group_id=group, topic=topic))

    @rule(commits=st.lists(st.tuples(PRODUCERS, A_PLACE), min_size=1, max_size=6))
    def commit_in_transactions(self, commits: list[tuple[int, Place]]) -> None:
        for producer, (group, topic) in commits:
            self.ask(
                partial(
                    self.groups.commit_transactional,
                    self.next_offset(),
                    producer,
                    group_id=group,
                    topic=topic,
                )
            )

    @rule(ends=st.lists(st.tuples(PRODUCERS, st.booleans()), min_size=1, max_size=3))
    def end(self, ends: list[tuple[int, bool]]) -> None:
        for producer, committed in ends:
            self.ask(partial(self.groups.end, producer, committed=committed))

    @rule(place=A_PLACE)
    def delete_offset(self, place: Place) -> None:
        group, topic = place
        if group in self.groups.table.groups:
            self.ask(lambda: self.groups.delete_offset(topic, group))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        if group in self.groups.table.groups:
            self.ask(lambda: self.groups.coordinator.delete(group))

    @rule()
    def hold_or_release(self) -> None:
        log = self.groups.log
        if log.held:
            log.release()
        else:
            log.held = True

    @rule()
    def reload(self) -> None:
        self.groups.log.release()
        self.run(self.groups.load())

    @invariant()
    def holds_what_the_log_says(self) -> None:
        if not hasattr(self, "groups"):
            return
        reading = Reading(self.groups.log)
        for group, topic in PLACES:
            known = reading.committed.get((group, topic))
            assert self.groups.offset(group, topic) == (None if known is None else known[1])
            pending = any((group, topic) in each for each in reading.pending.values())
            assert self.groups.is_pending(group, topic) == pending
        assert self.groups.coordinator.count_offsets() == len(reading.committed)
        assert self.groups.faults == []


OffsetsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestOffsetsMachine = OffsetsMachine.TestCase
