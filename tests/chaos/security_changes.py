"""Changes of a cluster's security under load: `python -m tests.chaos.security_changes`.

    --rotations N   rotate the certificates N times (50); each tenth time another authority signs
    --only NAME     `certificates`, or `protocol`: from PLAINTEXT between brokers to SASL_SSL

Three processes on a real ZooKeeper serve `barnabas verify eos` meanwhile. The figures are printed
as JSON; the exit code is 1 if a promise was violated.
"""

import argparse
import json
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.verify.disk.compare import compare
from tests.support.brokers.cluster import BROKER_IDS, ProcessCluster
from tests.support.brokers.process import BrokerProcess
from tests.support.certificates import Authority, Stores
from tests.support.checker import Checker
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

ROTATIONS: Final = 50
AUTHORITY_LASTS: Final = 10
"""The rotations after which another authority signs."""
RESTART_EACH: Final = 5
"""The rotations after which a broker is restarted, so that brokers shake hands again."""
WITHIN_S: Final = 60.0
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS: Final = " ".join(f'user_b{each}="secret-{each}"' for each in BROKER_IDS)
_KEYS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
}

Figures = dict[str, Any]


class SecuredCluster(ProcessCluster):
    """Three brokers whose keys change; `keys_of` returns those of a broker at its next start."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(directory, zookeeper, _KEYS)
        self.stores = Stores(directory)
        self.secure_ports = {broker: free_port() for broker in BROKER_IDS}
        self.stage = 0
        directory.mkdir(parents=True, exist_ok=True)

    def keys_of(self, broker: int) -> dict[str, str]:
        raise NotImplementedError

    def make_broker(self, broker: int) -> BrokerProcess:
        keys = self.properties(broker) | self.keys_of(broker)
        return BrokerProcess(self.directory / f"broker-{broker}", defaults={}, **keys)

    def restart(self, broker: int) -> None:
        """Stop a broker in order, start it with its new keys, and wait until it is in sync."""
        process = self.brokers[broker]
        assert process.terminate() == 0
        process.launch(**self.keys_of(broker))
        process.wait_until_serving()
        self.wait_until_full(WITHIN_S)

    def sasl(self, broker: int, listener: str) -> dict[str, str]:
        """Return the keys of a listener with SASL_SSL for brokers."""
        stores, prefix = self.stores, f"listener.name.{listener.lower()}."
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{prefix}plain.sasl.jaas.config": (
                f'{_MODULE} username="b{broker}" password="secret-{broker}" {_USERS};'
            ),
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.keystore(broker)),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(stores.directory / "trust.pem"),
        }

    def keystore(self, broker: int) -> Path:
        return self.stores.directory / f"broker-{broker}.pem"

    def issue(self, authority: Authority) -> None:
        """Write a new certificate for each broker."""
        for broker in BROKER_IDS:
            issued = authority.issue(f"b{broker}", hosts=("127.0.0.1",))
            self.keystore(broker).write_text(issued.pem)

    def at_rest(self) -> list[str]:
        """Stop all brokers; return how their files differ."""
        for broker in self.brokers.values():
            broker.signal(signal.SIGTERM)
        assert not any(broker.wait_until_ended() for broker in self.brokers.values())
        compared = compare([broker.directory for broker in self.brokers.values()])
        assert compared.batches
        return [f"{found.name}: {found.text}" for found in compared.anomalies]


class Protocols(SecuredCluster):
    """A cluster whose brokers go over from a plain listener to one with SASL_SSL."""

    def keys_of(self, broker: int) -> dict[str, str]:
        clients, brokers = self.ports[broker]
        plain, secure = f"BROKERS://127.0.0.1:{brokers}", "SECURE://127.0.0.1:"
        secure += str(self.secure_ports[broker])
        listeners = [
            [plain],
            [plain, secure],
            [plain, secure],
            [secure],
        ][self.stage]
        between = ["BROKERS", "BROKERS", "SECURE", "SECURE"][self.stage]
        further = ["", "SECURE", "BROKERS", ""][self.stage]
        return {
            "listeners": ",".join([f"CLIENTS://127.0.0.1:{clients}", *listeners]),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,SECURE:SASL_SSL",
            "inter.broker.listener.name": between,
            "additional.inter.broker.listeners": further,
            **(self.sasl(broker, "SECURE") if self.stage else {}),
        }


class Rotated(SecuredCluster):
    """A cluster with TLS for clients and for brokers, whose certificates change."""

    def keys_of(self, broker: int) -> dict[str, str]:
        location = {"listener.name.clients.ssl.keystore.location": str(self.keystore(broker))}
        return {
            "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:SASL_SSL",
            "listener.name.clients.ssl.keystore.type": "PEM",
            **location,
            **self.sasl(broker, "BROKERS"),
        }

    def trust(self, *authorities: Authority) -> None:
        self.stores.write("trust.pem", "".join(each.pem for each in authorities))

    def reload(self) -> None:
        """Let each broker read its files again; return when all have."""
        before = {number: _loaded(broker) for number, broker in self.brokers.items()}
        for broker in self.brokers.values():
            broker.signal(signal.SIGHUP)
        # Two listeners, and the connections to other brokers.
        self.until(
            lambda: all(_loaded(broker) >= before[n] + 3 for n, broker in self.brokers.items()),
            WITHIN_S,
            self.errors,
        )

    def presents(self, broker: int, authority: Authority) -> None:
        """Require that both listeners present the newest certificate, signed by the authority."""
        context = ssl.create_default_context(cadata=authority.pem)
        newest = self.keystore(broker).read_text()
        for port in self.ports[broker]:
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
            ):
                seen = secured.getpeercert(binary_form=True)
                assert seen is not None
                assert ssl.DER_cert_to_PEM_cert(seen) in newest


def _loaded(broker: BrokerProcess) -> int:
    return broker.errors().count("certificate loaded")


def change_protocol(directory: Path) -> Figures:
    """Go over from PLAINTEXT between brokers to SASL_SSL in three rolls."""
    with ZooKeeperServer(directory / "zookeeper") as zookeeper:
        cluster = Protocols(directory / "cluster", zookeeper)
        cluster.stores.trust()
        cluster.issue(cluster.stores.authority)
        rolls = []
        with cluster, Checker(cluster, directory / "load", "--workload", "pipeline") as load:
            for stage in (1, 2, 3):
                began, before, cluster.stage = time.monotonic(), load.ended(), stage
                for broker in BROKER_IDS:
                    cluster.restart(broker)
                rolls.append((round(time.monotonic() - began, 1), load.ended() - before))
            verdict = load.judge()
            assert "BROKERS" not in _endpoints(cluster)
            return _figures(verdict, cluster.at_rest(), rolls=rolls)


def _endpoints(cluster: ProcessCluster) -> str:
    with cluster.zookeeper.looking() as client:
        return "".join(
            str(client.get(f"/brokers/ids/{broker}")[0]).replace("inter_broker", "")
            for broker in BROKER_IDS
        )


def rotate_certificates(directory: Path, rotations: int) -> Figures:
    """Give each broker so many other certificates, now and then of another authority."""
    with ZooKeeperServer(directory / "zookeeper") as zookeeper:
        cluster = Rotated(directory / "cluster", zookeeper)
        authority = Authority("authority 0")
        cluster.trust(authority)
        cluster.issue(authority)
        # A client of its own trusts all authorities of the run.
        others = [
            Authority(f"authority {each + 1}") for each in range(rotations // AUTHORITY_LASTS)
        ]
        trusted = cluster.stores.write(
            "clients.pem", "".join(each.pem for each in [authority, *others])
        )
        config = cluster.stores.write(
            "client.properties", f"security.protocol=SSL\nssl.ca.location={trusted}\n"
        )
        words = ["--workload", "pipeline", "--command-config", config]
        restarts = 0
        with cluster, Checker(cluster, directory / "load", *words) as load:
            for number in range(1, rotations + 1):
                if number % AUTHORITY_LASTS == 0:
                    previous, authority = authority, others.pop(0)
                    cluster.trust(previous, authority)
                    cluster.reload()
                cluster.issue(authority)
                cluster.reload()
                for broker in BROKER_IDS:
                    cluster.presents(broker, authority)
                if number % AUTHORITY_LASTS == 1:
                    # No broker presents a certificate of the previous authority any more.
                    cluster.trust(authority)
                    cluster.reload()
                if number % RESTART_EACH == 0:
                    cluster.restart(BROKER_IDS[restarts % len(BROKER_IDS)])
                    restarts += 1
            verdict = load.judge()
            refused = cluster.errors().count("certificate refused")
            assert not refused, cluster.errors()
            return _figures(verdict, cluster.at_rest(), rotations=rotations, restarts=restarts)


def _figures(verdict: Mapping[str, Any], anomalies: list[str], **more: Any) -> Figures:
    return {
        **more,
        "verdict": verdict["verdict"],
        "violations": sum(each["count"] for each in verdict["checks"]),
        "problems": verdict["problems"],
        "figures": verdict["figures"],
        "anomalies at rest": anomalies,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rotations", type=int, default=ROTATIONS)
    parser.add_argument("--only", choices=("certificates", "protocol"))
    options = parser.parse_args()
    well = True
    with tempfile.TemporaryDirectory(prefix="security-") as name:
        directory = Path(name)
        for change in ("protocol", "certificates"):
            if options.only in (None, change):
                (directory / change).mkdir()
                if change == "protocol":
                    figures = change_protocol(directory / change)
                else:
                    figures = rotate_certificates(directory / change, options.rotations)
                print(json.dumps({"change": change, **figures}, indent=1), flush=True)
                well &= figures["verdict"] == "clean" and not figures["anomalies at rest"]
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
