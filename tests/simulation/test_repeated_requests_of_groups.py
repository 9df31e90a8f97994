"""Requests of group members that repeat (Heartbeat, ConsumerGroupHeartbeat, OffsetCommit and
TxnOffsetCommit): histories of a broker that remembers them and of one that does not."""

from typing import Any

import pytest

from barnabas.broker.groups import known_offsets
from barnabas.broker.handlers import consumer_group_heartbeat as consuming
from barnabas.broker.handlers import heartbeat as beating
from barnabas.broker.handlers import txn_offset_commit as in_transaction
from barnabas.broker.server.repeats import Repeats
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import heartbeat
from barnabas.security.acl.rules import AclOperation, ResourceType
from tests.simulation.repeats.world import GROUP, Step, World, do, happens, rule
from tests.support.mutants import cases, finds, hunt

JOIN, LEAVE, BEAT = do("join").says("NONE"), do("leave").says("NONE"), do("beat")
UNKNOWN_MEMBER, EPOCH = "UNKNOWN_MEMBER_ID", "INVALID_PRODUCER_EPOCH"
UNKNOWN_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
LATEST = 10
KIND_OF_GROUPS = 32


def commit(offset: int, topic: str = "t", **fields: Any) -> Step:
    return do("commit", (topic, 0, offset), **fields)


T7 = do("commit", ("t", 0, 1), ("t", 7, 1))
BEATS = [JOIN, BEAT.slow, BEAT.quick]
WORKS = [*BEATS, commit(0).slow, commit(1).quick]


@pytest.mark.parametrize("version", [2, 4, 8, 9, LATEST])
def test_further_offsets_of_the_same_partitions_are_committed_again(version: int) -> None:
    first, *others = [
        do("commit", ("t", 0, at), ("t", 1, 2 * at), ("u", 0, -(at + 1)), version=version)
        for at in range(4)
    ]
    happens(do("find_group"), first.slow, *[each.quick for each in others])


BY_ID = [commit(at, "u", version=LATEST) for at in range(3)]


@cases(
    "story",
    (
        [
            *WORKS, BEAT.quick, commit(2).quick, do("beat", 1).says("ILLEGAL_GENERATION"),
            commit(9, generations=1).says("ILLEGAL_GENERATION"),
        ],
    ),
    (
        [*WORKS, LEAVE, BEAT.says(UNKNOWN_MEMBER), commit(5).says(UNKNOWN_MEMBER)],
        (Repeats.serve, "except KafkaError:", "except ZeroDivisionError:"),
    ),
    # Heartbeats extend the session.
    ([*BEATS, *[do("wait", 7), BEAT.quick] * 5, do("wait", 14), BEAT.says(UNKNOWN_MEMBER)],),
    (
        [
            *BEATS, do("another_joins"), *2 * [BEAT.says("REBALANCE_IN_PROGRESS")],
            do("exchange", on=4, answers=1),
        ],
        (beating._beat_again, "None if groups.heartbeat(request).error_code else ()", "()"),
    ),
    # Refused offsets are not remembered.
    (
        [
            *2 * [
                T7.says(UNKNOWN_PARTITION).slow,
                commit(1, metadata="m" * 5000).says("OFFSET_METADATA_TOO_LARGE").slow,
                do("commit").slow,
            ],
            do("grow", "t", 8), T7.slow, T7.quick,
        ],
        (known_offsets.repeated, "not answers or "),
        (known_offsets.repeated, "any(each.error_code for each in answers)", "False"),
    ),
    # A topic that is made anew is another one.
    (
        [
            commit(0, "u").slow, commit(1, "u").quick, BY_ID[0].slow, BY_ID[1].quick,
            do("keep_id", "u"), do("delete", "u", wait_s=5), commit(2, "u").says(UNKNOWN_PARTITION),
            BY_ID[2].says("UNKNOWN_TOPIC_ID"), do("create", "u"), commit(3, "u").slow,
            commit(4, "u").quick, commit(5, "kept", version=LATEST).says("UNKNOWN_TOPIC_ID"),
        ],
        (known_offsets.next_offsets, "found is None or "),
        (known_offsets.next_offsets, " or found.topic_id != topic_id"),
    ),
)  # fmt: skip
def test_member_repeats_itself(story: list[Step]) -> None:
    happens(do("find_group"), *story)


@finds(beating.again, "None if response.error_code else ")
def test_refused_heartbeat_is_not_remembered() -> None:
    asked: Any = heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    nothing: Any = None
    answer = heartbeat.HeartbeatResponse()
    assert beating.again(nothing, asked, nothing, answer) is not None
    answer.error_code = ErrorCode.REBALANCE_IN_PROGRESS
    assert beating.again(nothing, asked, nothing, answer) is None


# -- in a transaction ------------------------------------------------------------------------------


def whose(version: int) -> str:
    """Return the producer whose transactions have this version."""
    return "y" if version >= 5 else "x"


def adds(version: int) -> list[Step]:
    return [do("add_group", "x").says("NONE")] * (version < 5)


def sent(version: int, offset: int = 1, **fields: Any) -> Step:
    return commit(offset, version=version, who=whose(version), **fields)


