"""Broker keys of ZooKeeper: where it is, and how a broker proves to it who it is."""

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
from barnabas.config.table import Table

_DEFAULT_PORT: Final = 2181


class ZooKeeperAddress(NamedTuple):
    """What `zookeeper.connect` says: servers in the order given, and the path of the cluster."""

    servers: tuple[str, ...]
    """Each as `host:port`, an IPv6 host in brackets."""
    chroot: str
    """Empty, or begins with a slash and ends without."""


class ZooKeeperKeys(Table):
    """A broker with `zookeeper.connect` is one of a cluster."""

    zookeeper_connect = optional_string(
        "Servers of ZooKeeper as `host:port`, comma-separated; a path behind the last one is where "
        "the cluster's nodes are. Unset: the broker keeps its metadata itself."
    )
    zookeeper_session_timeout_ms = integer(
        18_000,
        "A broker that ZooKeeper has not heard for this long has left the cluster. ZooKeeper's own "
        "limits (2 and 20 of its ticks) win.",
        at_least=1,
    )
    zookeeper_connection_timeout_ms = optional_integer(
        "Time for a session to begin. Unset: `zookeeper.session.timeout.ms`."
    )
    zookeeper_set_acl = boolean(
        False,
        "Whether nodes are made so that only brokers change them, and only brokers read those that "
        "may hold secrets. Needs `zookeeper.digest.file` or a client certificate.",
    )
    zookeeper_digest_file = optional_string(
        "File with one line `user:password`, by which the broker proves to ZooKeeper who it is "
        "(digest authentication). A key of Barnabas: Kafka has it in a JAAS file."
    )
    zookeeper_ssl_client_enable = boolean(False, "Whether to speak TLS with ZooKeeper.")
    zookeeper_ssl_keystore_location = optional_string(
        "PEM file with this broker's key and certificates, for a ZooKeeper that asks for them."
    )
    zookeeper_ssl_keystore_password = password("Password of the key in that file.")
    zookeeper_ssl_keystore_type = optional_string("Only PEM is served.")
    zookeeper_ssl_truststore_location = optional_string(
        "PEM file with the certificates of who may sign ZooKeeper's. Unset: the system's."
    )
    zookeeper_ssl_truststore_type = optional_string("Only PEM is served.")
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "HTTPS",
        "HTTPS checks that a server's certificate names its host; empty checks no name.",
        one_of=("HTTPS", "https", ""),
    )

    def zookeeper_address(self) -> ZooKeeperAddress:
        """`zookeeper.connect`, taken apart; ConfigError where it is malformed."""
        text = self.zookeeper_connect or ""
        hosts, slash, path = text.partition("/")
        servers = tuple(_server(each.strip()) for each in hosts.split(","))
        chroot = slash + path.rstrip("/") if path.strip("/") else ""
        if any(part in ("", ".", "..") for part in chroot.split("/")[1:]):
            raise ConfigError.invalid("zookeeper.connect", text, f"{chroot} is no path")
        return ZooKeeperAddress(servers, chroot)

    def check_zookeeper(self) -> None:
        """ConfigError where the keys do not go together."""
        if not self.zookeeper_connect:
            return
        self.zookeeper_address()
        if not self.zookeeper_ssl_client_enable and (
            self.zookeeper_ssl_keystore_location or self.zookeeper_ssl_truststore_location
        ):
            raise ConfigError(
                "zookeeper.ssl.keystore.location and zookeeper.ssl.truststore.location mean "
                "nothing unless zookeeper.ssl.client.enable is true"
            )
        known = self.zookeeper_digest_file or self.zookeeper_ssl_keystore_location
        if self.zookeeper_set_acl and not known:
            raise ConfigError(
                "zookeeper.set.acl needs a broker that ZooKeeper knows: set zookeeper.digest.file, "
                "or zookeeper.ssl.keystore.location"
            )


def _server(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, str(_DEFAULT_PORT)
    if not host or any(char.isspace() for char in host) or not (port.isascii() and port.isdigit()):
        raise ConfigError.invalid("zookeeper.connect", text, "Servers are given as host:port")
    if not 0 < int(port) < 1 << 16:
        raise ConfigError.invalid("zookeeper.connect", text, f"{port} is no port")
    return f"{host}:{port}"
