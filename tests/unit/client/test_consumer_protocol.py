"""The consumer protocol inside JoinGroup and SyncGroup, as members of any version write it."""

import pytest

from barnabas.client.groups.assignors import Subscription
from barnabas.client.groups.classic import _subscription_of
from barnabas.client.groups.protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
from barnabas.protocol.topic_partition import TopicPartition

SHARE = [TopicPartition("t", 0), TopicPartition("t", 2)]
WHOLE = Subscription(["a", "t"], SHARE, 7)
BEHIND = [b"", b"\0", b"\0\x05later"]


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("version", [3, 4, 0x7FFF])
def test_subscription_of_a_later_version_is_read(version: int, behind: bytes) -> None:
    data = version.to_bytes(2, "big") + write_subscription(WHOLE, 3)[2:] + behind
    assert read_subscription(data) == WHOLE


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("version", [0, 3, 4, 0x7FFF])
def test_assignment_of_a_later_version_is_read(version: int, behind: bytes) -> None:
    data = version.to_bytes(2, "big") + write_assignment(SHARE)[2:] + behind
    assert read_assignment(data) == SHARE


def test_metadata_that_is_cut_off_or_older_than_all_versions_is_refused() -> None:
    subscription, assignment = write_subscription(WHOLE, 3), write_assignment(SHARE)
    for size in range(len(subscription)):
        with pytest.raises(ProtocolError):
            read_subscription(subscription[:size])
    for size in range(1, len(assignment)):
        with pytest.raises(ProtocolError):
            read_assignment(assignment[:size])
    for whole, read in ((subscription, read_subscription), (assignment, read_assignment)):
        with pytest.raises(ProtocolError, match="version -1"):
            read(b"\xff\xff" + whole[2:])


def test_unreadable_subscription_is_one_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    member = JoinGroupResponseMember(member_id="foreign-1", metadata=b"\0\1\0\0\0\1\0")
    assert _subscription_of(member) == Subscription(())
    assert "member foreign-1 gets no partitions" in caplog.text
