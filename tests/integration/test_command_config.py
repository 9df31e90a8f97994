"""Every command that asks brokers does so as --command-config says."""

import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from tests.support.command_tree import COMMANDS, options

TLS_HANDSHAKE = 0x16
ASKS_NO_BROKER: Final = {
    "console": "it asks for each page (test_console_pages.py)",
    "pipeline check": "the job is planned only",
    "profile create": "the keys are kept for other commands",
}
WHOLE: Final = {
    "acls add": "--allow-principal User:a --topic t --operation Read",
    "acls remove": "--topic t --yes",
    "acls why": "User:a Read Topic:t",
    "transactions abort": "t:0 --start-offset 1",
    "quotas set": "--user u request_percentage=1",
    "transactions end": "id --commit --yes",
}
"""Arguments of commands whose arguments have a form of their own."""
MORE: Final = {
    "configs alter": "--set a=b",
    "groups describe": "g",
    "groups reset-offsets": "--topic t --to-earliest",
    "partitions cancel": "--all",
    "partitions elect": "--all",
    "partitions plan": "--all --brokers 1",
    "quotas remove": "--user u",
    "topics alter": "--partitions 3",
    "topics describe": "t",
    "verify eos": "--duration 0",
}
"""Arguments that are needed though the command does not say so."""
PLAN: Final = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}'


CLIENTS = {
    words: command
    for words, (command, _) in COMMANDS.items()
    if "--bootstrap-server" in options(command)
}


def test_every_command_takes_the_option() -> None:
    assert len(CLIENTS) > 40
    lacking = {path for path, each in CLIENTS.items() if "--command-config" not in options(each)}
    assert lacking == set()


class Peer:
    """A server that notes the first byte of each connection, and closes it."""

    def __init__(self) -> None:
        self.first: set[int] = set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.first.update(connection.recv(1))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


JOB = Path(__file__).parents[2] / "docs" / "examples" / "orders.yaml"


def arguments(path: str, command: click.Command, directory: Path) -> Sequence[str]:
    """Return what a command needs to reach the brokers."""
    if path in WHOLE:
        return [each for each in WHOLE[path].split() if each != "--yes" or each in options(command)]
    found: list[str] = []
    for parameter in command.params:
        if not parameter.required:
            continue
        if isinstance(parameter, click.Option):
            found.append(parameter.opts[0])
            if parameter.is_flag:
                continue
        if parameter.metavar == "JOB.yaml":
            found.append(str(JOB))
        elif isinstance(parameter.type, click.Choice):
            found.append(parameter.type.choices[0])
        elif isinstance(parameter.type, click.Path | click.File):
            (directory / "file").write_text(PLAN)
            found.append(str(directory / "file"))
        else:
            found.append("1")
    yes = ["--yes"] if "--yes" in options(command) else []
    return [*found, *MORE.get(path, "").split(), *yes]


@pytest.mark.parametrize("path", sorted(CLIENTS.keys() - ASKS_NO_BROKER.keys()))
def test_a_command_connects_as_its_file_says(
    path: str, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some write files.
    monkeypatch.chdir(tmp_path)
    command = CLIENTS[path]
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    given = arguments(path, command, tmp_path)
    timeout = ["--timeout", "0.3"] if "--timeout" in options(command) else []
    done = CliRunner().invoke(
        cli,
        [*path.split(), *given, "-b", peer.address, "--command-config", str(file), *timeout],
        input="1\n1\n",
    )
    assert done.exit_code, done.output
    assert "Usage:" not in done.output, done.output
    assert peer.first == {TLS_HANDSHAKE}, done.output
