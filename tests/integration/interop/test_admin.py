"""Administrators' calls with the admin client of every library that has them."""

import itertools

import pytest

from tests.integration.interop.clients import KINDS
from tests.integration.interop.conftest import Start
from tests.integration.interop.message import Message
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("interop-admin")

NODE = 0
MANY = 10

NOT_IN_AIOKAFKA = ("confluent", "kafka_python", "java")
"""aiokafka cannot change configurations incrementally, and cannot change groups."""
WITH_OFFSET_DELETES = ("kafka_python", "java")
WITH_LOG_DIRS = ("kafka_python", "java")

_numbers = itertools.count()


@pytest.fixture
def topic(client: Start) -> str:
    """Create a topic of one partition with ten messages."""
    name = f"admin-{next(_numbers)}"
    client("java")("create_topic", topic=name, partitions=1)
    client("confluent").write(name, [Message(None, b"%d" % at) for at in range(MANY)])
    return name


@pytest.fixture
def group(client: Start, topic: str) -> str:
    """Create an empty group whose committed offset is 4."""
    name = f"group-of-{topic}"
    client("java")("alter_offset", group=name, topic=topic, partition=0, offset=4)
    return name


@pytest.mark.parametrize("kind", KINDS)
def test_topics_are_created_extended_and_deleted(client: Start, kind: str) -> None:
    admin, name = client(kind), f"by-{kind}"
    admin("create_topic", topic=name, partitions=2)
    assert admin("partitions", topic=name) == 2
    with pytest.raises(Exception, match=r"(?i)exist"):
        admin("create_topic", topic=name, partitions=2)
    admin("grow", topic=name, partitions=5)
    assert admin("partitions", topic=name) == 5
    assert name in admin("topics")
    admin("delete_topic", topic=name)
    assert name not in admin("topics")


@pytest.mark.parametrize("kind", NOT_IN_AIOKAFKA)
def test_configurations_change_key_by_key(client: Start, kind: str, topic: str) -> None:
    admin = client(kind)
    admin("set_config", topic=topic, key="retention.ms", value="12345")
    admin("set_config", topic=topic, key="max.message.bytes", value="54321")
    assert admin("config", topic=topic, key="retention.ms") == "12345"
    assert admin("config", topic=topic, key="max.message.bytes") == "54321"
    with pytest.raises(Exception, match=r"(?i)invalid"):
        admin("set_config", topic=topic, key="retention.ms", value="soon")


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_deleted(client: Start, kind: str, topic: str) -> None:
    assert client(kind)("delete_records", topic=topic, partition=0, before=3) == 3
    (first,) = client(kind).read(topic, 1)
    assert first.value == b"3"


@pytest.mark.parametrize("kind", WITH_LOG_DIRS)
def test_log_directories_are_described(client: Start, kind: str, topic: str) -> None:
    assert client(kind)("log_size", topic=topic, node=NODE) > MANY


@pytest.mark.parametrize("kind", KINDS)
def test_the_cluster_is_described(client: Start, kind: str) -> None:
    assert client(kind)("cluster") == {"nodes": [NODE], "controller": NODE}


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_listed_and_described(client: Start, kind: str, group: str) -> None:
    admin, topic = client(kind), group.removeprefix("group-of-")
    assert group in admin("groups")
    assert admin("group", group=group) == {"state": "Empty", "members": 0}
    assert admin("offsets", group=group) == {"0": 4}
    member = admin.join(f"described-{kind}", topic, group)
    until(lambda: admin("group", group=group) == {"state": "Stable", "members": 1})
    member.leave()
    until(lambda: admin("group", group=group) == {"state": "Empty", "members": 0})


@pytest.mark.parametrize("kind", NOT_IN_AIOKAFKA)
def test_a_groups_offsets_are_moved_and_the_group_deleted(
    client: Start, kind: str, group: str
) -> None:
    admin, topic = client(kind), group.removeprefix("group-of-")
    admin("alter_offset", group=group, topic=topic, partition=0, offset=7)
    assert admin("offsets", group=group) == {"0": 7}
    member = admin.join(f"moved-{kind}", topic, group)
    until(lambda: member.read == ["7", "8", "9"])
    with pytest.raises(Exception, match=r"(?i)not.?empty|non.?empty"):
        admin("delete_group", group=group)
    member.leave()
    admin("delete_group", group=group)
    assert group not in admin("groups")


@pytest.mark.parametrize("kind", WITH_OFFSET_DELETES)
def test_a_groups_offset_is_deleted(client: Start, kind: str, group: str) -> None:
    admin, topic = client(kind), group.removeprefix("group-of-")
    admin("delete_offset", group=group, topic=topic, partition=0)
    assert admin("offsets", group=group) == {}
