"""Users, access control rules and certificates of brokers for tests."""

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.client.settings import ClientSettings
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    RESOURCE_TYPES,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import USER, Principal
from barnabas.security.sasl.credentials import ScramMechanism

if TYPE_CHECKING:
    from barnabas.broker.store.metadata_store import MetadataStore
    from barnabas.security.authority import Authority

Code = TypeVar("Code", ResourceType, AclOperation)
ADMIN: Final = "admin"
"""The user who may do everything."""
PASSWORDS, CERTIFICATES = "SASL_SSL", "SSL"
"""The listeners of clients with a password, and of clients with a certificate."""
_HOSTS: Final = ("127.0.0.1", "localhost")


def allow(user: str, operation: str, resource: str, *, host: str = WILDCARD) -> AclBinding:
    """Return a rule: `allow("alice", "Read", "Topic:orders")`.

    `Topic:orders-*` stands for the topics whose names begin so. Raises ValueError.
    """
    return _rule(AclPermissionType.ALLOW, user, operation, resource, host)


def deny(user: str, operation: str, resource: str, *, host: str = WILDCARD) -> AclBinding:
    """Return a rule that denies; see `allow`."""
    return _rule(AclPermissionType.DENY, user, operation, resource, host)


def _rule(
    permission: AclPermissionType, user: str, operation: str, resource: str, host: str
) -> AclBinding:
    kind_text, _, name = resource.partition(":")
    kind = _labelled(RESOURCE_TYPES, kind_text)
    how = PatternType.LITERAL
    if kind is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    if not name:
        raise ValueError(f"{resource!r} is not TYPE:NAME, such as Topic:orders")
    if name.endswith(WILDCARD) and name != WILDCARD:
        how, name = PatternType.PREFIXED, name.removesuffix(WILDCARD)
    principal = Principal.parse(user) if ":" in user else Principal(USER, user)
    what = _labelled([each for each in AclOperation if each >= AclOperation.ALL], operation)
    return AclBinding(
        ResourcePattern(kind, name, how), AccessControlEntry(principal, host, what, permission)
    )


def _labelled(codes: Sequence[Code], text: str) -> Code:
    for code in codes:
        if code.label == text:
            return code
    raise ValueError(f"{text!r} is not one of {', '.join(code.label for code in codes)}")


class Security:
    """The users and rules of brokers, and the authority of their certificates."""

    def __init__(self, users: Iterable[str] | Mapping[str, str], rules: Iterable[AclBinding]):
        """`users` are names, or names with passwords; a name alone gets a random password."""
        given = users if isinstance(users, Mapping) else dict.fromkeys(users, "")
        self._passwords = {
            name: password or secrets.token_urlsafe(16)
            for name, password in {ADMIN: "", **given}.items()
        }
        self._rules = list(rules)
        self._authority: Authority | None = None
        self._directory = Path()

    def write(self, directory: Path) -> None:
        """Write the files of brokers into a directory."""
        try:
            # Imported here: `cryptography` takes 150 ms, which tests without certificates do not
            # pay.
            from barnabas.security.authority import Authority
        except ImportError:
            raise RuntimeError("secure brokers need pip install 'barnabas[security]'") from None

        self._directory = directory
        directory.mkdir(exist_ok=True, parents=True)
        if self._authority is None:
            self._authority = Authority.new("Barnabas test CA")
        self._ca.write_bytes(self._authority.pem)
        self._issue("broker", _HOSTS)

    def properties(self, listeners: Mapping[str, str]) -> dict[str, str]:
        """Return the keys of brokers with these listeners, by name, and the two of clients."""
        from barnabas.config.broker import AUTHORIZERS

        protocols = {**listeners, PASSWORDS: PASSWORDS, CERTIFICATES: CERTIFICATES}
        return {
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in protocols.items()),
            "sasl.enabled.mechanisms": ",".join(each.value for each in ScramMechanism),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
            f"listener.name.{CERTIFICATES.lower()}.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
            "authorizer.class.name": AUTHORIZERS[0],
            # Other brokers are anonymous on their own listener, where levers can cut their links.
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    async def store(self, store: "MetadataStore") -> None:
        """Write users and rules into the metadata store."""
        from barnabas.broker.security.first_users import add_rules, add_users

        await add_users(store, self._passwords, ScramMechanism)
        await add_rules(store, self._rules)

    def settings(self, servers: str, user: str) -> ClientSettings:
        """Return the settings of a user with a password. Raises ValueError for an unknown one."""
        if user not in self._passwords:
            raise ValueError(f"there is no user {user}: give it in `users`")
        password = self._passwords[user]
        return ClientSettings(servers, str(self._ca), user=user, password=password)

    def certificate(self, servers: str, user: str) -> ClientSettings:
        """Return the settings of a client whose new certificate has this name."""
        file = self._issue(user)
        return ClientSettings(servers, str(self._ca), certificate_file=str(file))

    @property
    def _ca(self) -> Path:
        return self._directory / "ca.pem"

    def _issue(self, name: str, hosts: Iterable[str] = ()) -> Path:
        assert self._authority is not None
        file = self._directory / f"{name}.pem"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(self._authority.issue(name, hosts))
        return file


def security_of(
    secure: bool, users: Iterable[str] | Mapping[str, str], rules: Iterable[AclBinding]
) -> Security | None:
    """Return the security that the arguments of `Broker` and `Cluster` ask for."""
    users, rules = users if isinstance(users, Mapping) else list(users), list(rules)
    return Security(users, rules) if secure or users or rules else None


def settings_of(security: Security | None, servers: str, user: str) -> ClientSettings:
    """Return the settings of a client with the password of a user, `ADMIN` alone without security.

    Raises ValueError for an unknown user.
    """
    if security is not None:
        return security.settings(servers, user)
    if user != ADMIN:
        raise ValueError(f"there is no user {user}: give it in `users`")
    return ClientSettings(servers)
