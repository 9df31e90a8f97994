"""Reassignments in the active controller: start, progress when replicas catch up, and listing."""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence

from barnabas.broker.cluster import znodes
from barnabas.broker.controller.active_controller import ActiveController
from barnabas.broker.controller.cluster_store import install
from barnabas.broker.controller.rules.cluster_state import ClusterTopic, assignment_of
from barnabas.broker.controller.rules.leader_election import CLEAN_ONLY, ElectionPolicy
from barnabas.broker.controller.rules.new_topics import check_assignment
from barnabas.broker.controller.rules.reassignment import (
    Assignment,
    Step,
    begin,
    cancel,
    finish,
    is_due,
)
from barnabas.broker.controller.topic_admin import Delivery
from barnabas.broker.observability.events import (
    REASSIGNMENT_CANCELLED,
    REASSIGNMENT_FINISHED,
    REASSIGNMENT_STARTED,
    EventKind,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import Op, SetData
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_log = get_logger(__name__)


class Reassignments:
    """The reassignments of the active controller: writes, applies and sends steps of `rules`."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    async def alter(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_factor_change: bool,
    ) -> tuple[dict[TopicPartition, KafkaError | None], Delivery]:
        """Start a reassignment per partition, or cancel it (None); each succeeds or fails
        separately."""
        answers: dict[TopicPartition, KafkaError | None] = {}
        steps: dict[TopicPartition, Step] = {}
        async for at, target in self._active.slicer.each(wanted.items()):
            try:
                step = await self._first_step(at, target, allow_factor_change)
                answers[at] = None
                if step is not None:
                    steps[at] = step
            except KafkaError as error:
                answers[at] = error.with_traceback(None)
        return answers, await self._take(steps)

    async def advance(self) -> None:
        """Finish the reassignments that can finish. Call this after each possible ISR change."""
        state, steps = self._active.state, {}
        for at in sorted(state.reassigning):
            now = state.partition(at)
            if now.state is not None and is_due(now.assignment, now.state):
                election_inputs = state.election_inputs(now, CLEAN_ONLY)
                step = finish(
                    now.assignment, now.state, election_inputs, self._active.messages.epoch
                )
                steps[at] = step
        await self._take(steps)

    async def ongoing(
        self, topics: Mapping[str, Container[int]] | None
    ) -> dict[TopicPartition, Assignment]:
        """Return the reassignments in progress, of the named partitions or of all."""
        state = self._active.state
        found = {}
        async for at in self._active.slicer.each(sorted(state.reassigning)):
            if topics is None or at.partition in topics.get(at.topic, ()):
                found[at] = state.partition(at).assignment
        return found

    async def _first_step(
        self, at: TopicPartition, target: Sequence[int] | None, allow_factor_change: bool
    ) -> Step | None:
        """Return the first step, or None if the partition already has these replicas."""
        topic = self._active.state.topics.get(at.topic)
        if topic is None:
            text = f"Unable to find a topic named {at.topic}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        partition = topic.partitions.get(at.partition)
        if partition is None:
            text = f"Unable to find partition {at.topic}:{at.partition}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        now, epoch = partition.assignment, self._active.messages.epoch
        election_inputs = self._active.state.election_inputs(partition, await self._policy(at))
        if target is None:
            return cancel(now, partition.state, election_inputs, epoch)
        # An existing replica may stay although its broker is down.
        check_assignment(target, None, {*self._active.state.brokers, *now.replicas})
        if not allow_factor_change and len(target) != len(now.target):
            text = f"The replication factor is changed from {len(now.target)} to {len(target)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if now == Assignment(tuple(target)):
            return None
        return begin(now, target, partition.state, election_inputs, epoch)

    async def _policy(self, at: TopicPartition) -> ElectionPolicy:
        """Return the topic's election policy if it matters: only if all original replicas are out
        of sync."""
        partition = self._active.state.partition(at)
        if partition.state is None or not set(partition.state.isr) <= set(partition.adding):
            return CLEAN_ONLY
        return await self._active.policy(at.topic)

    async def _take(self, steps: Mapping[TopicPartition, Step]) -> Delivery:
        if not steps:
            return []
        await self._write(steps)
        never_led = [at for at, step in steps.items() if step.state is None]
        await self._active.decide(never_led)
        return [*(await self._active.send_changes(list(steps))), *self._delete_dropped(steps)]

    async def _write(self, steps: Mapping[TopicPartition, Step]) -> None:
        """Write leaders and ISRs before the assignments. After a crash in between, a successor
        finds a reassignment that is in progress or due."""
        groups: list[list[Op]] = []
        decided = []
        for topic, its_steps in self._by_topic(steps):
            for index, step in its_steps.items():
                known = topic.partitions[index].state
                if step.state is not None and known is not None:
                    path = znodes.state_path(topic.name, index)
                    state = self._active.state.mark_judged(step.state)
                    data = znodes.encode_state(state)
                    decided.append((topic.partitions[index], state, len(groups)))
                    groups.append([SetData(path, data, known.partition_epoch)])
            assignments = {
                index: its_steps[index].assignment if index in its_steps else partition.assignment
                for index, partition in topic.partitions.items()
            }
            data = znodes.encode_topic(assignment_of(topic, assignments))
            groups.append([SetData(znodes.topic_path(topic.name), data)])
        results = await self._active.commit(groups)
        for partition, state, number in decided:
            install(partition, state, results[number])
        with self._active.events.of_partitions(_log) as add:
            for at, step in steps.items():
                before, after = self._active.state.partition(at).assignment, step.assignment
                self._active.state.assign(at, after)
                add(_kind(before, after), at, before=[*before.origin], to=[*after.target])

    def _by_topic(
        self, steps: Mapping[TopicPartition, Step]
    ) -> list[tuple[ClusterTopic, dict[int, Step]]]:
        found: dict[str, dict[int, Step]] = defaultdict(dict)
        for at, step in steps.items():
            found[at.topic][at.partition] = step
        return [(self._active.state.topics[name], of_it) for name, of_it in found.items()]

    def _delete_dropped(self, steps: Mapping[TopicPartition, Step]) -> Delivery:
        """Delete dropped replicas. A broker that is down finds them to be strays when it comes
        back."""
        active, delivered = self._active, []
        for broker in active.state.brokers.values():
            partitions = [at for at, step in steps.items() if broker.id in step.dropped]
            if partitions:
                stop = active.messages.stop_replicas(active.state, broker, partitions, delete=True)
                delivered.append(active.send(broker.id, stop))
        return delivered


def _kind(before: Assignment, after: Assignment) -> EventKind:
    if after.ongoing:
        return REASSIGNMENT_STARTED
    returns = before.ongoing and {*after.replicas} == {*before.origin}
    return REASSIGNMENT_CANCELLED if returns else REASSIGNMENT_FINISHED
