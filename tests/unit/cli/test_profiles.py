"""Profiles in the user's directory: what is written comes back, and only its owner can read it."""

import re
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.cli import profiles
from barnabas.client.security import SECRETS
from barnabas.registry.settings import PREFIX
from barnabas.registry.settings import SECRETS as REGISTRY_SECRETS

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BARNABAS_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "barnabas"


@given(st.dictionaries(TEXT.filter(bool), TEXT))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_come_back(keys: dict[str, str]) -> None:
    keys = {key: text for key, text in keys.items() if not key.endswith((".location", ".file"))}
    profiles.create("here", keys)
    assert profiles.read("here") == keys
    profiles.delete("here")


def test_file_is_for_its_owner_alone_and_names_whole_paths(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    profiles.create("here", {"sasl.password": "secret", "ssl.truststore.location": "ca.pem"})
    assert (home / "profiles" / "here.properties").stat().st_mode & 0o777 == 0o600
    assert profiles.read("here")["ssl.truststore.location"] == str(home.parent / "ca.pem")


def test_secrets_of_every_client_are_hidden() -> None:
    """`profile print` and `debug bundle` show keys without these."""
    registry = {f"{PREFIX}{key}" for key in REGISTRY_SECRETS}
    others = {"sasl.oauthbearer.config", "sasl.oauthbearer.assertion.private.key.passphrase"}
    # Certificates are public, although Kafka gives them the type of a password.
    public = re.compile(r"certificate\.chain$|certificates$")
    names = {each for each in SECRETS | registry | others if not public.search(each)}
    secret = dict.fromkeys(names, "hunter2")
    shown = {"sasl.username": "ann", "sasl.oauthbearer.token.endpoint.url": "https://issuer"}
    expected = {**dict.fromkeys(secret, "(hidden)"), **shown}
    assert profiles.without_secrets(secret | shown) == expected


def test_profile_in_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (profiles.names(), profiles.in_use()) == ([], None)
    for name in ("b", "a.1"):
        profiles.create(name, {"bootstrap.servers": name})
    assert (profiles.names(), profiles.in_use()) == (["a.1", "b"], None)
    profiles.use("b")
    assert profiles.in_use() == "b"
    monkeypatch.setenv("BARNABAS_PROFILE", "a.1")
    assert profiles.in_use() == "a.1"
    monkeypatch.setenv("BARNABAS_PROFILE", "")
    assert profiles.in_use() is None
    monkeypatch.delenv("BARNABAS_PROFILE")
    profiles.delete("a.1")
    assert profiles.in_use() == "b"
    profiles.delete("b")
    assert profiles.in_use() is None
    assert list(home.glob("**/*.properties")) == []
    for wrong in ("../b", "", ".hidden", "a/b"):
        with pytest.raises(click.ClickException, match="no name of a profile"):
            profiles.create(wrong, {})
    for act in (profiles.use, profiles.read, profiles.delete):
        with pytest.raises(click.ClickException, match="no profile b; see"):
            act("b")
