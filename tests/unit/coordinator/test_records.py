"""Records of `__consumer_offsets`: Kafka's bytes, and what Kafka may have written before us."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, classic_part
from barnabas.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    current,
    group_epoch,
    subscription,
    target,
    target_epoch,
)
from barnabas.coordinator.group.consumer.replay import replay
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.coordinator.group.group import Group, Member, MemberMemory
from barnabas.coordinator.group.records import (
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    decode_record,
    encode_record,
    group_record,
    restored,
)
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.group_metadata import GroupMetadataValue, MemberMetadata
from barnabas.protocol.types import ZERO_UUID

INT64 = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_an_offset_has_the_bytes_that_kafka_writes() -> None:
    record = OffsetRecord("g", "t", 3, OffsetAndMetadata(7, 2, "m", 1_000))
    key, value = encode_record(record)
    assert key == b"\0\x01\0\x01g\0\x01t\0\0\0\x03"
    assert value == (
        b"\0\x03" + (7).to_bytes(8, "big") + b"\0\0\0\x02" + b"\0\x01m" + (1_000).to_bytes(8, "big")
    )


def test_a_group_has_the_bytes_that_kafka_writes() -> None:
    member = Member("m", None, "c", "/h", 10, 20, (("range", b"S"),), b"A")
    group = Group("g", 5, GroupState.STABLE, generation=3, protocol_type="consumer")
    group.protocol_name, group.leader_id = "range", "m"
    key, value = encode_record(group_record(group, [member], {"m": b"A"}, "m"))
    assert key == b"\0\x02\0\x01g"
    assert value == (
        b"\0\x03"
        b"\0\x08consumer" b"\0\0\0\x03" b"\0\x05range" b"\0\x01m"
        b"\0\0\0\0\0\0\0\x05"
        b"\0\0\0\x01"
        b"\0\x01m" b"\xff\xff" b"\0\x01c" b"\0\x02/h" b"\0\0\0\x14" b"\0\0\0\x0a"
        b"\0\0\0\x01S" b"\0\0\0\x01A"
    )  # fmt: skip


@given(
    record=st.builds(
        OffsetRecord,
        TEXT,
        TEXT,
        st.integers(0, 2**31 - 1),
        st.none()
        | st.builds(
            OffsetAndMetadata, INT64, st.integers(-1, 2**31 - 1), TEXT, INT64, st.just(-1),
            st.binary(min_size=16, max_size=16),
        )
        | st.builds(
            OffsetAndMetadata, INT64, st.just(-1), TEXT, INT64, INT64, st.just(ZERO_UUID)
        ),
    )
)  # fmt: skip
def test_offset_record_round_trips(record: OffsetRecord) -> None:
    assert decode_record(*encode_record(record)) == record


IDS = st.binary(min_size=16, max_size=16)
INT32 = st.integers(0, 2**31 - 1)
PARTITIONS = st.dictionaries(IDS, st.dictionaries(INT32, INT32, max_size=40), max_size=3)
LONG_TEXT = TEXT | st.text("x", min_size=120, max_size=140)
MEMBERS = st.builds(
    ConsumerMember,
    st.just("m"),
    st.none() | LONG_TEXT,
    st.none() | LONG_TEXT,
    LONG_TEXT,
    LONG_TEXT,
    st.lists(LONG_TEXT, max_size=3).map(tuple),
    LONG_TEXT,
    INT32,
    st.none() | TEXT,
    st.none() | st.builds(classic_part, INT32, st.just((("range", b"S"),))),
    INT32,
    INT32,
    st.sampled_from(MemberState),
    PARTITIONS,
    PARTITIONS,
)


@given(MEMBERS, INT32, st.integers(-(2**63), 2**63 - 1), PARTITIONS)
def test_what_a_decision_replays_is_what_its_bytes_replay(
    member: ConsumerMember, epoch: int, detail: int, partitions: dict[bytes, dict[int, int]]
) -> None:
    """A value that is a member, a target or an epoch has the bytes of the message of its kind."""
    decided = [
        subscription("g", member),
        group_epoch("g", epoch, detail),
        target("g", "m", partitions),
        target_epoch("g", epoch, detail),
        current("g", member),
    ]
    live: dict[str, ConsumerGroup] = {}
    loaded: dict[str, ConsumerGroup] = {}
    for record in decided:
        replay(live, record)
        encoded = encode_record(record)
        read = decode_record(*encoded)
        assert isinstance(read, ConsumerGroupRecord)
        assert encode_record(read) == encoded
        replay(loaded, read)
    assert loaded == live


def test_tombstones_round_trip() -> None:
    for record in (OffsetRecord("g", "t", 1, None), GroupRecord("g", None)):
        key, value = encode_record(record)
        assert value is None
        assert decode_record(key, None) == record


def test_values_of_old_brokers_are_read() -> None:
    key = b"\0\0\0\x01g\0\x01t\0\0\0\x03"
    stamp = (9).to_bytes(8, "big")
    value = b"\0\x01" + stamp + b"\0\x01m" + stamp + stamp
    assert decode_record(key, value) == OffsetRecord(
        "g", "t", 3, OffsetAndMetadata(9, -1, "m", 9, 9)
    )
    group = (
        b"\0\0" b"\0\x08consumer" b"\0\0\0\x01" b"\0\x01r" b"\0\x01m" b"\0\0\0\x01"
        b"\0\x01m" b"\0\x01c" b"\0\x02/h" b"\0\0\0\x0a" b"\0\0\0\0" b"\0\0\0\0"
    )  # fmt: skip
    found = decode_record(b"\0\x02\0\x01g", group)
    assert isinstance(found, GroupRecord)
    assert found.value is not None
    member = restored("g", found.value, MemberMemory()).members["m"]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10, 10)


def test_bytes_behind_the_known_fields_are_skipped() -> None:
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=9, subscription=b"S",
        assignment=b"A",
    )  # fmt: skip
    for record in (
        OffsetRecord("g", "t", 3, OffsetAndMetadata(7, 2, "m", 1_000)),
        GroupRecord(
            "g",
            GroupMetadataValue(
                protocol_type="consumer",
                generation=3,
                protocol="range",
                leader="m",
                current_state_timestamp=5,
                members=[member],
            ),
        ),
    ):
        key, value = encode_record(record)
        assert value is not None
        assert decode_record(key + b"\0later", value + b"\0later") == record


def test_records_of_other_protocols_are_skipped() -> None:
    assert decode_record(b"\0\x09\0\x01g", b"\0\0\0\0\0\x01") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", b""),
        (b"\0\x01\0\x05g", b""),
        (b"\0\x02\0\x01g", b""),
        (b"\0\x02\0\x01g", b"\0\x09"),
        (b"\0\x02\0\x01g", b"\xff\xff"),
        (b"\0\x01\0\x01g\0\x01t\0\0\0\x03", b"\0\x03\0"),
    ],
)
def test_damaged_records_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, value)
