"""Passwords in the metadata store: encrypted under the secret, and again under a new one."""

from collections.abc import Mapping

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import ConfigError
from barnabas.security.password_encoder import is_encoded
from tests.support.stored_passwords import passwords

PASSWORD_KEY = "listener.name.plaintext.ssl.keystore.password"
OTHER_KEY = "log.cleaner.backoff.ms"
VALUES = {PASSWORD_KEY: "hunter2", OTHER_KEY: "7"}
FIRST = {"password_encoder_secret": "one"}
SECOND = {"password_encoder_secret": "two", "password_encoder_old_secret": "one"}


async def started(session: EmbeddedSession, keys: Mapping[str, str]) -> Configs:
    dynamic = DynamicConfig(BrokerConfig.from_properties({"broker.id": "1"}))
    configs = Configs(session, dynamic, 1, passwords(**keys))
    await configs.start(lambda: None)
    return configs


async def put(configs: Configs, values: Mapping[str, str]) -> dict[str, str]:
    async def changed(_: dict[str, str]) -> dict[str, str]:
        return dict(values)

    await configs.alter("brokers", "1", changed)
    return await configs.stored("brokers", "1")


@pytest.fixture
def session(store: EmbeddedStore) -> EmbeddedSession:
    return store.session()


async def test_password_is_stored_encrypted_and_in_effect(session: EmbeddedSession) -> None:
    configs = await started(session, FIRST)
    stored = await put(configs, VALUES)
    assert is_encoded(stored[PASSWORD_KEY])
    assert stored[OTHER_KEY] == "7"
    assert configs.broker.current.listener_values[PASSWORD_KEY] == "hunter2"
    again = await started(session, FIRST)
    assert again.broker.current.listener_values[PASSWORD_KEY] == "hunter2"
    assert await again.read("brokers", "1") == VALUES


async def test_unchanged_password_keeps_its_text(session: EmbeddedSession) -> None:
    configs = await started(session, FIRST)
    before = await put(configs, VALUES)
    after = await put(configs, {**VALUES, OTHER_KEY: "8"})
    assert after == {**before, OTHER_KEY: "8"}


async def test_without_secret_a_broker_with_its_own_metadata_stores_it_in_the_clear(
    session: EmbeddedSession,
) -> None:
    assert await put(await started(session, {}), VALUES) == VALUES


async def test_password_in_the_clear_is_encrypted_once_there_is_a_secret(
    session: EmbeddedSession,
) -> None:
    await put(await started(session, {}), VALUES)
    configs = await started(session, FIRST)
    assert is_encoded((await configs.stored("brokers", "1"))[PASSWORD_KEY])
    assert await configs.read("brokers", "1") == VALUES


async def test_changed_secret_encrypts_passwords_again_at_the_start(
    session: EmbeddedSession,
) -> None:
    before = await put(await started(session, FIRST), VALUES)
    changed = await started(session, SECOND)
    assert changed.broker.current.listener_values[PASSWORD_KEY] == "hunter2"
    after = await changed.stored("brokers", "1")
    assert after[PASSWORD_KEY] != before[PASSWORD_KEY]
    alone = await started(session, {"password_encoder_secret": "two"})
    assert await alone.read("brokers", "1") == VALUES


async def test_start_writes_nothing_if_the_passwords_are_current(session: EmbeddedSession) -> None:
    await put(await started(session, FIRST), VALUES)
    _, before = await session.get(znodes.config_path("brokers", "1"))
    await started(session, FIRST)
    _, after = await session.get(znodes.config_path("brokers", "1"))
    assert after.version == before.version


@pytest.mark.parametrize("keys", [{}, {"password_encoder_secret": "three"}])
async def test_password_under_another_secret_is_ignored_but_not_lost(
    session: EmbeddedSession, keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    before = await put(await started(session, FIRST), VALUES)
    lost = await started(session, keys)
    assert PASSWORD_KEY not in lost.broker.current.listener_values
    assert lost.broker.current.log_cleaner_backoff_ms == 7
    assert PASSWORD_KEY in caplog.text

    async def slower(values: dict[str, str]) -> dict[str, str]:
        return {**values, OTHER_KEY: "8"}

    await lost.alter("brokers", "1", slower)
    assert await lost.stored("brokers", "1") == {**before, OTHER_KEY: "8"}


async def test_broker_on_zookeeper_takes_no_password_without_a_secret() -> None:
    stored = passwords(
        zookeeper_connect="localhost:2181",
        listeners="A://:0,B://:0",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
        inter_broker_listener_name="B",
    )
    with pytest.raises(ConfigError, match="encoder secret"):
        stored.require_secret(VALUES)
    stored.require_secret({OTHER_KEY: "7"})
