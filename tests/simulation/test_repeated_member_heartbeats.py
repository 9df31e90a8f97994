"""ConsumerGroupHeartbeat that repeats: a broker that remembers it and one that does not have the
same answers, logs and groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.broker.handlers import consumer_group_heartbeat as beating
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    consumer_group_heartbeat,
    create_partitions,
    find_coordinator,
    incremental_alter_configs,
    leave_group,
    update_features,
)
from barnabas.security.acl.rules import AclOperation, ResourceType
from tests.simulation.repeats.produce import AUTHORIZER, allow, forbid, rule
from tests.simulation.repeats.twins import Twins, twins
from tests.support.mutants import finds, hunt

GROUP = "g"
_OF_GROUPS = 32
_SET = 0


class Rig:
    """Two brokers with the topic `t`, and a group with the member `a`, who has its partitions."""

    def __init__(self, pair: Twins) -> None:
        self.twins = pair
        pair.create("t", 2)
        asked = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0)
        pair.ask(find_coordinator, asked)
        pair.wait(3)
        assert self.join("a") == (2, 2)
        for _ in range(3):
            assert self.beat() == (2, None)
        assert self.served > 0

    @property
    def served(self) -> int:
        """The requests that were answered from memory."""
        return self.twins.hits_of(consumer_group_heartbeat)

    def beat(self, epoch: int = 2, member_id: str = "a", **fields: Any) -> Any:
        """Send a heartbeat: answered with the epoch and the number of partitions, if they are told,
        or with the name of the error."""
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        answer = self.twins.ask(consumer_group_heartbeat, request, 1)
        self.twins.state()
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        told = answer.assignment
        return answer.member_epoch, told and sum(
            len(each.partitions) for each in told.topic_partitions
        )

    def join(self, member_id: str) -> Any:
        told = {"subscribed_topic_names": ["t"], "topic_partitions": []}
        return self.beat(0, member_id, rebalance_timeout_ms=60_000, **told)


@contextmanager
def running(**keys: str) -> Iterator[Rig]:
    with twins(**keys) as pair:
        yield Rig(pair)


def test_heartbeats_extend_the_session() -> None:
    with running() as rig:
        before = rig.served
        for _ in range(12):
            rig.twins.wait(5)
            assert rig.beat() == (2, None)
        assert rig.served > before + 10
        rig.twins.wait(46)
        assert rig.beat() == "UNKNOWN_MEMBER_ID"


def test_member_is_told_to_give_up() -> None:
    with running() as rig:
        rig.join("b")
        rig.twins.wait(2)
        rig.beat(2, "b")
        assert rig.beat() == (2, 1)
        assert rig.beat() == (2, None)
        assert rig.beat(topic_partitions=[]) == (3, None)
        assert rig.beat() == "FENCED_MEMBER_EPOCH"


def test_member_is_told_of_new_partitions() -> None:
    with running() as rig:
        topic = create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[topic], timeout_ms=5_000, validate_only=False
        )
        rig.twins.ask(create_partitions, request)
        rig.twins.wait(2)
        assert rig.beat() == (3, 3)


def test_member_that_was_removed_is_refused() -> None:
    with running() as rig:
        identity = leave_group.MemberIdentity(member_id="a")
        request = leave_group.LeaveGroupRequest(group_id=GROUP, members=[identity])
        rig.twins.ask(leave_group, request, 3)
        assert rig.beat() == "UNKNOWN_MEMBER_ID"
        assert rig.join("a") == (4, 2)


@finds(beating._beat_again, "if not features.has_consumer_groups:", "if False:")
def test_level_that_is_lowered_holds_for_the_next_request() -> None:
    with running() as rig:
        for level, way, expected in ((0, 2, "UNSUPPORTED_VERSION"), (1, 1, (2, None))):
            change = update_features.FeatureUpdateKey(
                feature="group.version", max_version_level=level, upgrade_type=way
            )
            request = update_features.UpdateFeaturesRequest(feature_updates=[change])
            assert not rig.twins.ask(update_features, request).error_code
            assert rig.beat() == expected


@finds(beating._beat_again, "and answer.heartbeat_interval_ms == interval_ms")
def test_interval_that_is_changed_holds_for_the_next_request() -> None:
    with running() as rig:
        module = incremental_alter_configs
        config = module.AlterableConfig(
            name="consumer.heartbeat.interval.ms", config_operation=_SET, value="7000"
        )
        resource = module.AlterConfigsResource(
            resource_type=_OF_GROUPS, resource_name=GROUP, configs=[config]
        )
        request = module.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        rig.twins.ask(module, request)
        rig.twins.wait(1)
        beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id="a", member_epoch=2
        )
        for _ in range(3):
            answer = rig.twins.ask(consumer_group_heartbeat, beat, 1)
            assert answer.heartbeat_interval_ms == 7_000


def test_right_that_is_taken_away_is_missed_by_the_next_request() -> None:
    with twins(**AUTHORIZER) as pair:
        allow(
            pair,
            rule(AclOperation.ALL, ResourceType.CLUSTER, "kafka-cluster"),
            rule(AclOperation.ALL, ResourceType.TOPIC, "t"),
            rule(AclOperation.ALL, ResourceType.GROUP, GROUP),
        )
        rig = Rig(pair)
        forbid(pair, ResourceType.GROUP, GROUP)
        assert rig.beat() == "GROUP_AUTHORIZATION_FAILED"


test_missing_check_is_found = hunt(globals())
