"""Name and timeouts of a client in a file of --command-config, as brokers see them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.failures import explain
from barnabas.cli.main import cli
from barnabas.testing import Cluster

API = "ListTransactions"
JOB = """\
name: job
source: {topic: in, codec: string}
sink: {topic: out, codec: string}
checkpoint: points
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


class Client:
    """Commands on a cluster with a file of a client's keys."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._servers = cluster.bootstrap_servers
        self._file = directory / "client.properties"

    def run(self, command: str, **keys: str) -> Result:
        lines = (f"{name.replace('_', '.')}={value}\n" for name, value in keys.items())
        self._file.write_text("".join(lines))
        where = ["-b", self._servers, "--command-config", str(self._file)]
        return CliRunner().invoke(cli, [*command.split(), *where])

    def fails(self, command: str, **keys: str) -> str:
        """Return the line of a command that fails, within 10 s."""
        began = time.monotonic()
        done = self.run(command, **keys)
        assert time.monotonic() - began < 10
        assert done.exit_code == 1
        return explain(done.exception) if isinstance(done.exception, Exception) else done.output


@pytest.fixture
def client(cluster: Cluster, tmp_path: Path) -> Client:
    return Client(cluster, tmp_path)


@pytest.mark.parametrize(
    ("command", "api"),
    [
        ("transactions list", API),
        ("pipeline status JOB", API),
        ("verify eos -d 0.1", "InitProducerId"),
    ],
)
def test_brokers_see_the_client_id(
    cluster: Cluster, client: Client, tmp_path: Path, command: str, api: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    command = command.replace("JOB", str(tmp_path / "job.yaml"))
    with cluster.error(api, "POLICY_VIOLATION", client_id="named"):
        assert "POLICY_VIOLATION" in client.fails(command, client_id="named")
        assert client.run(command, client_id="other").exit_code == 0
        assert client.run(command, request_timeout_ms="9999").exit_code == 0


def test_timeout_of_the_file_is_that_of_an_operation(cluster: Cluster, client: Client) -> None:
    command = "transactions list"
    with cluster.delay(API, 60):
        for words, timeout_ms in ((command, "300"), (f"{command} --timeout 0.3", "60000")):
            told = client.fails(words, default_api_timeout_ms=timeout_ms)
            assert "in time" in told


def test_timeout_of_a_request_is_its_own(cluster: Cluster, client: Client) -> None:
    """The request of this command is sent once."""
    with cluster.delay("DescribeClientQuotas", 60):
        assert "in time" in client.fails("quotas list", request_timeout_ms="300")
    assert client.run("quotas list", request_timeout_ms="9999").exit_code == 0


def test_wrong_timeout_is_told(client: Client) -> None:
    for key in ("default_api_timeout_ms", "request_timeout_ms"):
        told = client.fails("transactions list", **{key: "soon"})
        assert f"--command-config: Invalid value soon for configuration {key[:7]}" in told
