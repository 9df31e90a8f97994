"""Headers of requests and responses, and which version of them an API's version takes (KIP-482).

Requests of flexible versions carry tagged fields behind the client id, which itself keeps its old
form. Responses of flexible versions carry tagged fields too, but never those of ApiVersions: a
client that asked for a version the broker lacks must be able to read the answer (KIP-511).
"""

from functools import cache
from math import inf
from struct import Struct
from struct import error as StructError
from typing import Final

from barnabas.protocol.compile import MAX_STRING, skip_tags
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import APIS, api

_REQUEST: Final = Struct(">hhih")
_REQUEST_SIZE: Final = _REQUEST.size
_unpack_request: Final = _REQUEST.unpack_from
_CORRELATION: Final = Struct(">i")
_CORRELATION_AND_NO_TAGS: Final = Struct(">ix")
_API_VERSIONS: Final = 18


RequestHeader = tuple[int, int, int, str | None]
"""What every request begins with: API key, version, correlation id, and the client id, which is
whatever the client says of itself."""


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header of a request and where its body begins.

    Raises ProtocolError for malformed bytes, and for an API key that this codec does not know:
    its header's form, and thus its body, are unknown too.
    """
    try:
        key, version, correlation_id, length = _unpack_request(frame)
        position, client_id = _REQUEST_SIZE, None
        if length >= 0:
            position += length
            # What is no text is shown as far as it is, as in Java: nothing depends on it.
            client_id = str(frame[_REQUEST_SIZE:position], "utf-8", "replace")
        if version >= _first_flexible(key):
            # Hardly a client sends tags here.
            position = skip_tags(frame, position) if frame[position] else position + 1
        if position > len(frame):
            raise ProtocolError("a request header exceeds its frame")
    except (StructError, IndexError) as error:
        raise ProtocolError(f"request header: {error}") from error
    return (key, version, correlation_id, client_id), position


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The inverse of `decode_request_header`."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > MAX_STRING:
        raise ProtocolError(f"a client id of {len(name)} bytes is longer than {MAX_STRING}")
    length = -1 if client_id is None else len(name)
    tags = b"\0" if _is_flexible(api_key, version) else b""
    return _REQUEST.pack(api_key, version, correlation_id, length) + name + tags


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header in front of a response of this API and version."""
    if api_key != _API_VERSIONS and _is_flexible(api_key, version):
        return _CORRELATION_AND_NO_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def decode_response_header(
    api_key: int, version: int, frame: bytes | memoryview
) -> tuple[int, int]:
    """The correlation id of a response and where its body begins; ProtocolError if malformed."""
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
    """The first version with tagged fields: infinite where there is none."""
    if api_key not in APIS:
        raise ProtocolError(f"unknown API key {api_key}")
    flexible = api(api_key).flexible
    return inf if flexible is None else flexible
