"""Every message in every version: round trips, the slow referee, and what must be refused."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, encode, encode_parts
from barnabas.protocol.interpret import interpret_decode, interpret_encode
from tests.unit.protocol.declared import messages, versions

FEW = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


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
