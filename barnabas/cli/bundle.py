"""The file of `debug bundle`: what a bug report needs of a cluster, without its records."""

import importlib.metadata
import io
import json
import platform
import sys
import zipfile
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas import __version__
from barnabas.cli.peers import WrongPeer
from barnabas.cli.profiles import without_secrets
from barnabas.client.admin import Admin, finalized_features
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.answers.debug import Part
from barnabas.operations.answers.groups import Group
from barnabas.operations.answers.model import Answer, fields_of
from barnabas.operations.answers.transactions import Transaction
from barnabas.operations.broker_http import HttpAccess, http_address
from barnabas.operations.health import find_problems
from barnabas.operations.log_dirs import directories
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.types import uuid_text

LOG_BYTES: Final = 10 * 1024 * 1024
"""The end of each log file that is taken."""
_OF_TOPIC: Final = 1
"""The source of a key that the topic itself sets, in answers of DescribeConfigs."""
NO_ANSWER: Final = (KafkaError, ProtocolError, WrongPeer, OSError)
"""The errors of a cluster that refuses, or cannot be asked; TimeoutError is an OSError."""
_PATHS: Final = ("metrics", "stacks", "events", "readyz", "syncz")
_README: Final = """\
A bundle of `barnabas debug bundle`, for a bug report. Read it before you send it.

It has names of topics, groups, transactional ids and hosts, and logs as they are. It has no
records, and no passwords: keys of the type password are (hidden), in the client's file too.

"""


class Bundle:
    """The parts of a bundle; one that cannot be had is a problem, and the others are there."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}
        self.problems: list[str] = []

    def add(self, name: str, content: bytes) -> None:
        """Add a file."""
        self._parts[name] = content

    def add_json(self, name: str, content: Any) -> None:
        """Add a JSON file."""
        self.add(name, json.dumps(content, indent=1, sort_keys=True, default=_plain).encode())

    def fail(self, name: str, error: Exception) -> None:
        """Say why a part is missing."""
        self.problems.append(f"{name}: {error or type(error).__name__}")

    def zipped(self) -> tuple[bytes, list[Part]]:
        """Return the content of the file, and name and size of each part."""
        if self.problems:
            self.add("problems.txt", "".join(f"{each}\n" for each in self.problems).encode())
        rows = [Part(name=name, bytes=len(each)) for name, each in sorted(self._parts.items())]
        listed = "".join(f"{row.bytes:>12,}  {row.name}\n" for row in rows)
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("README.txt", _README + listed)
            for name, content in sorted(self._parts.items()):
                file.writestr(name, content)
        return whole.getvalue(), rows


def _plain(value: object) -> Any:
    return fields_of(value) if isinstance(value, Answer) else str(value)


def add_client(bundle: Bundle, properties: Mapping[str, str]) -> None:
    """Add the versions here, and the keys of the client."""
    packages = {each.name: each.version for each in importlib.metadata.distributions()}
    bundle.add_json(
        "client/versions.json",
        {
            "barnabas": __version__,
            "python": sys.version,
            "platform": platform.platform(),
            "packages": packages,
        },
    )
    bundle.add_json("client/keys.json", without_secrets(properties))


def add_logs(bundle: Bundle, files: Iterable[Path]) -> None:
    """Add the end of log files."""
    for number, path in enumerate(files):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_BYTES))
                bundle.add(f"logs/{number}-{path.name}", file.read(LOG_BYTES))
        except OSError as error:
            bundle.fail(f"logs/{path.name}", error)


async def add_cluster(bundle: Bundle, cluster: Cluster) -> dict[str, str]:
    """Add what brokers say of the cluster; return the address of the HTTP endpoint of each broker
    that has one, by the folder of the broker in the bundle."""
    admin = Admin(cluster)
    await _add(bundle, "cluster/topics", _topics(cluster))
    await _add(bundle, "cluster/topic-configs", _topic_configs(admin, cluster))
    await _add(bundle, "cluster/features", finalized_features(cluster))
    await _add(bundle, "cluster/problems", find_problems(cluster))
    await _add(bundle, "cluster/reassignments", _reassignments(cluster))
    await _add(bundle, "cluster/groups", _groups(cluster))
    await _add(bundle, "cluster/transactions", _transactions(cluster))
    endpoints = {}
    for broker in await _add(bundle, "cluster/brokers", _brokers(admin)) or ():
        place = f"brokers/{broker['broker']}"
        await _add(bundle, f"{place}/log-dirs", directories(cluster, broker["broker"]))
        configs = await _add(bundle, f"{place}/configs", _broker_configs(admin, broker["broker"]))
        if address := http_address(configs or {}, broker["host"]):
            endpoints[place] = address
    return endpoints


async def _add(bundle: Bundle, name: str, work: Awaitable[Any]) -> Any:
    """Add an answer as JSON and return it; None if there is no answer."""
    try:
        found = await work
    except NO_ANSWER as error:
        bundle.fail(name, error)
        return None
    bundle.add_json(f"{name}.json", found)
    return found


async def _brokers(admin: Admin) -> list[dict[str, Any]]:
    described = await admin.describe_cluster()
    return [
        {
            "broker": each.broker_id,
            "host": each.host,
            "port": each.port,
            "rack": each.rack,
            "controller": each.broker_id == described.controller_id,
        }
        for each in described.brokers
    ]


async def _topics(cluster: Cluster) -> dict[str, Any]:
    await cluster.refresh()
    return {
        name: {
            "id": uuid_text(topic.topic_id),
            "partitions": [
                {
                    "partition": row.partition_index,
                    "leader": row.leader_id,
                    "epoch": row.leader_epoch,
                    "replicas": row.replica_nodes,
                    "isr": row.isr_nodes,
                }
                for row in topic.description.partitions
            ],
        }
        for name, topic in cluster.topics.items()
    }


async def _topic_configs(admin: Admin, cluster: Cluster) -> dict[str, dict[str, str | None]]:
    """Return the keys that topics set themselves."""
    found = await admin.topic_configs(cluster.topics)
    own = {
        topic: {row.name: row.value for row in rows if row.config_source == _OF_TOPIC}
        for topic, rows in found.items()
    }
    return {topic: keys for topic, keys in own.items() if keys}


async def _broker_configs(admin: Admin, broker: int) -> dict[str, str | None]:
    return {
        row.name: "(hidden)" if row.is_sensitive else row.value
        for row in await admin.describe_configs(ConfigResourceType.BROKER, str(broker))
    }


async def _reassignments(cluster: Cluster) -> dict[str, Any]:
    found = await PartitionAdmin(cluster).reassignments()
    return {f"{topic}-{index}": each._asdict() for (topic, index), each in found.items()}


async def _groups(cluster: Cluster) -> list[Group]:
    return list(map(Group.of, await GroupAdmin(cluster).groups()))


async def _transactions(cluster: Cluster) -> list[Transaction]:
    return [Transaction(*each) for each in await TransactionAdmin(cluster).transactions()]


def add_endpoints(bundle: Bundle, endpoints: Mapping[str, str], access: HttpAccess) -> None:
    """Add what the HTTP endpoints of brokers answer: metrics, stacks, events and probes."""
    for place, address in endpoints.items():
        for path in _PATHS:
            try:
                status, body = access.ask(f"{address}/{path}")
                # A probe that fails says why.
                code = b"" if status == 200 else b"%d\n" % status
                bundle.add(f"{place}/{path}.txt", code + body)
            except OSError as error:
                bundle.fail(f"{place}/{path}", error)
