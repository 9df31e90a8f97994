"""DescribeUserScramCredentials (key 50): lists the SCRAM mechanisms of users (KIP-554).

Flexible.

Errors: CLUSTER_AUTHORIZATION_FAILED. By user: RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableArray, NullableString, String


@message
class UserName:
    """A user."""

    name: String


@message
class DescribeUserScramCredentialsRequest:
    """The users; null or none for all."""

    users: NullableArray[UserName]


@message
class CredentialInfo:
    """A credential: the code of its mechanism, and its iterations."""

    mechanism: Int8
    iterations: Int32


@message
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: String
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    credential_infos: Array[CredentialInfo] = field(default_factory=list)


@message
class DescribeUserScramCredentialsResponse:
    """The results: one entry per user."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    results: Array[DescribeUserScramCredentialsResult]


API = declare(
    __name__,
    flexible=0,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
)
