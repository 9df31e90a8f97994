"""Reassignments during one tenure: asked for, advanced when replicas have caught up, listed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from barnabas.broker.controller.election import CAREFUL, ElectionPolicy
from barnabas.broker.controller.reassignment import Assignment, Step, begin, cancel, finish, is_due
from barnabas.broker.controller.register import install
from barnabas.broker.controller.state import Topic, TopicPartition, assignment_of
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.controller.topic_admin import Delivery
from barnabas.broker.controller.topics import check_assignment
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import Op, SetData
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError

_log = get_logger(__name__)


class Reassigning:
    """Takes the steps that `reassignment` decides: written down, remembered, told."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    async def alter(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_factor_change: bool,
    ) -> tuple[dict[TopicPartition, KafkaError | None], Delivery]:
        """Other replicas for each partition, or None to cancel; each succeeds or fails alone."""
        answers: dict[TopicPartition, KafkaError | None] = {}
        steps: dict[TopicPartition, Step] = {}
        for at, target in wanted.items():
            try:
                step = await self._first_step(at, target, allow_factor_change)
                answers[at] = None
                if step is not None:
                    steps[at] = step
            except KafkaError as error:
                answers[at] = error
        return answers, await self._take(steps)

    async def advance(self) -> None:
        """End what can end. To be called after whatever may have changed an in-sync set."""
        state, steps = self._tenure.state, {}
        for at in sorted(state.reassigning):
            now = state.partition(at)
            if now.state is not None and is_due(now.assignment, now.state):
                situation = state.situation(now, CAREFUL)
                step = finish(now.assignment, now.state, situation, self._tenure.sender.epoch)
                _log.info("reassigned", topic=at.topic, partition=at.partition, to=step.assignment)
                steps[at] = step
        await self._take(steps)

    def ongoing(
        self, topics: Mapping[str, Sequence[int]] | None
    ) -> dict[TopicPartition, Assignment]:
        """Of the partitions that are named, or of all: those that are being reassigned."""
        state = self._tenure.state
        return {
            at: state.partition(at).assignment
            for at in sorted(state.reassigning)
            if topics is None or at.partition in topics.get(at.topic, ())
        }

    async def _first_step(
        self, at: TopicPartition, target: Sequence[int] | None, allow_factor_change: bool
    ) -> Step | None:
        """None where the partition is what it shall be."""
        topic = self._tenure.state.topics.get(at.topic)
        if topic is None:
            text = f"Unable to find a topic named {at.topic}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        partition = topic.partitions.get(at.partition)
        if partition is None:
            text = f"Unable to find partition {at.topic}:{at.partition}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        now, epoch = partition.assignment, self._tenure.sender.epoch
        situation = self._tenure.state.situation(partition, await self._policy(at))
        if target is None:
            return cancel(now, partition.state, situation, epoch)
        # A replica that is there may stay while its broker is away.
        check_assignment(target, None, {*self._tenure.state.brokers, *now.replicas})
        if not allow_factor_change and len(target) != len(now.target):
            text = f"The replication factor is changed from {len(now.target)} to {len(target)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if now == Assignment(tuple(target)):
            return None
        return begin(now, target, partition.state, situation, epoch)

    async def _policy(self, at: TopicPartition) -> ElectionPolicy:
        """It matters only where those that were there before are all out of sync."""
        partition = self._tenure.state.partition(at)
        if partition.state is None or not set(partition.state.isr) <= set(partition.adding):
            return CAREFUL
        return await self._tenure.policy(at.topic)

    async def _take(self, steps: Mapping[TopicPartition, Step]) -> Delivery:
        if not steps:
            return []
        await self._write(steps)
        never_led = [at for at, step in steps.items() if step.state is None]
        await self._tenure.decide(never_led)
        return [*self._tenure.tell(list(steps)), *self._delete_dropped(steps)]

    async def _write(self, steps: Mapping[TopicPartition, Step]) -> None:
        """Leaders and in-sync sets before the replicas: whoever finds only the former written down
        finds a reassignment that goes on, or whose end is due."""
        groups: list[list[Op]] = []
        decided = []
        for topic, its_steps in self._by_topic(steps):
            for index, step in its_steps.items():
                known = topic.partitions[index].state
                if step.state is not None and known is not None:
                    path = znodes.state_path(topic.name, index)
                    state = self._tenure.state.judged(step.state)
                    data = znodes.encode_state(state)
                    decided.append((topic.partitions[index], state, len(groups)))
                    groups.append([SetData(path, data, known.partition_epoch)])
            assignments = {
                index: its_steps[index].assignment if index in its_steps else partition.assignment
                for index, partition in topic.partitions.items()
            }
            data = znodes.encode_topic(assignment_of(topic, assignments))
            groups.append([SetData(znodes.topic_path(topic.name), data)])
        results = await self._tenure.commit(groups)
        for partition, state, number in decided:
            install(partition, state, results[number])
        for at, step in steps.items():
            self._tenure.state.assign(at, step.assignment)

    def _by_topic(
        self, steps: Mapping[TopicPartition, Step]
    ) -> list[tuple[Topic, dict[int, Step]]]:
        found: dict[str, dict[int, Step]] = defaultdict(dict)
        for at, step in steps.items():
            found[at.topic][at.partition] = step
        return [(self._tenure.state.topics[name], of_it) for name, of_it in found.items()]

    def _delete_dropped(self, steps: Mapping[TopicPartition, Step]) -> Delivery:
        """Brokers that are away find out when they come back: their replicas are strays then."""
        tenure, delivered = self._tenure, []
        for broker in tenure.state.brokers.values():
            partitions = [at for at, step in steps.items() if broker.id in step.dropped]
            if partitions:
                stop = tenure.sender.stop_replicas(tenure.state, broker, partitions, delete=True)
                delivered.append(tenure.send(broker.id, stop))
        return delivered
