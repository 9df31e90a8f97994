"""Refusals: damaged bytes, values that a version cannot carry, and excessive memory."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, decoder, encode, encode_parts
from barnabas.protocol.compile import read_uvarint, write_uvarint
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.schema import Schema, WireType, fields_of
from tests.support.interpret import interpret_decode
from tests.unit.protocol.declared import FEW, messages, schemas, sliced_decode, versions


def outcome(read: Any, cls: type[Any], version: int, data: bytes) -> Any:
    try:
        return read(cls, version, data)
    except ProtocolError:
        return ProtocolError


@pytest.mark.parametrize(("cls", "version"), versions())
@FEW
@given(data=st.data())
def test_damaged_bytes_raise_only_protocol_error_like_the_interpreter(
    cls: type[Any], version: int, data: st.DataObject
) -> None:
    encoded = bytearray(encode(data.draw(messages(cls, version)), version))
    damaged = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    assert outcome(decode, cls, version, damaged) == outcome(
        interpret_decode, cls, version, damaged
    )
    assert outcome(sliced_decode, cls, version, damaged) == outcome(decode, cls, version, damaged)
    if len(damaged) < len(encoded):
        with pytest.raises(ProtocolError):
            decoder(cls, version)(damaged, 0, False)
    for _ in range(3):
        if encoded:
            where = data.draw(st.integers(0, len(encoded) - 1))
            encoded[where] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    damaged = bytes(encoded)
    assert outcome(decode, cls, version, damaged) == outcome(
        interpret_decode, cls, version, damaged
    )
    assert outcome(sliced_decode, cls, version, damaged) == outcome(decode, cls, version, damaged)


@pytest.mark.parametrize("schema", list(schemas()), ids=lambda schema: schema.cls.__name__)
def test_every_array_element_takes_bytes_so_that_input_bounds_memory(schema: Schema) -> None:
    def least(kind: WireType, version: int) -> int:
        if kind.struct is None or kind.nullable:
            return 1
        inline = [f for f in fields_of(kind.struct) if f.exists(version) and f.spec.tag is None]
        return sum(least(f.type, version) for f in inline) + schema.is_flexible(version)

    def check(cls: Any, version: int) -> None:
        for field in fields_of(cls):
            kind = field.type.item or field.type
            if field.exists(version):
                if field.type.item is not None:
                    assert least(field.type.item, version) > 0, f"{cls}.{field.name} v{version}"
                if kind.struct is not None:
                    check(kind.struct, version)

    for version in schema.versions:
        check(schema.cls, version)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 12, b"\xff\xff\xff\xff\x0f"),
        (ProduceRequest, 3, b"\xff\xff\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff"),
        (DescribeGroupsRequest, 0, b"\x7f\xff\xff\xff\x00\x00"),
        (FetchRequest, 4, bytes(17) + b"\x7f\xff\xff\xff"),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_huge_count_costs_no_memory(cls: type[Any], version: int, data: bytes) -> None:
    outcome(decode, cls, version, data)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        decode(cls, version, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(("version", "count"), [(8, (2**20 + 1).to_bytes(4)), (9, b"\x82\x80\x40")])
def test_an_array_longer_than_a_million_elements_is_refused(version: int, count: bytes) -> None:
    tail = b"\x01\x00\x00" + b"\x00" * (version == 9)
    elements = (b"\x00\x00" if version == 8 else b"\x01\x00") * (2**20 + 1)
    with pytest.raises(ProtocolError, match="1048577 elements"):
        decode(MetadataRequest, version, count + elements + tail)


@pytest.mark.parametrize(
    ("data", "value"),
    [("00", 0), ("7f", 127), ("8001", 128), ("ffff03", 65535), ("80808001", 2**21),
     ("ffffffff0f", 2**32 - 1), ("8000", 0)],
)  # fmt: skip
def test_varints_of_one_to_five_bytes(data: str, value: int) -> None:
    encoded = bytes.fromhex(data)
    assert read_uvarint(b"\xff" + encoded, 1) == (value, 1 + len(encoded))
    assert read_uvarint(write_uvarint(value), 0)[0] == value


@pytest.mark.parametrize("value", [2**power + step for power in range(7, 32) for step in (-1, 0)])
def test_a_varint_is_written_in_as_few_bytes_as_it_needs(value: int) -> None:
    encoded = write_uvarint(value)
    assert len(encoded) == -(-value.bit_length() // 7)
    assert read_uvarint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffffff00", "ffffffff8000"])
def test_a_varint_of_more_than_32_bits_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(bytes.fromhex(data), 0)


def test_bytes_behind_a_message_are_refused_unless_the_caller_expects_them() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    encoded = encode(message, 0)
    with pytest.raises(ProtocolError, match="behind it for 1"):
        decode(HeartbeatRequest, 0, encoded + b"\0")
    assert decoder(HeartbeatRequest, 0)(encoded + b"\0", 0, False) == message


def test_unknown_tagged_fields_are_skipped() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    tagged = encode(message, 4)[:-1] + bytes.fromhex("01 8101 03 aabbcc")
    assert decode(HeartbeatRequest, 4, tagged) == message


def commits(count: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition
    partitions = [partition(partition_index=i, error_code=i) for i in range(count)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize("at", [[0], [3], [8], [2, 6], range(9)])
def test_unknown_tagged_fields_are_skipped_amid_structs_of_one_size(at: Sequence[int]) -> None:
    encoded, size = encode(commits(9), 8), 4 + 2 + 1
    first = encoded.index(b"t\x0a") + 2
    elements = [encoded[p : p + size] for p in range(first, first + 9 * size, size)]
    for index in at:
        elements[index] = elements[index][:-1] + bytes.fromhex("01 8101 03 aabbcc")
    tagged = encoded[:first] + b"".join(elements) + encoded[first + 9 * size :]
    assert decode(OffsetCommitResponse, 8, tagged) == commits(9)


@pytest.mark.parametrize("version", [7, 8])
def test_a_count_of_structs_beyond_the_bytes_that_remain_is_refused(version: int) -> None:
    encoded = encode(commits(9), version)
    count = encoded.index(b"t", 4) + (4 if version == 7 else 1)
    claimed = encoded[:count] + bytes([encoded[count] + 1]) + encoded[count + 1 :]
    with pytest.raises(ProtocolError):
        decode(OffsetCommitResponse, version, claimed)


def test_a_tagged_field_whose_size_is_wrong_is_refused() -> None:
    encoded = encode(FetchRequest(cluster_id="c", max_wait_ms=0, min_bytes=0, topics=[]), 12)
    assert encoded.endswith(bytes.fromhex("01 00 02 02 63"))
    with pytest.raises(ProtocolError, match="wrong size"):
        decode(FetchRequest, 12, encoded[:-5] + bytes.fromhex("01 00 03 02 63 00"))


def test_a_version_outside_the_range_is_refused_in_both_directions() -> None:
    with pytest.raises(ProtocolError, match="no version 14"):
        decode(MetadataRequest, 14, b"")
    with pytest.raises(ProtocolError, match="no version 2"):
        encode(ProduceResponse(responses=[]), 2)


def test_null_is_encoded_only_in_versions_that_allow_it() -> None:
    assert decode(MetadataRequest, 1, encode(MetadataRequest(topics=None), 1)).topics is None
    with pytest.raises(ProtocolError):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError, match="topics is null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)


def test_value_that_a_version_lacks_is_refused_unless_ignorable() -> None:
    with pytest.raises(ProtocolError, match="cannot carry groups"):
        encode(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 7)
    ignorable = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], rack_id="r")
    assert decode(FetchRequest, 10, encode(ignorable, 10)).rack_id == ""


@pytest.mark.parametrize("version", [0, 4])
def test_a_string_longer_than_32767_bytes_is_refused(version: int) -> None:
    longest = HeartbeatRequest(group_id="x" * 32767, generation_id=0, member_id="")
    assert decode(HeartbeatRequest, version, encode(longest, version)) == longest
    with pytest.raises(ProtocolError):
        encode(HeartbeatRequest(group_id="x" * 32768, generation_id=0, member_id=""), version)


@pytest.mark.parametrize("value", [2**31, "1", None])
def test_a_value_of_the_wrong_type_or_range_is_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v0"):
        encode(HeartbeatRequest(group_id="g", generation_id=value, member_id="m"), 0)


def fetched(records: Any) -> FetchResponse:
    partition = PartitionData(
        partition_index=0, high_watermark=9, aborted_transactions=None, records=records
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def test_records_are_views_of_the_input_and_pass_through_uncopied() -> None:
    records = b"r" * 1000
    parts = encode_parts(fetched(records), 11)
    assert any(part is records for part in parts)
    frame = memoryview(b"header" + encode(fetched(records), 11))
    decoded = decode(FetchResponse, 11, frame, 6).responses[0].partitions[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is frame.obj
    assert decoded == records


def test_absent_records_do_not_cut_an_answer_into_parts() -> None:
    answer = fetched(None)
    answer.responses[0].partitions *= 3
    for version in (11, 12):
        assert len(encode_parts(answer, version)) == 1
        assert decode(FetchResponse, version, encode(answer, version)) == answer


def test_records_that_are_still_in_a_log_count_by_their_length() -> None:
    class Slice:
        def __len__(self) -> int:
            return 5

    source = Slice()
    parts = encode_parts(fetched(source), 11)
    assert parts[1] is source
    data = b"".join(bytes(5) if part is source else part for part in parts)
    assert decode(FetchResponse, 11, data) == fetched(bytes(5))
    with pytest.raises(ProtocolError, match="encode_parts"):
        encode(fetched(source), 11)


def test_a_shared_default_of_a_decoded_message_cannot_be_changed() -> None:
    partition = decode(FetchResponse, 11, encode(fetched(b""), 11)).responses[0].partitions[0]
    assert partition.current_leader == LeaderIdAndEpoch()
    with pytest.raises(AttributeError, match="shared"):
        partition.current_leader.leader_id = 3
    partition.current_leader = LeaderIdAndEpoch(leader_id=3)
    assert partition.current_leader.leader_id == 3
