"""The manifests as kubectl and Helm render them, with and without each component."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.docker.files import (
    CHART,
    ENSEMBLE,
    EXTERNAL,
    MANIFESTS,
    SECURE_MANIFESTS,
    broker_config,
    charted,
    expanded,
    find,
    kustomized,
    needs_helm,
    secure_config,
)

needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed"
)
Rendered = list[dict[str, Any]]


def pod(rendered: Rendered, name: str = "barnabas") -> dict[str, Any]:
    template: dict[str, Any] = find(rendered, "StatefulSet", name)["spec"]["template"]["spec"]
    return template


def keys_of(rendered: Rendered, number: int) -> dict[str, str]:
    variables = expanded(pod(rendered), number)
    return {name: text for name, text in variables.items() if name.startswith("KAFKA_")}


@needs_kubectl
class TestExternal:
    @pytest.mark.parametrize("number", range(3))
    def test_broker_advertises_its_port_of_the_node(self, tmp_path: Path, number: int):
        rendered = kustomized(tmp_path, MANIFESTS, EXTERNAL)
        config = broker_config(keys_of(rendered, number))
        listeners = {each.name: each for each in config.resolved_listeners()}
        service = find(rendered, "Service", f"barnabas-external-{number}")["spec"]
        ((node_port, target),) = ((p["nodePort"], p["targetPort"]) for p in service["ports"])
        assert listeners["EXTERNAL"].advertised == ("10.0.0.7", node_port)
        ports = {p["name"]: p["containerPort"] for p in pod(rendered)["containers"][0]["ports"]}
        assert listeners["EXTERNAL"].address.port == ports[target]
        assert service["selector"]["statefulset.kubernetes.io/pod-name"] == f"barnabas-{number}"
        open_to_all = find(rendered, "NetworkPolicy", "barnabas")["spec"]["ingress"][0]
        assert {"port": target} in open_to_all["ports"]
        assert config.inter_broker_listener().name == "REPLICATION"

    def test_listener_of_secure_brokers_takes_tls_and_users(self, tmp_path: Path):
        rendered = kustomized(tmp_path, SECURE_MANIFESTS, EXTERNAL)
        arguments = pod(rendered)["containers"][0]["args"]
        config = secure_config(keys_of(rendered, 0), tmp_path, arguments, "/etc/barnabas")
        opened = {each.name: each.protocol for each in config.resolved_listeners()}
        assert opened == {"CLIENTS": "SASL_SSL", "EXTERNAL": "SASL_SSL", "REPLICATION": "SSL"}


@needs_kubectl
class TestEnsemble:
    def test_brokers_and_servers_know_every_server(self, tmp_path: Path):
        rendered = kustomized(tmp_path, MANIFESTS, ENSEMBLE)
        stateful = find(rendered, "StatefulSet", "barnabas-zookeeper")["spec"]
        pods = [f"barnabas-zookeeper-{number}" for number in range(stateful["replicas"])]
        hosts = [f"{each}.{stateful['serviceName']}" for each in pods]
        assert len(hosts) == 3
        config = broker_config(keys_of(rendered, 0))
        assert config.zookeeper_connect == ",".join(f"{host}:2181" for host in hosts)
        (container,) = pod(rendered, "barnabas-zookeeper")["containers"]
        (given,) = (each["value"] for each in container["env"] if each["name"] == "ZOO_SERVERS")
        servers = dict(re.findall(r"server\.(\d)=([^:]+):2888:3888;2181", given))
        assert servers == {str(number): host for number, host in enumerate(hosts, 1)}

    def test_servers_reach_each_other_before_they_are_ready(self, tmp_path: Path):
        rendered = kustomized(tmp_path, MANIFESTS, ENSEMBLE)
        service = find(rendered, "Service", "barnabas-zookeeper")["spec"]
        assert service["publishNotReadyAddresses"] is True
        assert {each["port"] for each in service["ports"]} == {2181, 2888, 3888}
        stateful = find(rendered, "StatefulSet", "barnabas-zookeeper")["spec"]
        assert stateful["podManagementPolicy"] == "Parallel"
        clients, servers = find(rendered, "NetworkPolicy", "barnabas-zookeeper")["spec"]["ingress"]
        assert clients["ports"] == [{"port": "client"}]
        assert servers["ports"] == [{"port": "server"}, {"port": "election"}]
        assert servers["from"] == [{"podSelector": stateful["selector"]}]


def comparable(rendered: Rendered) -> dict[tuple[str, str], Any]:
    """Return manifests by kind and name; lists of named things have no order but that of variables,
    which `expanded` follows."""
    return {(m["kind"], m["metadata"]["name"]): unordered(m) for m in rendered}


def unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unordered(each) for key, each in value.items()}
    if isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value):
        return {each["name"]: unordered(each) for each in value}
    return [unordered(each) for each in value] if isinstance(value, list) else value


@needs_kubectl
@needs_helm
@pytest.mark.parametrize(
    ("base", "components", "settings"),
    [
        (MANIFESTS, (), ()),
        (MANIFESTS, (EXTERNAL,), ("external.enabled=true",)),
        (MANIFESTS, (ENSEMBLE,), ("zookeeper.servers=3",)),
        (
            SECURE_MANIFESTS,
            (EXTERNAL, ENSEMBLE),
            ("secure.secretName=barnabas-secure", "external.enabled=true", "zookeeper.servers=3"),
        ),
    ],
    ids=["plain", "external", "ensemble", "secure and all"],
)
def test_chart_makes_what_the_manifests_make(
    tmp_path: Path, base: Path, components: tuple[str, ...], settings: tuple[str, ...]
):
    chart, manifests = charted(*settings), kustomized(tmp_path, base, *components)
    assert comparable(chart) == comparable(manifests)
    for number in range(3):
        assert expanded(pod(chart), number) == expanded(pod(manifests), number)


@needs_helm
class TestChart:
    def test_keys_of_the_values_are_keys_of_the_brokers(self):
        rendered = charted(
            r"config.log\.retention\.ms=86400000",
            r"config.listener\.name\.clients\.max\.connections=9",
        )
        config = broker_config(keys_of(rendered, 0))
        assert config.log_retention_ms == 86_400_000
        assert config.max_connections_of("CLIENTS") == 9

    def test_own_ensemble_starts_no_server(self):
        rendered = charted("zookeeper.connect=zk-1:2181")
        assert keys_of(rendered, 0)["KAFKA_ZOOKEEPER_CONNECT"] == "zk-1:2181"
        assert not any("zookeeper" in each["metadata"]["name"] for each in rendered)

    def test_names_follow_the_release(self):
        rendered = charted("external.enabled=true", "zookeeper.servers=3", release="orders")
        assert {each["metadata"]["name"].partition("-")[0] for each in rendered} == {"orders"}
        assert "barnabas-" not in str(rendered)

    def test_policies_can_be_left_out(self):
        rendered = charted("networkPolicies=false")
        assert not any(each["kind"] == "NetworkPolicy" for each in rendered)


def test_chart_has_the_version_of_kubernetes_that_the_manifests_need():
    assert 'kubeVersion: ">=1.28.0-0"' in (CHART / "Chart.yaml").read_text()
