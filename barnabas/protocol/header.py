"""Headers of requests and responses; the version of an API decides the header's version (KIP-482).

Requests of flexible versions carry tagged fields after the client id, which itself keeps its old
form. Responses of flexible versions carry tagged fields too, except those of ApiVersions: a client
that asked for a version which the broker lacks must be able to read the response (KIP-511).
"""

from functools import cache
from math import inf
from struct import Struct
from struct import error as StructError
from typing import Final

from barnabas.protocol.apis import APIS, api
from barnabas.protocol.compile import MAX_STRING, read_string_length, skip_tags
from barnabas.protocol.errors import ProtocolError

_REQUEST: Final = Struct(">hhih")
_REQUEST_SIZE: Final = _REQUEST.size
_unpack_request: Final = _REQUEST.unpack_from
_LENGTH: Final = Struct(">h")
_CORRELATION: Final = Struct(">i")
_CORRELATION_AND_NO_TAGS: Final = Struct(">ix")
_API_VERSIONS: Final = 18


RequestHeader = tuple[int, int, int, str | None]
"""The fields of a request header: API key, version, correlation id and client id."""


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """Return the header of a request and the position of its body.

    Raise ProtocolError for malformed bytes, and for an API key that this codec does not know: the
    form of its header is unknown too, and with it the position of its body.
    """
    try:
        key, version, correlation_id, length = _unpack_request(frame)
        position, client_id = _REQUEST_SIZE, None
        if length >= 0:
            position += length
            # Bytes that are not UTF-8 are replaced, as in Java: nothing depends on the client id.
            client_id = str(frame[_REQUEST_SIZE:position], "utf-8", "replace")
        if version >= _first_flexible(key):
            # Hardly any client sends tags here.
            position = skip_tags(frame, position) if frame[position] else position + 1
        if position > len(frame):
            raise ProtocolError("a request header exceeds its frame")
    except (StructError, IndexError) as error:
        raise ProtocolError(f"request header: {error}") from error
    return (key, version, correlation_id, client_id), position


def leading_string(frame: bytes | memoryview) -> bytes | None:
    """Return the string with which the body of a request begins, None for null.

    The body must begin with a string. Raise ProtocolError for malformed bytes.
    """
    (key, version, _, _), position = decode_request_header(frame)
    try:
        if version >= _first_flexible(key):
            length, position = read_string_length(frame, position)
            length -= 1
        else:
            length = _LENGTH.unpack_from(frame, position)[0]
            position += _LENGTH.size
    except (StructError, IndexError) as error:
        raise ProtocolError(f"the first field of a request: {error}") from error
    return None if length < 0 else bytes(frame[position : position + length])


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode a request header; the inverse of `decode_request_header`."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > MAX_STRING:
        raise ProtocolError(f"a client id of {len(name)} bytes is longer than {MAX_STRING}")
    length = -1 if client_id is None else len(name)
    tags = b"\0" if _is_flexible(api_key, version) else b""
    return _REQUEST.pack(api_key, version, correlation_id, length) + name + tags


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Encode the header of a response of this API and version."""
    if api_key != _API_VERSIONS and _is_flexible(api_key, version):
        return _CORRELATION_AND_NO_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def decode_response_header(
    api_key: int, version: int, frame: bytes | memoryview
) -> tuple[int, int]:
    """Return a response's correlation id and its body's position; ProtocolError if malformed."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
        position = _CORRELATION.size
        if api_key != _API_VERSIONS and _is_flexible(api_key, version):
            position = skip_tags(frame, position)
        if position > len(frame):
            raise ProtocolError("a response header exceeds its frame")
    except (StructError, IndexError) as error:
        raise ProtocolError(f"response header: {error}") from error
    return correlation_id, position


def _is_flexible(api_key: int, version: int) -> bool:
    return version >= _first_flexible(api_key)


@cache
def _first_flexible(api_key: int) -> float:
    """Return the first version with tagged fields, or infinity."""
    if api_key not in APIS:
        raise ProtocolError(f"unknown API key {api_key}")
    flexible = api(api_key).flexible
    return inf if flexible is None else flexible
