"""ConsumerGroupDescribe tells nothing of topics that its sender may not describe."""

from typing import Any

import pytest

from barnabas.broker.handlers import consumer_group_describe, consumer_group_heartbeat
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.coordinator.consumers import Consumers, Member
from tests.support.coordinator.harness import GROUP
from tests.support.steps import all_taken


class Context:
    """A sender that may describe some topics."""

    api_version = 1
    client_id = "c"
    client_host = "h"

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def allows(self, _operation: Any, _type: Any, name: str, **_: Any) -> bool:
        return name in self.topics


class Level:
    """The level of `group.version`."""

    def __init__(self, *, has_consumer_groups: bool = True) -> None:
        self.has_consumer_groups = has_consumer_groups


async def described(context: Context) -> Any:
    host = Consumers()
    host.topics.create("t", 2)
    host.topics.create("u", 2)
    await host.load()
    Member(host, "m", ("t",)).join()
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    parts: Any = (host.coordinator, Level(), request, context)
    return all_taken(consumer_group_describe.handle(*parts)).groups[0]


async def test_group_of_a_topic_that_may_not_be_described_is_refused() -> None:
    group = await described(Context("u"))
    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert group.members == []


async def test_group_of_topics_that_may_be_described_is_shown() -> None:
    group = await described(Context("t"))
    assert [each.member_id for each in group.members] == ["m"]


async def test_no_request_is_served_below_the_level_of_the_feature() -> None:
    host = Consumers()
    await host.load()
    old = Level(has_consumer_groups=False)
    describe = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    beat = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=0)
    parts: Any = (host.coordinator, old)
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        all_taken(consumer_group_describe.handle(*parts, describe, Context()))  # type: ignore[call-arg]
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        consumer_group_heartbeat.handle(*parts, beat, Context())  # type: ignore[call-arg]
    assert not host.log.records
