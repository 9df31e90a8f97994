"""`barnabas profile`, --command-config with servers, and ports where no such broker is."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.failures import explain
from barnabas.cli.main import cli
from barnabas.client.settings import ClientSettings
from barnabas.testing import Broker
from tests.support.ports import free_port

METRICS = f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    with Broker(secure=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker({"metrics.listener": METRICS}) as broker:
        yield broker


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str | None]:
    """Return the environment of a user without variables for Barnabas."""
    names = ("BARNABAS_BOOTSTRAP_SERVER", "BARNABAS_COMMAND_CONFIG", "BARNABAS_PROFILE")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), **dict.fromkeys(names)}


def invoke(home: dict[str, str | None], *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=home)


def ok(home: dict[str, str | None], *arguments: str) -> Any:
    done = invoke(home, *arguments, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def file_of(settings: ClientSettings, path: Path) -> str:
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.java().items()))
    return str(path)


def test_commands_work_on_the_cluster_of_the_profile(
    secure: Broker, plain: Broker, home: dict[str, str | None], tmp_path: Path
) -> None:
    file = file_of(secure.settings(), tmp_path / "client.properties")
    ok(home, "profile", "create", "safe", "--command-config", file)
    ok(home, "profile", "create", "plain", "-b", plain.bootstrap_servers)
    (tmp_path / "client.properties").unlink()
    ok(home, "profile", "use", "safe")
    ok(home, "topics", "create", "in-safe")
    assert [row["topic"] for row in ok(home, "topics", "list")] == ["in-safe"]
    assert ok(home | {"BARNABAS_PROFILE": "plain"}, "topics", "list") == []
    # The keys of a profile are for its servers only.
    assert ok(home, "topics", "list", "-b", plain.bootstrap_servers) == []
    listed = ok(home, "profile", "list")
    assert [(row["profile"], row["security_protocol"], row["in_use"]) for row in listed] == [
        ("plain", "PLAINTEXT", False),
        ("safe", "SASL_SSL", True),
    ]
    assert listed[0]["bootstrap_servers"] == [plain.bootstrap_servers]
    ok(home, "profile", "delete", "safe")
    assert [row["in_use"] for row in ok(home, "profile", "list")] == [False]
    ok(home, "profile", "use", "plain")
    ok(home, "profile", "use", "--none")
    assert [row["in_use"] for row in ok(home, "profile", "list")] == [False]


def test_file_of_a_command_names_the_servers(
    secure: Broker, home: dict[str, str | None], tmp_path: Path
) -> None:
    file = file_of(secure.settings(), tmp_path / "client.properties")
    info = ok(home, "cluster", "info", "--command-config", file)
    assert info["brokers"][0]["address"] == secure.bootstrap_servers


def test_wrong_profiles_are_refused(home: dict[str, str | None]) -> None:
    ok(home, "profile", "create", "one", "-b", "h:1")
    for arguments, code, text in (
        (("create", "two"), 2, "give --bootstrap-server"),
        (("create", "one", "-b", "h:1"), 1, "profile one exists already"),
        (("create", "x", "-b", "h:1", "-s", "security.protocol=NONE"), 1, "security.protocol"),
        (("create", "x", "-b", "h:1", "-s", "request.timeout.ms=1s"), 1, "request.timeout.ms"),
        (("use", "absent"), 1, "no profile absent; see `barnabas profile list`"),
        (("use",), 2, "either a NAME or --none"),
    ):
        done = invoke(home, "profile", *arguments)
        assert (done.exit_code, text in done.output) == (code, True), done.output
    done = invoke(home | {"BARNABAS_PROFILE": "absent"}, "topics", "list")
    assert "no profile absent" in done.output


class NoAnswer(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    """Return the address of an HTTP server that answers whole lines only."""
    with ThreadingHTTPServer(("127.0.0.1", 0), NoAnswer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_server_on_a_wrong_port_is_named(
    secure: Broker, plain: Broker, web: str, home: dict[str, str | None], tmp_path: Path
) -> None:
    file = file_of(secure.settings(), tmp_path / "client.properties")

    def said(*arguments: str) -> str:
        done = invoke(home, "topics", "list", *arguments, "--timeout", "1")
        assert isinstance(done.exception, Exception), done.output
        return explain(done.exception)

    for server in (METRICS, web):
        assert said("-b", server) == f"an HTTP server answers at {server}, and no broker"
    told = said("-b", secure.bootstrap_servers)
    assert told.startswith(f"{secure.bootstrap_servers} speaks TLS: set security.protocol=SSL or")
    for server in (plain.bootstrap_servers, METRICS):
        assert "Does this port speak TLS?" in said("-b", server, "--command-config", file)


def test_profile_keeps_references_to_secrets_and_commands_replace_them(
    secure: Broker, home: dict[str, str | None], tmp_path: Path
) -> None:
    keys = secure.settings().java()
    login = tmp_path / "login.properties"
    login.write_text("jaas=" + keys.pop("sasl.jaas.config").replace("\\", "\\\\") + "\n")
    keys |= {
        "config.providers": "file",
        "config.providers.file.class": (
            "org.apache.kafka.common.config.provider.FileConfigProvider"
        ),
        "sasl.jaas.config": f"${{file:{login}:jaas}}",
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    ok(home, "topics", "list", "--command-config", str(file))
    ok(home, "profile", "create", "safe", "--command-config", str(file))
    ok(home, "profile", "use", "safe")
    ok(home, "topics", "list")
    written = (tmp_path / "config/barnabas/profiles/safe.properties").read_text()
    assert str(login) in written.replace("\\", "")
    assert "ScramLoginModule" not in written
    login.write_text("other=x\n")
    refused = invoke(home, "topics", "list")
    assert refused.exit_code == 1
    assert "profile safe: sasl.jaas.config: ${file:" in refused.stderr
    assert "has no value: the file has no such key" in refused.stderr


def test_address_of_a_file_is_asked_or_named(
    plain: Broker, home: dict[str, str | None], tmp_path: Path
) -> None:
    servers = plain.bootstrap_servers
    file = tmp_path / "kcat.conf"
    file.write_text(f"metadata.broker.list=PLAINTEXT://{servers}\n")
    words = ("topics", "list", "--command-config", str(file))
    assert invoke(home, *words).stderr == ""
    ok(home, *words)
    ok(home, "topics", "list", "-b", f"PLAINTEXT://{servers},")
    refused = invoke(home, "topics", "list", "-b", f"SASL_SSL://{servers}")
    assert "SASL_SSL, and security.protocol is PLAINTEXT" in refused.stderr

    file.write_text("bootstrap.servers=elsewhere:1\n")
    asked = invoke(home | {"BARNABAS_BOOTSTRAP_SERVER": servers}, *words)
    assert asked.exit_code == 0
    assert asked.stderr == (
        f"asking {servers}, and not bootstrap.servers=elsewhere:1 of --command-config\n"
    )
    # Who names another address in the same line knows that it is asked.
    asked = invoke(home, *words, "-b", servers)
    assert (asked.exit_code, asked.stderr) == (0, "")

    file.write_text("client.id=me\n")
    ok(home, "profile", "create", "plain", "-b", servers)
    ok(home, "profile", "use", "plain")
    asked = invoke(home, *words)
    said = "asking localhost:9092, and not the profile plain, because of --command-config\n"
    assert asked.stderr.startswith(said)

    file.write_text(f"boostrap.servers={servers}\n")
    refused = invoke(home, *words)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "Error: --command-config: boostrap.servers has no effect: did you mean "
        "bootstrap.servers?\n",
    )


def test_profile_is_printed_without_its_passwords_and_works_with_them(
    secure: Broker, home: dict[str, str | None], tmp_path: Path
) -> None:
    file = file_of(secure.settings(), tmp_path / "client.properties")
    ok(home, "profile", "create", "safe", "--command-config", file)
    printed = ok(home, "profile", "print", "safe")["keys"]
    assert printed["sasl.jaas.config"] == "(hidden)"
    assert printed["security.protocol"] == "SASL_SSL"
    unnamed = invoke(home, "profile", "print")
    assert (unnamed.exit_code, "no profile is in use" in unnamed.stderr) == (2, True)
    ok(home, "profile", "use", "safe")
    copy = tmp_path / "copy.properties"
    copy.write_text(invoke(home, "profile", "print", "--secrets").stdout)
    ok(home, "topics", "list", "--command-config", str(copy))


def test_profile_is_edited_by_keys_or_in_an_editor(
    plain: Broker, home: dict[str, str | None], tmp_path: Path
) -> None:
    ok(home, "profile", "create", "shop", "-b", "elsewhere:1", "--json")
    ok(home, "profile", "use", "shop")
    words = ("-s", f"bootstrap.servers={plain.bootstrap_servers}", "-s", "client.id=ops")
    assert ok(home, "profile", "edit", *words) == {"profile": "shop", "changed": True}
    assert ok(home, "topics", "list") == []
    assert not ok(home, "profile", "edit", "-s", "client.id=ops")["changed"]
    ok(home, "profile", "edit", "-d", "client.id")
    for wrong, told in (
        (("-d", "client.id"), "profile shop has no client.id"),
        (("-d", "bootstrap.servers"), "bootstrap.servers"),
        (("-s", "secruity.protocol=SSL"), "did you mean security.protocol?"),
        (("-s", "security.protocol=TLS"), "profile shop: Invalid value TLS"),
    ):
        refused = invoke(home, "profile", "edit", *wrong)
        assert (refused.exit_code, told in refused.stderr) == (1, True), refused.stderr
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^secruity/security/; t; $a secruity.protocol=SSL' $1\n")
    editor.chmod(0o700)
    edited = CliRunner().invoke(
        cli, ["profile", "edit"], input="y\n", env={**home, "VISUAL": str(editor)}
    )
    assert "did you mean security.protocol?" in edited.stderr
    assert edited.exit_code == 0, edited.output
    keys = ok(home, "profile", "print")["keys"]
    servers = plain.bootstrap_servers
    assert keys == {"bootstrap.servers": servers, "security.protocol": "SSL"}
    refused = CliRunner().invoke(
        cli,
        ["profile", "edit"],
        input="n\n",
        env={**home, "VISUAL": "sed -i $a\\secruity.protocol=1"},
    )
    assert refused.exit_code == 1
    assert ok(home, "profile", "print")["keys"] == keys
