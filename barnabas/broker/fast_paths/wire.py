"""Places and lengths in requests and answers, for all fast paths."""

from functools import lru_cache
from struct import Struct
from typing import Final

from barnabas.protocol.compile import write_uvarint
from barnabas.protocol.header import encode_response_header
from barnabas.protocol.schema import Api

CONTENT_AT: Final = 8
"""The place in a request behind API, version and correlation id."""
LENGTH: Final = Struct(">i")
"""The length of an answer, its correlation id, and the length of records before compact ones."""
COMPACT_LENGTH: Final = lru_cache(4096)(write_uvarint)
"""Returns the length field of compact records, whose size is one less."""


def records_length(size: int, *, flexible: bool) -> bytes:
    """Return the length field of records."""
    return COMPACT_LENGTH(size + 1) if flexible else LENGTH.pack(size)


def answer_header(api: Api, version: int) -> bytes:
    """Return the header of an answer behind the correlation id."""
    return encode_response_header(api.key, version, 0)[LENGTH.size :]
