"""The keys of ZooKeeper: parsing and refusals."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.describe import describe_broker
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import ConfigError
from tests.unit.config.zookeeper_keys import CLUSTER


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("zk1:2181", ("zk1:2181",), ""),
        ("zk1, zk2:2182", ("zk1:2181", "zk2:2182"), ""),
        ("zk1:2181,zk2:2181/kafka/one", ("zk1:2181", "zk2:2181"), "/kafka/one"),
        ("zk1:2181/kafka/", ("zk1:2181",), "/kafka"),
        ("zk1:2181/", ("zk1:2181",), ""),
        ("[::1]:2181,[fe80::2]", ("[::1]:2181", "[fe80::2]:2181"), ""),
    ],
)
def test_zookeeper_connect_is_parsed(connect: str, servers: tuple[str, ...], chroot: str) -> None:
    config = BrokerConfig.from_properties(CLUSTER | {"zookeeper.connect": connect})
    assert config.zookeeper_address() == (servers, chroot)
    assert config.in_cluster
    assert config.warnings == ()


@pytest.mark.parametrize(
    "connect",
    [
        "zk1:0",
        "zk1:70000",
        "zk1:x",
        "zk1:2181,",
        ":2181",
        "zk 1:2181",
        "zk1:2181/a//b",
        "zk1/..",
        "${Z}",
    ],
)
def test_malformed_zookeeper_address_is_refused(connect: str) -> None:
    with pytest.raises(ConfigError, match=r"configuration zookeeper\.connect"):
        BrokerConfig.from_properties(CLUSTER | {"zookeeper.connect": connect})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"metadata.socket": "/run/b.sock"}, "exclude each other"),
        ({"zookeeper.set.acl": "true"}, "requires the broker to authenticate itself"),
        ({"zookeeper.ssl.truststore.location": "/ca.pem"}, "client.enable is true"),
        (
            {"zookeeper.ssl.truststore.password": "x"},
            r"not supported: zookeeper\.ssl\.truststore\.pass",
        ),
        ({"zookeeper.ssl.protocol": "TLSv1"}, r"not supported: zookeeper\.ssl\.protocol\."),
        ({"zookeeper.ssl.crl.enable": "true"}, r"not supported: zookeeper\.ssl\.crl\.enable\."),
    ],
)
def test_contradicting_keys_are_refused(more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.from_properties(CLUSTER | more)


def test_password_is_never_shown() -> None:
    key = "zookeeper.ssl.keystore.password"
    config = BrokerConfig.from_properties(CLUSTER | {key: "s3cret"})
    assert config.zookeeper_ssl_keystore_password == "s3cret"
    assert "s3cret" not in repr(config)
    (entry,) = (each for each in describe_broker(DynamicConfig(config)) if each.name == key)
    assert entry.sensitive
    assert entry.value is None
    assert "s3cret" not in repr(entry)
