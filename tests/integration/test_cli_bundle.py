"""`barnabas debug bundle`: all its parts of real brokers, no secret, and what is missing named."""

import asyncio
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.client.cluster import Cluster as Client
from barnabas.client.security import connect_with
from barnabas.client.settings import ClientSettings
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker, Cluster
from tests.support.ports import free_port

SECRET = "correct-horse-battery"


def bundle(tmp_path: Path, *words: str, code: int = 0) -> tuple[Any, dict[str, str]]:
    """Write a bundle; return the answer, and the text of each part."""
    path = tmp_path / f"bundle-{len(list(tmp_path.glob('*.zip')))}.zip"
    done = CliRunner().invoke(cli, ["debug", "bundle", "-o", str(path), "--json", *words])
    assert done.exit_code == code, (done.output, done.exception)
    assert path.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(path) as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    answer = json.loads(done.stdout)
    assert {row["name"]: row["bytes"] for row in answer["parts"]} == {
        name: len(text.encode()) for name, text in texts.items() if name != "README.txt"
    }
    assert all(row["name"] in texts["README.txt"] for row in answer["parts"])
    return answer, texts


def keys_file(settings: ClientSettings, tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.java().items()))
    return str(path)


async def copied(broker: Broker) -> None:
    """Commit a transaction of the id x with an offset of the group g."""
    connect = connect_with(broker.settings().java())
    async with (
        Client(broker.bootstrap_servers, connect=connect) as cluster,
        TransactionalProducer(cluster, "x") as producer,
    ):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 0}, "g")
        await producer.commit_transaction()


def test_bundle_of_a_secured_broker_has_everything_but_secrets(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("scrape-me\n")
    listener = f"127.0.0.1:{free_port()}"
    keys = {"metrics.listener": listener, "metrics.listener.token.file": str(token)}
    log = tmp_path / "broker.log"
    log.write_text("first\n" + "x" * 11_000_000 + "\nlast line\n")
    with Broker(keys, secure=True, users={"ann": SECRET}) as broker:
        file = keys_file(broker.settings(), tmp_path)
        (secret,) = re.findall(r'password="([^"]+)"', Path(file).read_text())
        broker.create_topic("orders", configs={"retention.ms": "1000"})
        asyncio.run(copied(broker))
        words = ("-b", broker.bootstrap_servers, "--command-config", file, "--log", str(log))
        answer, texts = bundle(tmp_path, *words, "--token-file", str(token))
        _, without = bundle(tmp_path, *words)
        other = keys_file(broker.settings("ann"), tmp_path)
        refused, anns = bundle(tmp_path, "-b", broker.bootstrap_servers, "--command-config", other)
    assert answer["problems"] == []
    assert {"stacks.txt", "metrics.txt", "readyz.txt", "syncz.txt", "configs.json"} <= {
        name.rpartition("/")[2] for name in texts
    }
    assert json.loads(texts["cluster/topic-configs.json"])["orders"] == {"retention.ms": "1000"}
    (group,) = json.loads(texts["cluster/groups.json"])
    assert (group["group"], group["state"], group["type"]) == ("g", "Empty", "classic")
    (transaction,) = json.loads(texts["cluster/transactions.json"])
    assert (transaction["transactional_id"], transaction["state"]) == ("x", "CompleteCommit")
    assert "barnabas/broker/" in texts["brokers/0/stacks.txt"]
    assert "kafka_" in texts["brokers/0/metrics.txt"]
    assert texts["logs/0-broker.log"].endswith("\nlast line\n")
    assert "first" not in texts["logs/0-broker.log"]
    assert json.loads(texts["client/versions.json"])["packages"]["uvloop"]
    for name, text in (*texts.items(), *anns.items()):
        assert secret not in text, name
        assert SECRET not in text, name
        assert "PRIVATE KEY" not in text, name
    assert without["brokers/0/stacks.txt"].startswith("401\n")
    assert "cluster/problems: CLUSTER_AUTHORIZATION_FAILED" in "\n".join(refused["problems"])


def test_what_a_bundle_lacks_is_named(tmp_path: Path) -> None:
    answer, texts = bundle(tmp_path, "-b", f"127.0.0.1:{free_port()}", "--timeout", "1", code=1)
    assert set(texts) == {"README.txt", "client/keys.json", "client/versions.json", "problems.txt"}
    again = CliRunner().invoke(cli, ["debug", "bundle", "-o", str(tmp_path / "bundle-0.zip")])
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    (problem,) = answer["problems"]
    assert problem.startswith("cluster: ")
    with Cluster() as cluster:
        cluster.stop_broker(2)
        _, texts = bundle(tmp_path, "-b", cluster.bootstrap_servers)
    assert {"brokers/1/configs.json", "brokers/3/configs.json"} <= texts.keys()


def test_bundle_of_a_client_that_is_refused_has_the_parts_of_the_client(tmp_path: Path) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=ann\n"
        f"sasl.password={SECRET}\n"
    )
    with Broker() as broker:
        words = ("-b", broker.bootstrap_servers, "--command-config", str(file))
        answer, texts = bundle(tmp_path, *words, code=1)
    (problem,) = answer["problems"]
    assert problem.startswith("cluster: ")
    assert "PLAIN" in problem
    assert json.loads(texts["client/keys.json"])["sasl.password"] == "(hidden)"


def test_bundle_asks_nobody_without_a_directory_for_its_file(tmp_path: Path) -> None:
    path = tmp_path / "none" / "b.zip"
    server = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(cli, ["debug", "bundle", "-o", str(path), "-b", server])
    assert (done.exit_code, f"{path}: there is no such directory" in done.stderr) == (1, True)
