"""The administration of SCRAM users (KIP-554) and of delegation tokens (KIP-48)."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_user_scram_credentials,
    create_delegation_token,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
)
from barnabas.security.principal import Principal
from barnabas.security.sasl.credentials import (
    MIN_ITERATIONS,
    DelegationToken,
    ScramMechanism,
    new_salt,
)

_MECHANISMS: Final = {each.code: each for each in ScramMechanism}


class UserAdmin:
    """An admin client of the users and tokens of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # -- users ------------------------------------------------------------------------------------

    async def describe_users(
        self, names: Sequence[str] = ()
    ) -> dict[str, dict[ScramMechanism, int]]:
        """Return the iterations of users by name and mechanism; of all users without names.

        A user that does not exist is left out.
        """
        wanted = [describe_user_scram_credentials.UserName(name=name) for name in names]
        response = await self._cluster.ask(
            describe_user_scram_credentials.API,
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=wanted),
        )
        check(response.error_code, response.error_message)
        found = {}
        for row in response.results:
            if row.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                check(row.error_code, row.error_message)
                found[row.user] = {
                    _MECHANISMS[each.mechanism]: each.iterations for each in row.credential_infos
                }
        return found

    async def set_password(
        self,
        name: str,
        password: str,
        mechanism: ScramMechanism,
        iterations: int = MIN_ITERATIONS,
    ) -> None:
        """Create a user, or change its password for a mechanism. The password is not sent."""
        salt = new_salt(random.SystemRandom().getrandbits)
        salted = await asyncio.to_thread(mechanism.salted, password.encode(), salt, iterations)
        upsertion = alter_user_scram_credentials.ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism.code,
            iterations=iterations,
            salt=salt,
            salted_password=salted,
        )
        await self._alter(upsertions=[upsertion])

    async def delete_user(self, name: str, mechanism: ScramMechanism) -> None:
        """Delete the password of a user for a mechanism."""
        deletion = alter_user_scram_credentials.ScramCredentialDeletion(
            name=name, mechanism=mechanism.code
        )
        await self._alter(deletions=[deletion])

    async def _alter(self, **changes: Any) -> None:
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            **({"deletions": [], "upsertions": []} | changes)
        )
        response = await self._cluster.ask_controller(alter_user_scram_credentials.API, request)
        for row in response.results:
            check(row.error_code, row.error_message)

    # -- delegation tokens ------------------------------------------------------------------------

    async def create_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Sequence[Principal] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Create a token, by default one of the user of this client; -1 is the longest lifetime."""
        kind, name = owner or ("", "")
        request = create_delegation_token.CreateDelegationTokenRequest(
            **({"owner_principal_type": kind, "owner_principal_name": name} if owner else {}),
            renewers=[
                create_delegation_token.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in renewers
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        response = await self._cluster.ask_controller(create_delegation_token.API, request)
        check(response.error_code)
        return DelegationToken(
            id=response.token_id,
            owner=Principal(response.principal_type, response.principal_name),
            requester=_requester(response),
            renewers=tuple(renewers),
            issued_ms=response.issue_timestamp_ms,
            max_ms=response.max_timestamp_ms,
            expires_ms=response.expiry_timestamp_ms,
            hmac=bytes(response.hmac),
        )

    async def renew_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Put off the end of a token by a period from now, -1 by the broker's; return it in ms
        since the epoch."""
        request = renew_delegation_token.RenewDelegationTokenRequest(
            hmac=hmac, renew_period_ms=period_ms
        )
        response = await self._cluster.ask_controller(renew_delegation_token.API, request)
        check(response.error_code)
        return int(response.expiry_timestamp_ms)

    async def expire_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """End a token after a period from now, at once if that is negative; return its end in ms
        since the epoch."""
        request = expire_delegation_token.ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period_ms=period_ms
        )
        response = await self._cluster.ask_controller(expire_delegation_token.API, request)
        check(response.error_code)
        return int(response.expiry_timestamp_ms)

    async def describe_tokens(
        self, owners: Sequence[Principal] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of some owners, or all, that the user of this client may see."""
        named = None
        if owners is not None:
            named = [
                describe_delegation_token.DescribeDelegationTokenOwner(
                    principal_type=kind, principal_name=name
                )
                for kind, name in owners
            ]
        response = await self._cluster.ask(
            describe_delegation_token.API,
            describe_delegation_token.DescribeDelegationTokenRequest(owners=named),
        )
        check(response.error_code)
        return [
            DelegationToken(
                id=row.token_id,
                owner=Principal(row.principal_type, row.principal_name),
                requester=_requester(row),
                renewers=tuple(
                    Principal(each.principal_type, each.principal_name) for each in row.renewers
                ),
                issued_ms=row.issue_timestamp,
                max_ms=row.max_timestamp,
                expires_ms=row.expiry_timestamp,
                hmac=bytes(row.hmac),
            )
            for row in response.tokens
        ]


def _requester(row: Any) -> Principal:
    """Return the requester of a token; before version 3 it is the owner."""
    if not row.token_requester_principal_name:
        return Principal(row.principal_type, row.principal_name)
    return Principal(row.token_requester_principal_type, row.token_requester_principal_name)
