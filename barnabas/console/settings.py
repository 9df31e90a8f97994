"""The settings of a console."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

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
