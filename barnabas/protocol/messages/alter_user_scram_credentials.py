"""AlterUserScramCredentials (key 51): sets and deletes SCRAM credentials of users (KIP-554).

Flexible.

Errors by user: CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_SASL_MECHANISM, UNACCEPTABLE_CREDENTIAL,
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, NOT_CONTROLLER.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Bytes, Int8, Int16, Int32, NullableString, String


@message
class ScramCredentialDeletion:
    """A user's credential for one mechanism, to be deleted."""

    name: String
    mechanism: Int8


@message
class ScramCredentialUpsertion:
    """A user's credential for one mechanism, made of the password by the client."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes = field(secret=True)
    salted_password: Bytes = field(secret=True)


@message
class AlterUserScramCredentialsRequest:
    """The changes; a user may be named once for a mechanism."""

    deletions: Array[ScramCredentialDeletion]
    upsertions: Array[ScramCredentialUpsertion]


@message
class AlterUserScramCredentialsResult:
    """The result for one user."""

    user: String
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)


@message
class AlterUserScramCredentialsResponse:
    """The results: one entry per user of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[AlterUserScramCredentialsResult]


API = declare(
    __name__,
    flexible=0,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
)
