"""Secrets in messages: passwords, proofs, and the HMACs of delegation tokens."""

from typing import Any

import pytest

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from barnabas.protocol.messages.describe_delegation_token import DescribedDelegationToken
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

SECRET = b"hunter2"
TOKEN: dict[str, Any] = {
    "principal_type": "User",
    "principal_name": "alice",
    "token_id": "id",
    "hmac": SECRET,
}


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(auth_bytes=SECRET),
        SaslAuthenticateResponse(auth_bytes=SECRET),
        ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=SECRET, salted_password=SECRET
        ),
        CreateDelegationTokenResponse(
            issue_timestamp_ms=1, expiry_timestamp_ms=2, max_timestamp_ms=3, **TOKEN
        ),
        DescribedDelegationToken(
            issue_timestamp=1, expiry_timestamp=2, max_timestamp=3, renewers=[], **TOKEN
        ),
        RenewDelegationTokenRequest(hmac=SECRET, renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=SECRET, expiry_time_period_ms=1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_secret_is_not_in_the_repr(message: Any) -> None:
    assert "hunter2" not in repr(message)
    assert "=[hidden]" in repr(message)


def test_decoded_secret_is_not_in_the_repr() -> None:
    message = SaslAuthenticateRequest(auth_bytes=SECRET)
    decoded = decode(SaslAuthenticateRequest, 2, encode(message, 2))
    assert decoded == message
    assert "hunter2" not in repr(decoded)
