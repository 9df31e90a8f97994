"""Broker keys of the metadata store: ZooKeeper, or a store of one machine."""

from typing import Final, NamedTuple

from barnabas.config.declare import (
    boolean,
    integer,
    optional_integer,
    optional_string,
    password,
    string,
)
from barnabas.config.key import ConfigError
from barnabas.config.references import FILL_IN, is_template
from barnabas.config.table import Table

_DEFAULT_PORT: Final = 2181


class SharedMetadataKeys(Table):
    """Keys of the store that `barnabas cluster up` serves to the brokers of one machine."""

    metadata_socket = optional_string(
        "Path of the Unix socket on which `barnabas cluster up` serves the metadata of the "
        "brokers of one machine. A key of Barnabas that Kafka does not have."
    )
    metadata_session_timeout_ms = integer(
        6000,
        "Session timeout of a broker with the store behind `metadata.socket`; a broker whose "
        "session has timed out has left the cluster. A key of Barnabas that Kafka does not "
        "have.",
        at_least=100,
    )


class ZooKeeperAddress(NamedTuple):
    """The parsed `zookeeper.connect`: servers in the given order, and the chroot of the cluster."""

    servers: tuple[str, ...]
    """Each as `host:port`, an IPv6 host in brackets."""
    chroot: str
    """Empty, or a path with a leading and without a trailing slash."""


class ZooKeeperKeys(Table):
    """Keys of ZooKeeper; a broker with `zookeeper.connect` is part of a cluster."""

    zookeeper_connect = optional_string(
        "ZooKeeper servers as `host:port`, comma-separated, with an optional path (chroot) "
        "after the last one under which the cluster's nodes are. Unset: the broker keeps its "
        "metadata itself."
    )
    zookeeper_session_timeout_ms = integer(
        18_000,
        "Session timeout of a broker with ZooKeeper; a broker whose session has timed out has"
        " left the cluster. ZooKeeper's own limits (2 and 20 of its ticks) take precedence.",
        at_least=1,
    )
    zookeeper_connection_timeout_ms = optional_integer(
        "Maximum time to establish a session. Unset: `zookeeper.session.timeout.ms`."
    )
    zookeeper_set_acl = boolean(
        False,
        "Create nodes with ACLs: only brokers can change them, and only brokers can read "
        "nodes that may hold secrets. Needs `zookeeper.digest.file` or a client certificate.",
    )
    zookeeper_digest_file = optional_string(
        "File with one line `user:password`, the broker's credentials for digest "
        "authentication with ZooKeeper. A key of Barnabas: Kafka has them in a JAAS file."
    )
    zookeeper_ssl_client_enable = boolean(False, "Connect to ZooKeeper with TLS.")
    zookeeper_ssl_keystore_location = optional_string(
        "PEM file with this broker's key and certificates, for a ZooKeeper that requires "
        "client certificates."
    )
    zookeeper_ssl_keystore_password = password("Password of the key in that file.")
    zookeeper_ssl_keystore_type = optional_string("Only PEM is supported.")
    zookeeper_ssl_truststore_location = optional_string(
        "PEM file with the CA certificates that may sign ZooKeeper's. Unset: the system's."
    )
    zookeeper_ssl_truststore_type = optional_string("Only PEM is supported.")
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "HTTPS",
        "HTTPS checks that a server's certificate names its host; empty disables the check.",
        one_of=("HTTPS", "https", ""),
    )

    def zookeeper_address(self) -> ZooKeeperAddress:
        """Parse `zookeeper.connect`; raise ConfigError if it is malformed."""
        text = self.zookeeper_connect or ""
        hosts, slash, path = text.partition("/")
        servers = tuple(_server(each.strip()) for each in hosts.split(","))
        chroot = slash + path.rstrip("/") if path.strip("/") else ""
        if any(part in ("", ".", "..") for part in chroot.split("/")[1:]):
            raise ConfigError.invalid("zookeeper.connect", text, f"{chroot} is not a path")
        return ZooKeeperAddress(servers, chroot)

    def check_zookeeper(self) -> None:
        """Raise ConfigError if the keys contradict each other."""
        if not self.zookeeper_connect:
            return
        if is_template(self.zookeeper_connect):
            raise ConfigError.invalid("zookeeper.connect", self.zookeeper_connect, FILL_IN)
        self.zookeeper_address()
        if not self.zookeeper_ssl_client_enable and (
            self.zookeeper_ssl_keystore_location or self.zookeeper_ssl_truststore_location
        ):
            raise ConfigError(
                "zookeeper.ssl.keystore.location and zookeeper.ssl.truststore.location have "
                "no effect unless zookeeper.ssl.client.enable is true"
            )
        authenticated = self.zookeeper_digest_file or self.zookeeper_ssl_keystore_location
        if self.zookeeper_set_acl and not authenticated:
            raise ConfigError(
                "zookeeper.set.acl requires the broker to authenticate itself: set "
                "zookeeper.digest.file or zookeeper.ssl.keystore.location"
            )


def _server(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, str(_DEFAULT_PORT)
    if not host or any(char.isspace() for char in host) or not (port.isascii() and port.isdigit()):
        raise ConfigError.invalid("zookeeper.connect", text, "Servers are given as host:port")
    if not 0 < int(port) < 1 << 16:
        raise ConfigError.invalid("zookeeper.connect", text, f"{port} is not a port")
    return f"{host}:{port}"
