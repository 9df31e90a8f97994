"""Bounds of a request: its elements as a whole, its tagged fields, and the steps of its decoder."""

from typing import Any

import pytest

from barnabas.broker.routes import API_TABLE
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.compile import FEW, FORMATS, MAX_TAGS, STRIDE, Form
from barnabas.protocol.compile_decode import decoder, has_records
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import ProtocolError, TooManyElements
from barnabas.protocol.header import decode_request_header, encode_request_header
from barnabas.protocol.messages import heartbeat, metadata, offset_commit, produce
from barnabas.protocol.schema import Api, fields_of
from tests.support.large_messages import around, arrays, large_message
from tests.unit.protocol.declared import finish, sliced_decode

SOME = 300


def served() -> list[Any]:
    """Return (api, version) of everything that a broker serves."""
    return [
        pytest.param(row.api, version, id=f"{row.api.name}-v{version}")
        for row in API_TABLE
        for version in row.versions
    ]


@pytest.mark.parametrize(("api", "version"), served())
def test_elements_of_each_array_are_bounded_and_decoded_in_steps(api: Api, version: int) -> None:
    for path in arrays(api.request, version):
        message = large_message(api.request, version, path, SOME)
        data = encode(message, version)
        most = SOME + around(path)
        assert sliced_decode(api.request, version, data, most) == message
        with pytest.raises(ProtocolError, match=f"more than {most - 1} elements"):
            sliced_decode(api.request, version, data, most - 1)
        steps = sum(1 for _ in decoder(api.request, version, Form.SLICED)(data, 0, True, most))
        numbers = path[-1].type.item.kind in FORMATS
        assert numbers or steps >= SOME // STRIDE


@pytest.mark.parametrize(("api", "version"), served())
def test_response_of_many_elements_is_encoded_in_steps_and_to_the_same_bytes(
    api: Api, version: int
) -> None:
    for path in arrays(api.response, version):
        message = large_message(api.response, version, path, SOME)
        with pytest.raises(TooManyElements):
            encoder(api.response, version, Form.SMALL)(message)
        steps = encoder(api.response, version, Form.SLICED)
        numbers = path[-1].type.item.kind in FORMATS
        assert numbers or sum(1 for _ in steps(message)) >= SOME // STRIDE
        assert b"".join(finish(steps(message))) == encode(message, version)


@pytest.mark.parametrize("row", API_TABLE, ids=lambda row: row.api.name)
def test_request_with_as_many_elements_as_allowed_is_decoded_and_one_more_is_refused(
    row: Any,
) -> None:
    api, version = row.api, row.versions[-1]
    path = max(arrays(api.request, version), key=len, default=())
    if not path:
        return
    room = api.max_elements - around(path)
    data = encode(large_message(api.request, version, path, room), version)
    assert sliced_decode(api.request, version, data, api.max_elements) is not None
    data = encode(large_message(api.request, version, path, room + 1), version)
    with pytest.raises(ProtocolError, match="more than"):
        sliced_decode(api.request, version, data, api.max_elements)


def tags(count: int) -> bytes:
    """Return a section of unknown tagged fields."""
    return bytes([count]) + b"".join(bytes([tag, 1, 7]) for tag in range(50, 50 + count))


@pytest.mark.parametrize(("api", "version"), served())
def test_tagged_fields_are_bounded_in_each_message(api: Api, version: int) -> None:
    message = large_message(api.request, version)
    data = encode(message, version)
    if not api.is_flexible(version):
        return
    assert data.endswith(b"\0")
    most = data[:-1] + tags(MAX_TAGS)
    assert decode(api.request, version, most) == message
    assert sliced_decode(api.request, version, most, MAX_TAGS) == message
    with pytest.raises(ProtocolError, match=f"more than {MAX_TAGS - 1} elements"):
        sliced_decode(api.request, version, most, MAX_TAGS - 1)
    for read in (decode, sliced_decode):
        with pytest.raises(ProtocolError, match=f"{MAX_TAGS + 1} tagged fields"):
            read(api.request, version, data[:-1] + tags(MAX_TAGS + 1))


def test_tagged_fields_of_a_header_are_bounded() -> None:
    header = encode_request_header(heartbeat.API.key, 4, 7, "client")
    assert decode_request_header(header[:-1] + tags(MAX_TAGS))[1] == len(header) + 3 * MAX_TAGS
    with pytest.raises(ProtocolError, match="tagged fields"):
        decode_request_header(header[:-1] + b"\xff\xff\xff\x13" + bytes(1000))


def test_tagged_fields_of_elements_count_as_elements() -> None:
    data = encode(
        large_message(metadata.API.request, 12, (fields_of(metadata.API.request)[0],), 3), 12
    )
    element = bytes(16) + b"\1\0"
    assert data.count(element) == 3
    tagged = data.replace(element, element[:-1] + tags(2))
    assert len(sliced_decode(metadata.API.request, 12, tagged, 9).topics) == 3
    with pytest.raises(ProtocolError, match="more than 8 elements"):
        sliced_decode(metadata.API.request, 12, tagged, 8)


def test_elements_without_bytes_are_refused_before_the_first_is_read() -> None:
    for version, count in [(8, (90_000).to_bytes(4)), (9, b"\x91\xbf\x05")]:
        with pytest.raises(ProtocolError, match="90000 elements do not fit"):
            sliced_decode(metadata.API.request, version, count + bytes(80_000))


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("version", [7, 9])
def test_small_form_takes_few_elements_and_no_more(version: int, depth: int) -> None:
    for count, fits in [(FEW[depth], True), (FEW[depth] + 1, False)]:
        path = next(p for p in arrays(produce.API.request, version) if len(p) == depth + 1)
        data = encode(large_message(produce.API.request, version, path, count), version)
        decoding = decoder(produce.API.request, version, Form.SMALL)
        path = next(p for p in arrays(produce.API.response, version) if len(p) == depth + 1)
        response = large_message(produce.API.response, version, path, count)
        encoding = encoder(produce.API.response, version, Form.SMALL)
        if fits:
            decoding(data)
            encoding(response)
        else:
            with pytest.raises(TooManyElements):
                decoding(data)
            with pytest.raises(TooManyElements):
                encoding(response)


def test_nested_arrays_are_interrupted_though_each_is_short() -> None:
    topics = [
        offset_commit.OffsetCommitRequestTopic(
            name="t",
            partitions=[
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=0, committed_metadata=None
                )
                for index in range(20)
            ],
        )
    ] * 20
    request = large_message(offset_commit.API.request, 8)
    request.topics = topics
    steps = decoder(type(request), 8, Form.SLICED)(encode(request, 8), 0, True, 1000)
    assert sum(1 for _ in steps) >= 420 // STRIDE


def test_pieces_of_a_large_message_are_joined_as_it_is_encoded() -> None:
    path = next(arrays(metadata.API.response, 12))
    message = large_message(metadata.API.response, 12, path, 5000)
    parts = finish(encoder(metadata.API.response, 12, Form.SLICED)(message))
    assert b"".join(parts) == encode(message, 12)
    assert 4 < len(parts) < 7


def test_only_requests_with_records_have_a_form_for_large_frames() -> None:
    assert has_records(produce.API.request, 9)
    assert not has_records(metadata.API.request, 9)
