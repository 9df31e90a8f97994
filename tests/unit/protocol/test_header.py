"""Headers by API and version, their exceptions, and malformed ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.apis import APIS, api
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

APIS_AND_VERSIONS = [(key, version) for key in APIS for version in api(key).versions]


@given(
    which=st.sampled_from(APIS_AND_VERSIONS),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=300),
)
def test_request_headers_round_trip(
    which: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    data = encode_request_header(*which, correlation_id, client_id) + b"body"
    header, offset = decode_request_header(memoryview(data))
    assert header == (*which, correlation_id, client_id)
    assert data[offset:] == b"body"


@given(which=st.sampled_from(APIS_AND_VERSIONS), correlation_id=st.integers(0, 2**31 - 1))
def test_response_headers_round_trip(which: tuple[int, int], correlation_id: int) -> None:
    data = encode_response_header(*which, correlation_id) + b"body"
    answered, offset = decode_response_header(*which, memoryview(data))
    assert (answered, data[offset:]) == (correlation_id, b"body")


def test_flexible_requests_keep_the_old_client_id_and_add_tags() -> None:
    old = encode_request_header(3, 8, 7, "me")
    assert old == bytes.fromhex("0003 0008 00000007 0002") + b"me"
    assert encode_request_header(3, 9, 7, "me") == bytes.fromhex("0003 0009 00000007 0002 6d65 00")


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    plain = encode_request_header(3, 9, 7, "me")
    tagged = plain[:-1] + bytes.fromhex("02 0003 aabbcc 8001 01 dd")
    header, offset = decode_request_header(tagged)
    assert header == (3, 9, 7, "me")
    assert offset == len(tagged)


@pytest.mark.parametrize("version", [3, 4, 99])
def test_responses_of_api_versions_never_carry_tags(version: int) -> None:
    assert encode_response_header(18, version, 7) == bytes.fromhex("00000007")
    assert decode_response_header(18, version, bytes.fromhex("00000007 00")) == (7, 4)


def test_an_unknown_version_of_api_versions_still_has_a_readable_header() -> None:
    header, _ = decode_request_header(encode_request_header(18, 99, 7, "new") + b"whatever")
    assert header == (18, 99, 7, "new")
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
    )
    assert encode(answer, 0) == bytes.fromhex("0023 00000001 0012 0000 0004")
    assert decode(ApiVersionsResponse, 0, encode(answer, 0)) == answer


@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        bytes(9),
        bytes.fromhex("0003 0009 00000007 0002 6d"),
        bytes.fromhex("0003 0009 00000007 0002 6d65"),
        bytes.fromhex("0003 0009 00000007 0002 6d65 01"),
        bytes.fromhex("0003 0009 00000007 0002 6d65 01 00 05"),
        bytes.fromhex("0003 0009 00000007 7fff 00"),
        bytes.fromhex("7fff 0000 00000007 ffff"),
        bytes.fromhex("ffff 0000 00000007 ffff"),
    ],
)
def test_malformed_request_headers_raise_only_protocol_error(malformed: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(malformed)


def test_client_id_that_is_not_utf8_does_not_close_the_connection() -> None:
    header, body = decode_request_header(bytes.fromhex("0003 0009 00000007 0002 c328 00"))
    assert (header, body) == ((3, 9, 7, "\N{REPLACEMENT CHARACTER}("), 13)


def test_a_client_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError):
        encode_request_header(3, 9, 7, "x" * 32768)


@given(st.binary(max_size=60))
def test_garbage_raises_only_protocol_error(garbage: bytes) -> None:
    try:
        decode_request_header(garbage)
        decode_response_header(3, 9, garbage)
    except ProtocolError:
        return
