"""Every message in every version: round trips, the second codec, and refusals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, decoder, encode, encode_parts, encoder
from barnabas.protocol.compile import Form
from tests.support.interpret import interpret_decode, interpret_encode
from tests.unit.protocol.declared import FEW, finish, messages, sliced_decode, versions


@pytest.mark.parametrize(("cls", "version"), versions())
@FEW
@given(data=st.data())
def test_round_trips_and_agrees_with_the_interpreter(
    cls: type[Any], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    assert encoded == interpret_encode(message, version)
    assert b"".join(encode_parts(message, version)) == encoded
    assert decode(cls, version, encoded) == message
    assert interpret_decode(cls, version, encoded) == message
    assert sliced_decode(cls, version, encoded) == message
    assert decoder(cls, version, Form.SMALL)(encoded) == message
    parts = encode_parts(message, version)
    assert encoder(cls, version, Form.SMALL)(message) == parts
    assert finish(encoder(cls, version, Form.SLICED)(message)) == parts
