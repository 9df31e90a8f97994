"""Histories that happen to two brokers, one of which remembers requests: steps, and the clients
that take them. Answers and states are compared after each step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from barnabas.broker.transactions.verification_request import VerificationRequest
from barnabas.coordinator.transaction.metadata import Producer as Identity
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import MAX_SEQUENCE, iter_headers
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.schema import Message, fields_of
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.acl.rules import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    new_rule,
)
from tests.simulation.repeats.batches import ODD, batch
from tests.simulation.repeats.twins import Twins, frame, twins

GROUP = "g"
AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:admin",
}
OLDER, NEWER = 9, 12
"""Versions of Produce, of which the newer one adds partitions to transactions."""
PRODUCERS = {"idempotent": OLDER, "x": OLDER, "another id": OLDER, "y": NEWER}
"""The producers by their transactional ids, which the idempotent one has not, with versions."""
BATCH = batch()
Place = tuple[str, int]
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@dataclass(frozen=True)
class Step:
    """A call of a method of `World` or `Twins`, and what is known of the answer."""

    method: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    error: str | None = None
    from_memory: bool | None = None

    def says(self, error: str) -> "Step":
        """Return the step whose answer has this error, by name; "NONE" for none."""
        return replace(self, error=error)

    @property
    def quick(self) -> "Step":
        """The step that is served from memory."""
        return replace(self, error="NONE", from_memory=True)

    @property
    def slow(self) -> "Step":
        """The step that is left to the handler."""
        return replace(self, from_memory=False)


def do(method: str, *args: Any, **options: Any) -> Step:
    return Step(method, args, options)


def errors_in(answer: Any) -> Iterator[str]:
    """Return the names of the errors in an answer."""
    if isinstance(answer, list):
        for each in answer:
            yield from errors_in(each)
    elif isinstance(answer, Message):
        for name in [each.name for each in fields_of(type(answer))]:
            value = getattr(answer, name)
            if not name.endswith("error_code"):
                yield from errors_in(value)
            elif value:
                yield ErrorCode.of(value).name


@dataclass
class Producer:
    """A producer of both brokers."""

    name: str | None
    """The transactional id."""
    version: int
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[Place, int] = field(default_factory=dict)
    last: bytes = b""

    def accept(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch, self.sequences = producer_id, epoch, {}

    def batch(self, *values: bytes, place: Place = T0, epochs: int = 0, **changes: Any) -> bytes:
        """Return the next batch for a partition."""
        values = values or (b"value",)
        sequence = self.sequences.get(place, 0)
        if "base_sequence" not in changes:
            self.sequences[place] = (sequence + len(values)) & MAX_SEQUENCE
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch + epochs,
            "base_sequence": sequence,
            "transactional": self.name is not None,
        }
        self.last = batch(*values, **fields | changes)
        return self.last


class Asked(NamedTuple):
    """A leader's question about a transaction, or one that adds the partitions to it."""

    who: str
    places: tuple[TopicPartition, ...]
    adds: bool = False
    epochs: int = 0
    """The difference to the epoch that the producer has."""
    principal: str | None = None


def asks(who: str, *places: TopicPartition, **options: Any) -> Asked:
    return Asked(who, places, **options)


Marker = tuple[Place, TxnMarker]


def marker(
    producer_id: int = 1000,
    at: Place = T0,
    *,
    epoch: int = 4,
    coordinator: int = 0,
    committed: bool = True,
    version: int = 0,
) -> Marker:
    return at, TxnMarker(producer_id, epoch, coordinator, committed, version)


def markers_of(*markers: Marker) -> list[dict[str, Any]]:
    """Return markers as a request has them."""
    return [
        {
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "transaction_result": each.committed,
            "topics": [{"name": topic, "partition_indexes": [index]}],
            "coordinator_epoch": each.coordinator_epoch,
            "transaction_version": each.transaction_version,
        }
        for (topic, index), each in markers
    ]