@pytest.mark.parametrize("version", [0, 3, 4, 5, 6])
def test_offsets_are_committed_again_in_each_transaction(version: int) -> None:
    who = whose(version)
    story = [do("find_group")]
    for at in range(4):
        first, second = [
            do("commit", ("t", 0, at), ("t", 1, to), who=who, version=version) for to in (-1, 7)
        ]
        story += [
            *adds(version), first.quick if at else first.slow, second.quick,
            do("end", who, commit=at % 2 == 0).says("NONE"), commit(at).says("NONE"),
        ]  # fmt: skip
    happens(*story)


def one_partition(it: World) -> None:
    """Have all groups in another partition than before."""
    for side in it.pair.sides:
        side.broker._coordination.groups.partitions = lambda: 1


NEXT = commit(2, version=3, who="x")


@cases(
    "version, story",
    (
        3, [do("init", "x"), commit(2, version=3, who="former").says(EPOCH)],
        (Repeats.serve, "except KafkaError:", "except ZeroDivisionError:"),
    ),
    (5, [do("init", "y"), commit(2, version=5, who="former").says(EPOCH)]),
    # A group that moves to another partition joins the transaction with that.
    (3, [do("end", "x"), one_partition, *adds(3), sent(3, 9).says("NONE").slow]),
    (
        5, [do("end", "y"), one_partition, sent(5, 9).says("NONE").slow],
        (in_transaction._commit_again, "index != place.partition", "False"),
    ),
    (3, [sent(3, 2, epochs=1).says(EPOCH)]),
    (
        3, [JOIN, sent(3).slow, sent(3).quick, LEAVE, sent(3, 2).says(UNKNOWN_MEMBER)],
        (Repeats.serve, "except KafkaError:", "except ZeroDivisionError:"),
    ),
)  # fmt: skip
def test_changed_producer_group_and_member_are_noticed(version: int, story: list[Step]) -> None:
    known = [*adds(version), sent(version).slow, sent(version, 2).quick]
    happens(do("find_group"), *known, *story)


@finds(in_transaction._commit_again, "claim.epoch_per_transaction or ", "", "false")
@finds(in_transaction._commit_again, " or verifier.verifies", "", "true")
@finds(in_transaction._commit_again, "or verifier.verifies", "or True", "false")
@finds(in_transaction._commit_again, "elif guard is not None:", "elif False:", "true")
@finds(
    in_transaction._commit_again,
    "if not verifier.add_again(added, producer, now_ms):",
    "if False:",
    "false",
)
@pytest.mark.parametrize("verifies", ["true", "false"])
def test_transaction_of_offsets_is_verified_as_configured(verifies: str) -> None:
    after = sent(4, 9).says("TRANSACTION_ABORTABLE") if verifies == "true" else sent(4, 9).quick
    story = [do("find_group"), *adds(4)]
    for at in range(3):
        both = sent(4, at), sent(5, at)
        story += [each.quick if at else each.slow for each in both]
        story += [do("end", "y").says("NONE")]
    key = {"transaction_partition_verification_enable": verifies}
    happens(*story, do("end", "x").says("NONE"), after, **key)


# -- the newer group protocol ----------------------------------------------------------------------

CONSUMES = do("consume", 2)
MEMBER = [
    do("find_group"),
    do("consume", 0).says("NONE"),
    *[CONSUMES] * 2,
    CONSUMES.quick,
]


def told_interval(it: World) -> None:
    assert it.consume(2).heartbeat_interval_ms == 7000


def level(level: int, way: int) -> Step:
    change = {"feature": "group.version", "max_version_level": level, "upgrade_type": way}
    return do("ask", "update_features", feature_updates=[change]).says("NONE")


@cases(
    "story",
    ([*[do("wait", 5), CONSUMES.quick] * 12, do("wait", 46), CONSUMES.says(UNKNOWN_MEMBER)],),
    # The member gives a partition up to another one.
    (
        [
            do("consume", 0, "b"), do("wait", 2), do("consume", 2, "b"), CONSUMES.slow,
            CONSUMES, do("consume", 2, topic_partitions=[]), CONSUMES.says("FENCED_MEMBER_EPOCH"),
        ],
    ),
    ([do("grow", "t", 3), CONSUMES.says("NONE").slow],),
    ([do("leave", "a"), CONSUMES.says(UNKNOWN_MEMBER), do("consume", 0).says("NONE")],),
    (
        [level(0, 2), CONSUMES.says("UNSUPPORTED_VERSION"), level(1, 1), CONSUMES.says("NONE")],
        (consuming._beat_again, "if not features.has_consumer_groups:", "if False:"),
    ),
    (
        [
            do("configure", GROUP, KIND_OF_GROUPS, consumer_heartbeat_interval_ms="7000"),
            do("wait", 1), told_interval, told_interval, told_interval,
        ],
        (consuming._beat_again, "and answer.heartbeat_interval_ms == interval_ms"),
    ),
)  # fmt: skip
def test_consumer_is_told_what_changes(story: list[Step]) -> None:
    happens(*MEMBER, *story)


def test_right_of_a_consumer_that_is_taken_away_is_missed_by_the_next_request() -> None:
    kinds = {ResourceType.TOPIC: "t", ResourceType.GROUP: GROUP}
    rules = [rule(AclOperation.ALL, kind, name) for kind, name in kinds.items()]
    taken = do("forbid", ResourceType.GROUP, GROUP)
    happens(*MEMBER, taken, CONSUMES.says("GROUP_AUTHORIZATION_FAILED"), rules=(*rules,))


test_missing_check_is_found = hunt(globals())
