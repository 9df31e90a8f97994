"""The settings of a ZooKeeper session: files are read, and unusable ones refused."""

from pathlib import Path

import pytest

from barnabas.broker.store.zookeeper.settings import settings_of
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from tests.unit.config.zookeeper_keys import CLUSTER


def test_times_are_in_seconds_and_connecting_may_take_a_session() -> None:
    settings = settings_of(BrokerConfig.from_properties(CLUSTER))
    assert (settings.session_timeout, settings.connection_timeout) == (18.0, 18.0)
    given = {"zookeeper.connection.timeout.ms": "500", "zookeeper.session.timeout.ms": "6000"}
    settings = settings_of(BrokerConfig.from_properties(CLUSTER | given))
    assert (settings.session_timeout, settings.connection_timeout) == (6.0, 0.5)
    assert (settings.tls, settings.credentials, settings.set_acl) == (None, None, False)


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_only_pem_is_supported(store: str) -> None:
    given = {"zookeeper.ssl.client.enable": "true", f"zookeeper.ssl.{store}.type": "JKS"}
    with pytest.raises(ConfigError, match=rf"zookeeper\.ssl\.{store}\.type: Only PEM"):
        settings_of(BrokerConfig.from_properties(CLUSTER | given))


def test_credentials_come_from_a_file_and_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "digest"
    file.write_text("broker:s3cret:with colon\n")
    config = BrokerConfig.from_properties(
        CLUSTER | {"zookeeper.digest.file": str(file), "zookeeper.set.acl": "true"}
    )
    assert settings_of(config).credentials == "broker:s3cret:with colon"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(settings_of(config))


@pytest.mark.parametrize("content", ["", "broker", "broker:", ":x", "a:b\nc:d"])
def test_file_without_credentials_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "digest"
    file.write_text(content)
    config = BrokerConfig.from_properties(CLUSTER | {"zookeeper.digest.file": str(file)})
    with pytest.raises(ConfigError, match="one line, user:password"):
        settings_of(config)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(
        CLUSTER | {"zookeeper.digest.file": str(tmp_path / "nothing")}
    )
    with pytest.raises(ConfigError, match="cannot be read"):
        settings_of(config)