def rule(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    """Return the rule that allows every client an operation."""
    allow, literal = AclPermissionType.ALLOW, PatternType.LITERAL
    return new_rule(kind, name, literal, "User:ANONYMOUS", "*", operation, allow)


ADMINISTRATION = rule(AclOperation.ALL, ResourceType.CLUSTER, "kafka-cluster")


class World:
    """The clients of both brokers. A method that asks returns the answer."""

    def __init__(self, pair: Twins) -> None:
        self.pair = pair
        self.producers: dict[str, Producer] = {}
        self.member_id, self.generation = "", -1
        self.session_id, self.session_epoch = 0, -1
        self.reached = 0
        """The offset behind the last record of the last Fetch that had records."""
        pair.create("t", 2)
        pair.create("u", 1)

    def tell(self, *steps: "Step | Callable[[World], object]") -> None:
        """Let steps happen."""
        for step in steps:
            if not isinstance(step, Step):
                step(self)
                continue
            before = self.pair.hits.total()
            work = getattr(self, step.method, None) or getattr(self.pair, step.method)
            answer = work(*step.args, **step.options)
            if step.error is not None:
                found = " ".join(sorted({*errors_in(answer)})) or "NONE"
                assert found == step.error, f"{found} is the answer to {step}"
            if step.from_memory is not None:
                assert (self.pair.hits.total() > before) is step.from_memory, step
            self.pair.compare()

    # -- Produce ----------------------------------------------------------------------------------

    def by_topic(self, *partitions: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Return partitions by topic. A version sends either the name or the id."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        return [
            {"name": topic, "topic_id": self.pair.ids.get(topic, bytes(16)), "partitions": some}
            for topic, some in topics.items()
        ]

    def written(
        self,
        records: bytes | None = BATCH,
        topic: str = "t",
        index: int = 0,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> dict[str, Any]:
        """Return the fields of a request with one batch."""
        data = {"index": index, "records": records}
        named = {"name": topic, "topic_id": self.pair.ids.get(topic, bytes(16))}
        return {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [named | {"partition_data": [data]}],
        }

    def write(
        self,
        *batch: Any,
        version: int = OLDER,
        on: int = 0,
        client: bytes | None = b"client",
        **fields: Any,
    ) -> Any:
        """Send a batch, as `written` takes it."""
        fields = self.written(*batch, **fields)
        return self.pair.ask("produce", version, on=on, client=client, **fields)

    def keep_id(self, topic: str = "t", name: str = "kept") -> None:
        """Give the id of a topic another name, which versions with ids do not send."""
        self.pair.ids[name] = self.pair.ids[topic]

    def write_oddly(self, change: str, version: int) -> None:
        """Send a request of other bytes."""
        whole = frame("produce", version, **self.written())
        answers = self.pair.exchange(ODD[change](whole, BATCH, version))
        assert not change.startswith("cut") or answers == []

    def producer(self, who: str) -> Producer:
        if who not in self.producers:
            self.init(who)
        return self.producers[who]

    def init(self, who: str, patience: int = 30) -> Any:
        """Begin anew; the producer before stays as "former"."""
        name = None if who == "idempotent" else who
        if name is not None:
            # It creates the topic of the coordinators.
            self.pair.ask("find_coordinator", coordinator_keys=[name], key_type=1)
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        for _ in range(patience):
            answer = self.pair.ask("init_producer_id", 4, **fields)
            if not answer.error_code:
                known = self.producers.setdefault(who, Producer(name, PRODUCERS[who]))
                self.producers["former"] = copy(known)
                known.accept(answer.producer_id, answer.producer_epoch)
                break
            # The coordinator loads, or the previous transaction ends.
            self.pair.wait(0.1)
        return answer

    def send(
        self,
        who: str,
        *values: bytes,
        topic: str = "t",
        index: int = 0,
        repeats: bool = False,
        version: int = 0,
        **changes: Any,
    ) -> Any:
        """Send the next batch of a producer, or the last one once more."""
        producer = self.producer(who)
        name = changes.pop("transactional_id", producer.name)
        if not repeats:
            producer.batch(*values, place=(topic, index), **changes)
        version = version or producer.version
        return self.write(producer.last, topic, index, version=version, transactional_id=name)

    def add(self, who: str, *places: Place, group_id: str | None = None) -> Any:
        """Add partitions to a transaction of the older protocol."""
        producer = self.producer(who)
        return self.pair.ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [at]} for topic, at in places],
            group_id=group_id,
        )

    def end(
        self, who: str, *, commit: bool = True, epochs: int = 0, wait_s: float = 0.5, **fields: Any
    ) -> Any:
        """End the transaction, and wait for its markers."""
        producer = self.producer(who)
        version = 5 if producer.version >= NEWER else 3
        sender = self._sender(producer, epochs)
        answer = self.pair.ask("end_txn", version, committed=commit, **sender, **fields)
        self.pair.wait(wait_s)
        if version >= 5 and not answer.error_code:
            producer.accept(answer.producer_id, answer.producer_epoch)
        return answer

    def _sender(self, producer: Producer, epochs: int = 0) -> dict[str, Any]:
        return {
            "transactional_id": producer.name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch + epochs,
        }

    # -- Fetch ------------------------------------------------------------------------------------

    def fetch(
        self,
        offset: int | None,
        *others: Place,
        session: str = "",
        topic: str = "t",
        version: int = 12,
        size: int = 1 << 20,
        leader_epoch: int = -1,
        last_epoch: int = -1,
        **fields: Any,
    ) -> Any:
        """Read from partition 0 of a topic and from others, or what the session has: one that
        begins, its next request, or one that is late."""
        epoch = {"begins": 0, "next": self.session_epoch + 1, "late": self.session_epoch}
        known = {
            "session_id": self.session_id if session in ("next", "late") else 0,
            "session_epoch": epoch.get(session, -1),
        }
        wanted = {
            "fetch_offset": offset,
            "partition_max_bytes": size,
            "current_leader_epoch": leader_epoch if version >= 9 else -1,
            "last_fetched_epoch": last_epoch if version >= 12 else -1,
        }
        places = [] if offset is None else [(topic, 0), *others]
        named = self.by_topic(*[(name, {"partition": at} | wanted) for name, at in places])
        for each in named:
            each["topic"] = each.pop("name")
        fields = {"max_wait_ms": 0, "min_bytes": 1, "topics": named} | known | fields
        answer = self.pair.ask("fetch", version, on=0, **fields)
        if session in ("begins", "next") and not answer.error_code:
            self.session_id, self.session_epoch = answer.session_id, epoch[session]
        for each in answer.responses:
            for _, last in list(iter_headers(bytes(each.partitions[0].records or b"")))[-1:]:
                self.reached = last.next_offset
        return answer

    def read_on(self, leap: int, **fields: Any) -> Any:
        """Read from the end of what was read last, or from so many offsets behind it."""
        return self.fetch(self.reached + leap, **fields)

    # -- groups -----------------------------------------------------------------------------------

    def find_group(self) -> None:
        self.pair.ask("find_coordinator", coordinator_keys=[GROUP], key_type=0)
        self.pair.wait(0.5)

    def _joining(self, rebalance_timeout_ms: int) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": rebalance_timeout_ms,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }

    def join(self) -> Any:
        asked = self._joining(10_000) | {"member_id": self.member_id}
        joined = self.pair.ask("join_group", 3, **asked)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = [{"member_id": self.member_id, "assignment": b""}]
        return self.pair.ask("sync_group", 2, assignments=assignments, **self._member())

    def another_joins(self) -> None:
        """Have another member wait for the rebalance, on connection 4."""
        request = frame("join_group", 3, member_id="", **self._joining(3_000))
        self.pair.exchange(request, on=4, answers=0)

    def _member(self, generations: int = 0) -> dict[str, Any]:
        generation = self.generation + generations
        return {"group_id": GROUP, "generation_id": generation, "member_id": self.member_id}

    def beat(self, generations: int = 0) -> Any:
        return self.pair.ask("heartbeat", 4, **self._member(generations))

    def leave(self, member_id: str = "") -> Any:
        members = [{"member_id": member_id or self.member_id}]
        return self.pair.ask("leave_group", 3, group_id=GROUP, members=members)

    def commit(
        self,
        *offsets: tuple[str, int, int],
        version: int = 8,
        who: str = "",
        epochs: int = 0,
        metadata: str = "",
        generations: int = 0,
    ) -> Any:
        """Commit offsets of partitions, perhaps in a transaction, and read what is committed."""
        said = {"committed_metadata": metadata}
        partitions = [
            (topic, said | {"partition_index": index, "committed_offset": offset})
            for topic, index, offset in offsets
        ]
        topics = self.by_topic(*partitions)
        fields: dict[str, Any] = {"topics": topics, "group_id": GROUP, "member_id": self.member_id}
        generation = self.generation + generations
        if who:
            fields |= self._sender(self.producer(who), epochs) | {"generation_id": generation}
        else:
            fields["generation_id_or_member_epoch"] = generation
        answer = self.pair.ask("txn_offset_commit" if who else "offset_commit", version, **fields)
        self.pair.ask("offset_fetch", 7, group_id=GROUP, topics=None)
        return answer

    def add_group(self, who: str) -> Any:
        """Add the group's partition to a transaction of the older protocol."""
        sender = self._sender(self.producer(who))
        return self.pair.ask("add_offsets_to_txn", 3, group_id=GROUP, **sender)

    def consume(self, epoch: int, member_id: str = "a", **fields: Any) -> Any:
        """Send a heartbeat of the newer group protocol, which joins with epoch 0."""
        if not epoch:
            told = {"subscribed_topic_names": ["t"], "topic_partitions": []}
            fields |= {"rebalance_timeout_ms": 60_000, **told}
        sender = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch}
        return self.pair.ask("consumer_group_heartbeat", 1, **sender, **fields)

    # -- other brokers ----------------------------------------------------------------------------

    def questions(self, *asked: Asked) -> list[Any]:
        """Return questions as a request has them."""
        made = []
        for each in asked:
            known = self.producers.get(each.who, Producer(each.who, NEWER, 5, 0))
            producer = Identity(known.producer_id, known.epoch + each.epochs)
            name = known.name or ""
            question = VerificationRequest(name, producer, each.places, each.adds, each.principal)
            made.append(question.question())
        return made

    def question(
        self, *asked: Asked, version: int = 5, client: bytes = b"broker-1", behind: bytes = b""
    ) -> Any:
        """Ask as a leader, and describe the transactions."""
        sent = {"client": client, "behind": behind, "transactions": self.questions(*asked)}
        answer = self.pair.ask("add_partitions_to_txn", version, on=1, **sent)
        ids = [each.name for each in self.producers.values() if each.name]
        self.pair.ask("describe_transactions", transactional_ids=ids)
        return answer

    def mark(self, *markers: Marker, on: int = 2, client: bytes = b"broker-0") -> Any:
        """Write markers as another broker."""
        markers_of_request = markers_of(*markers)
        return self.pair.ask(
            "write_txn_markers", 2, on=on, client=client, markers=markers_of_request
        )

    def of_brokers(self, *, are: bool = True) -> None:
        """Have the requests of the connection of markers be those of a broker."""
        for side in self.pair.sides:
            side.peer(2)._dispatcher._inter_broker = are

    # -- rights -----------------------------------------------------------------------------------

    def allow(self, *rules: AclBinding) -> None:
        allow(self.pair, *rules)

    def forbid(self, kind: ResourceType, name: str) -> None:
        """Delete the rules of a resource."""
        gone = [AclFilter(kind, name)]
        (deleted,) = self.pair.both(lambda side: side.broker._core.acls.delete(gone))
        assert deleted


def allow(pair: Twins, *rules: AclBinding) -> None:
    created = pair.both(lambda side: side.broker._core.acls.create(rules))
    assert created == [None] * len(rules)


@contextmanager
def world(*steps: Any, rules: tuple[AclBinding, ...] = (), **keys: str) -> Iterator[World]:
    """Run two brokers to which steps happen first. With rules they have an authorizer."""
    with twins(**(AUTHORIZER if rules else {}), **keys) as pair:
        if rules:
            allow(pair, ADMINISTRATION, *rules)
        it = World(pair)
        it.tell(*steps)
        yield it


def happens(*steps: Any, rules: tuple[AclBinding, ...] = (), **keys: str) -> None:
    """Let a history happen."""
    with world(*steps, rules=rules, **keys):
        pass
