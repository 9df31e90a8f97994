"""The settings of a console."""

import ipaddress
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from barnabas.client.sasl import lacks_user

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080


class ConsoleSettings(BaseModel):
    """The options of `barnabas console`, which a parent process sends to it as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap: str
    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """The keys of a client: security and timeouts."""
    timeout: float = 10.0
    """The timeout of an operation in s."""
    token: str | None = Field(None, repr=False)
    """The token of the brokers' HTTP endpoints."""
    ca_file: str | None = None
    """A PEM file for those endpoints with https."""
    host: str = DEFAULT_HOST
    port: int = Field(DEFAULT_PORT, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = ()
    """Names under which browsers may ask for the console, besides localhost and addresses."""
    allow_changes: bool = False
    faults: str | None = None
    """HOST:PORT of the levers of brokers with --faults, which the timeline offers."""
    faults_token: str | None = Field(None, repr=False)
    show_records: bool = True
    masks: tuple[str, ...] = ()
    """Names of fields in JSON values, and of headers, whose content is not shown."""
    certificate_file: str | None = None
    """A PEM file with the certificate of this console, for https."""
    key_file: str | None = None
    """A PEM file with its key; None: that of the certificate has it."""
    behind_proxy: bool = False
    """Whether browsers reach this console only through a proxy that speaks TLS."""

    @property
    def has_logins(self) -> bool:
        """Whether each person logs in: the brokers want a user, and `properties` have none."""
        return lacks_user(self.properties)

    @property
    def is_over_tls(self) -> bool:
        """Whether browsers speak TLS."""
        return self.certificate_file is not None or self.behind_proxy

    @property
    def is_private(self) -> bool:
        """Whether what a browser sends is hidden from the network."""
        return self.is_over_tls or _is_local(self.host)

    def require_safety(self) -> None:
        """Raise ValueError if a login would be read by others, or could do more than its user."""
        if not self.has_logins:
            return
        if not self.is_private:
            raise ValueError(
                f"logins at {self.host} without TLS would show passwords to the network: give "
                "--certificate-file, or listen at 127.0.0.1, or give --behind-proxy if browsers "
                "reach this address only through a proxy that speaks TLS"
            )
        if self.faults is not None:
            raise ValueError("--faults needs a user in --command-config: levers ask for no rights")


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
