"""Config providers: references to secrets, as Kafka 4.3 replaces them, or refused."""

from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import ConfigError
from barnabas.security.config_providers import replace_references

PACKAGE = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "env, file,dir",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
}


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make secrets in the environment and in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PW", "envpw")
    monkeypatch.setenv("NESTED", "${env:PW}")
    monkeypatch.setenv("EMPTY", "")
    Path("a.properties").write_text("pw=filepw\nesc=a\\u0041\\n b\nu8=\u00e9\nsp = x \n", "utf-8")
    Path("latin.properties").write_bytes(b"pw=\xe9\n")
    Path("secrets").mkdir()
    Path("secrets/pw").write_text("dirpw")
    Path("secrets/line").write_text("dirpw\r\n")
    Path("secrets/lines").write_text("a\nb\n\n")
    Path("secrets/inner").mkdir()
    Path("secrets/linked").symlink_to("../a.properties")
    Path("private").mkdir()
    Path("private/c.properties").write_text("pw=other\n")


def replaced(value: str, **parameters: str) -> str:
    given = {f"config.providers.{each}": text for each, text in parameters.items()}
    whole = replace_references({**PROVIDERS, **given, "v": value})
    assert whole.keys() == {"v"}
    return whole["v"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("${env:PW}", "envpw"),
        ("x${env:PW}y${file:a.properties:pw}z", "xenvpwyfilepwz"),
        ("${env::PW}", "envpw"),
        ("$${env:PW}", "$envpw"),
        ("${env:NESTED}", "${env:PW}"),
        ("${env:EMPTY}", ""),
        ("${env:PW", "${env:PW"),
        ("${PW}", "${PW}"),
        ("$PW $(PW) {env:PW}", "$PW $(PW) {env:PW}"),
        ("${file:a.properties:esc}", "aA\n b"),
        ("${file:a.properties:u8}", "\u00e9"),
        ("${file:a.properties:sp}", "x "),
        ("${dir:secrets:pw}", "dirpw"),
        ("${dir:secrets:line}", "dirpw"),
        ("${dir:secrets:lines}", "a\nb\n"),
        ("${dir:secrets:linked}", "pw=filepw\nesc=a\\u0041\\n b\nu8=\u00e9\nsp = x "),
        # Not ours: the key refuses it where it has an effect.
        ("${vault:PW}", "${vault:PW}"),
        ("${ENV:PW}", "${ENV:PW}"),
    ],
)
def test_reference_becomes_the_value_that_it_stands_for(value: str, text: str) -> None:
    assert replaced(value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${env:NOPE}", r"^v: \$\{env:NOPE\} has no value: set the environment variable$"),
        ("${env: PW}", "set the environment variable"),
        ("${env:}", "set the environment variable"),
        ("${env:path:PW}", r"variables have no path, write \$\{env:VARIABLE\}"),
        ("${file:a.properties:nope}", "the file has no such key"),
        ("${file:a.properties}", r"the file has no such key, write \$\{file:PATH:KEY\}"),
        ("${file::pw}", "the file has no such key"),
        ("${file:missing.properties:pw}", "the file cannot be read: No such file"),
        ("${file:secrets:pw}", "the file cannot be read: Is a directory"),
        ("${file:latin.properties:pw}", "the file is not UTF-8"),
        ("${dir:secrets:none}", r"no such file, write \$\{dir:DIRECTORY:FILE\}"),
        ("${dir:secrets:inner}", "there is no such file"),
        ("${dir:none:pw}", "there is no such file"),
        ("${dir:.:secrets/pw}", "there is no such file"),
        ("${dir:secrets:../a.properties}", "there is no such file"),
        ("${dir:pw}", "there is no such file"),
    ],
)
def test_reference_without_a_value_is_refused(value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replaced(value)


def test_providers_have_kafkas_limits(tmp_path: Path) -> None:
    pattern = "env.param.allowlist.pattern"
    assert replaced("${env:PW}", **{pattern: "P."}) == "envpw"
    for wrong in ("P", "Q.*"):
        with pytest.raises(ConfigError, match=r"allowlist\.pattern does not allow the variable"):
            replaced("${env:PW}", **{pattern: wrong})
    paths = "file.param.allowed.paths"
    for allowed in (f"{tmp_path}", f"{tmp_path}/a.properties", f"{tmp_path}/private, {tmp_path}"):
        reference = f"${{file:{tmp_path}/secrets/../a.properties:pw}}"
        assert replaced(reference, **{paths: allowed}) == "filepw"
    for path in (f"{tmp_path}/a.properties", "a.properties", f"{tmp_path}/private/../a.properties"):
        with pytest.raises(ConfigError, match=r"allowed\.paths does not allow the path"):
            replaced(f"${{file:{path}:pw}}", **{paths: f"{tmp_path}/private"})
    with pytest.raises(ConfigError, match=r"allowed\.paths does not allow the path"):
        replaced("${dir:secrets:pw}", **{"dir.param.allowed.paths": f"{tmp_path}/secrets"})
    Path("sec").mkdir()
    reference = f"${{dir:{tmp_path}/secrets:pw}}"
    with pytest.raises(ConfigError, match=r"allowed\.paths does not allow the path"):
        replaced(reference, **{"dir.param.allowed.paths": f"{tmp_path}/sec"})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"config.providers": "vault"}, "Invalid value  for configuration config.providers.vault"),
        (
            {"config.providers": "v", "config.providers.v.class": "com.example.Vault"},
            "Invalid value com.example.Vault for .*: Supported are .*EnvVarConfigProvider, ",
        ),
        (
            {"config.providers.env.param.allowlist.pattern": "["},
            "^config.providers.env.param.allowlist.pattern is no regular expression",
        ),
        ({"config.providers.env.param.x": "1"}, "^config.providers.env.param.x is unknown; the"),
        ({"config.providers.file.param.allowed.paths": "etc"}, "etc is no absolute path that"),
        ({"config.providers.dir.param.allowed.paths": "/no/such"}, "/no/such is no absolute path"),
    ],
)
def test_provider_that_cannot_work_is_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace_references(PROVIDERS | keys)


SECRET = "sasl.jaas.config"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (SECRET, 'x required user_alice="${env:PW}";', "a reference to the config provider env"),
        (SECRET, 'x required user_alice="${PW}";', r"has a variable in \$\{...\}, which nothing"),
        (SECRET, 'x required user_alice="${PW:-hunter2}";', "has a variable in"),
        ("ssl.key.password", "${file:/run/tls.properties:pw}", "the config provider file"),
        ("listener.name.plaintext.ssl.key.password", "${env:PW}", "the config provider env"),
        ("broker.rack", "${env:RACK}", "^broker.rack has a reference to the config provider env"),
        ("listeners", "PLAINTEXT://${HOST:-localhost}:9092", "It is a template"),
    ],
)
def test_broker_takes_no_reference_for_a_value(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        BrokerConfig.from_properties({name: value})
    assert "hunter2" not in str(refusal.value)


def test_broker_takes_no_reference_while_it_runs() -> None:
    config = DynamicConfig(BrokerConfig())
    with pytest.raises(ConfigError, match="a reference to the config provider env"):
        config.apply(cluster_defaults={}, overrides={SECRET: 'x required a="${env:PW}";'})
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        config.apply(cluster_defaults={}, overrides={"config.providers": "env"})
