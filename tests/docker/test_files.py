"""The Dockerfile, docker-compose.yml and the manifests agree with the broker and each other."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from barnabas.cli.processes.secure import make_files
from barnabas.console.settings import DEFAULT_PORT
from barnabas.security.certificates import certificates_of, parse_certificate
from tests.docker.files import (
    MONITORING,
    ROOT,
    SECURE_MANIFESTS,
    broker_config,
    compose,
    compose_brokers,
    compose_config,
    dockerfile,
    expanded,
    final_stage,
    image_environment,
    manifest,
    manifests,
    secure_config,
    stage,
)

BROKERS = ("broker-1", "broker-2", "broker-3")
SECURE = ("secure-1", "secure-2", "secure-3")


def pod_template() -> dict[str, object]:
    return manifest("StatefulSet", "barnabas")["spec"]["template"]["spec"]


def pod_environment(pod: int) -> dict[str, str]:
    """Return the manifest's variables as Kubernetes expands them in one pod."""
    return expanded(pod_template(), pod)


class TestImage:
    def test_broker_accepts_the_variables_of_the_image(self):
        config = broker_config({})
        (listener,) = config.resolved_listeners()
        assert listener.advertised is not None
        assert (listener.address.host, str(listener.advertised)) == ("", "localhost:9092")

    def test_dockerfile_needs_no_buildkit(self):
        text = (ROOT / "Dockerfile").read_text()
        assert "syntax=" not in text
        assert not re.search(r"RUN --|COPY --(?!from=)|<<", text)

    def test_exposed_ports_are_the_brokers(self):
        config = broker_config({})
        metrics = config.metrics_listener.rpartition(":")[2]
        ports = {str(listener.address.port) for listener in config.resolved_listeners()} | {metrics}
        assert set(final_stage()["EXPOSE"].words) == ports
        assert f"localhost:{metrics}/readyz" in final_stage()["HEALTHCHECK"].text

    def test_the_data_are_on_a_volume(self):
        assert final_stage()["VOLUME"].words == list(broker_config({}).data_directories)

    def test_image_runs_as_an_unprivileged_numeric_user(self):
        # Kubernetes' runAsNonRoot refuses a name.
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final_stage()["USER"].text)

    def test_signals_reach_the_broker_through_an_init_process(self):
        assert final_stage()["ENTRYPOINT"].words == ["tini", "--", "barnabas"]
        assert final_stage()["CMD"].words == ["serve"]
        assert final_stage()["STOPSIGNAL"].text == "SIGTERM"

    def test_build_context_has_only_the_files_of_a_wheel(self):
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        assert lines[1] == "*"
        let_in = {line[1:] for line in lines if line.startswith("!")}
        assert let_in == {
            "barnabas",
            "setup.py",
            "pyspark_barnabas.py",
            "pyproject.toml",
            "README.md",
            "LICENSE",
        }

    def test_only_one_base_image_is_pulled(self):
        stages = [each.words for each in dockerfile() if each.name == "FROM"]
        own = {words[2] for words in stages if len(words) > 1}
        assert {words[0] for words in stages} - own == {"python:3.11-slim"}

    def test_last_stage_is_the_broker_without_a_name(self):
        stages = [each.text for each in dockerfile() if each.name == "FROM"]
        assert stages[-1] == "python:3.11-slim"


class TestPipeline:
    def test_plain_services_are_started_without_it(self):
        with_profile = {name: s for name, s in compose()["services"].items() if "profiles" in s}
        assert {name: s["profiles"] for name, s in with_profile.items()} == {
            "pipeline": ["pipeline"],
            "prometheus": ["metrics"],
            "grafana": ["metrics"],
            **{name: ["secure"] for name in SECURE},
        }

    def test_service_is_built_from_the_target_and_serves_the_page_to_this_machine(self):
        service, target = compose()["services"]["pipeline"], stage("pipeline")
        assert service["build"]["target"] == "pipeline"
        assert target["CMD"].words == ["pipeline", "example", "--http", "0.0.0.0:8088"]
        assert service["ports"] == ["127.0.0.1:8088:8088"]
        assert target["EXPOSE"].words == ["8088"]
        assert "localhost:8088/" in target["HEALTHCHECK"].text

    def test_user_and_signals_are_those_of_the_broker(self):
        for name in ("USER", "ENTRYPOINT", "STOPSIGNAL", "VOLUME"):
            assert stage("pipeline")[name] == final_stage()[name]


class TestCompose:
    def test_three_brokers_have_distinct_ids_and_racks(self):
        configs = [compose_config(name) for name in BROKERS]
        assert list(compose_brokers()) == list(BROKERS)
        assert len({config.broker_id for config in configs}) == 3
        assert len({config.broker_rack for config in configs}) == 3

    @pytest.mark.parametrize("name", BROKERS)
    def test_advertised_addresses_reach_the_broker(self, name):
        config, service = compose_config(name), compose_brokers()[name]
        listeners = {listener.name: listener for listener in config.resolved_listeners()}
        ((host, outside, inside),) = (port.split(":") for port in service["ports"])
        assert host == "127.0.0.1"
        assert str(listeners["EXTERNAL"].advertised) == f"localhost:{outside}"
        assert str(listeners["EXTERNAL"].address.port) == inside
        assert listeners["INTERNAL"].advertised == (name, listeners["INTERNAL"].address.port)
        assert listeners["INTERNAL"].address.host == ""

    @pytest.mark.parametrize("name", [*BROKERS, *SECURE])
    def test_only_brokers_reach_the_listener_of_brokers_and_zookeeper(self, name):
        service = compose()["services"][name]
        config = broker_config(service["environment"])
        assert config.inter_broker_listener_name == "REPLICATION"
        assert str(config.inter_broker_listener().address.port) not in (
            port.split(":")[2] for port in service["ports"]
        )
        # It listens on the address that has this name, which is one of the network alone.
        (alias,) = service["networks"]["brokers"]["aliases"]
        listener = config.inter_broker_listener()
        assert listener.address == listener.advertised == (alias, 9091)
        assert service["networks"].keys() == {"default", "brokers"}
        on_it = {n for n, s in compose()["services"].items() if "brokers" in s.get("networks", ())}
        assert on_it == {"zookeeper", *BROKERS, *SECURE}
        assert compose()["services"]["zookeeper"]["networks"] == ["brokers"]
        assert compose()["networks"] == {"brokers": {"internal": True}}

    def test_names_on_the_network_of_brokers_are_distinct(self):
        aliases = [compose()["services"][name]["networks"]["brokers"] for name in BROKERS + SECURE]
        assert len({each["aliases"][0] for each in aliases}) == len(aliases)

    def test_published_ports_are_distinct_and_begin_with_the_default(self):
        outside = [port.split(":")[1] for s in compose_brokers().values() for port in s["ports"]]
        assert outside == ["9092", "9093", "9094"]

    @pytest.mark.parametrize("name", BROKERS)
    def test_each_broker_has_its_own_data_volume(self, name):
        (volume,) = compose_brokers()[name]["volumes"]
        assert volume == f"{name}:{image_environment()['KAFKA_LOG_DIRS']}"
        assert name in compose()["volumes"]

    def test_brokers_wait_for_their_zookeeper(self):
        for name, service in compose_brokers().items():
            zookeeper = compose_config(name).zookeeper_connect.partition(":")[0]
            assert service["depends_on"] == {zookeeper: {"condition": "service_healthy"}}
            assert "healthcheck" in compose()["services"][zookeeper]

    def test_the_image_is_built_once(self):
        assert [name for name, s in compose_brokers().items() if "build" in s] == ["broker-1"]

    def test_other_services_never_pull_the_image(self):
        policies = {name: s.get("pull_policy") for name, s in compose_brokers().items()}
        assert policies == {"broker-1": None, "broker-2": "never", "broker-3": "never"}

    def test_both_generations_of_compose_accept_the_file(self):
        # 1.29 reads a file without `version` by the common specification; v2 warns of a `version`.
        own = {name for name in compose() if not name.startswith("x-")}
        assert own == {"services", "networks", "volumes"}

    def test_losing_any_one_broker_loses_nothing(self):
        for name in BROKERS:
            config = compose_config(name)
            assert (config.default_replication_factor, config.min_insync_replicas) == (3, 2)


class TestConsole:
    def test_console_asks_the_brokers_and_is_open_to_this_machine_only(self):
        service = compose()["services"]["console"]
        command, *words = service["command"]
        options = dict(zip(words[::2], words[1::2], strict=True))
        hosts = [each.partition(":")[0] for each in options["-b"].split(",")]
        assert (command, hosts) == ("console", [*BROKERS])
        assert "profiles" not in service
        assert service["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]
        assert "--allow-changes" not in words
        assert f"localhost:{DEFAULT_PORT}/" in service["healthcheck"]["test"][-1]


def mounted(service: str) -> dict[str, Path]:
    """Return the files of the repository that a service of the compose file sees, by its paths."""
    volumes = [each.split(":") for each in compose()["services"][service]["volumes"]]
    files = {each[1]: ROOT / each[0] for each in volumes if each[0].startswith("./")}
    assert all(file.is_file() for file in files.values())
    return files


class TestMetrics:
    """Prometheus scrapes every broker by its name, and Grafana finds it and the dashboard."""

    def test_prometheus_scrapes_the_endpoint_of_every_broker(self):
        (job,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
        (targets,) = job["static_configs"]
        port = broker_config({}).metrics_listener.rpartition(":")[2]
        assert targets["targets"] == [f"{name}:{port}" for name in BROKERS]
        (pattern,) = re.findall('job=~"(.*?)"', (MONITORING / "alerts.yaml").read_text())
        assert re.fullmatch(pattern, job["job_name"])

    def test_services_find_their_files(self):
        files = mounted("prometheus")
        prometheus = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
        assert {f"/etc/prometheus/{each}" for each in prometheus["rule_files"]} <= files.keys()
        files = mounted("grafana")
        provisioned = "/etc/grafana/provisioning"
        sources = yaml.safe_load(files[f"{provisioned}/datasources/barnabas.yaml"].read_text())
        assert [each["url"] for each in sources["datasources"]] == ["http://prometheus:9090"]
        found = yaml.safe_load(files[f"{provisioned}/dashboards/barnabas.yaml"].read_text())
        (path,) = (each["options"]["path"] for each in found["providers"])
        assert files[f"{path}/barnabas.json"] == MONITORING / "dashboard.json"

    @pytest.mark.parametrize("name", ["prometheus", "grafana"])
    def test_images_have_a_version(self, name):
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", compose()["services"][name]["image"])


class TestSecure:
    """Brokers with TLS, users and rules: the compose file has no secret, the manifests have one."""

    @pytest.mark.parametrize("number", range(3))
    def test_compose_brokers_share_the_files_and_open_no_listener(
        self, number: int, tmp_path: Path
    ):
        name, service = SECURE[number], compose_brokers("secure")[SECURE[number]]
        data, secure = service["volumes"]
        volume, mounted = secure.split(":")
        assert data == f"{name}:{image_environment()['KAFKA_LOG_DIRS']}"
        assert {name, volume} <= compose()["volumes"].keys()
        assert mounted in final_stage()["RUN"].text
        config = secure_config(service["environment"], tmp_path, service["command"], mounted)
        opened = {each.name: each.protocol for each in config.resolved_listeners()}
        assert opened == {"INTERNAL": "SASL_SSL", "EXTERNAL": "SASL_SSL", "REPLICATION": "SSL"}
        assert config.tls_of("REPLICATION").ssl_client_auth == "required"
        # ZooKeeper is open to the hosts of its network, but its nodes have rights.
        assert (config.zookeeper_set_acl, config.exposures()) == (True, [])
        assert config.broker_id == number + 1
        ((host, outside, inside),) = (port.split(":") for port in service["ports"])
        listeners = {each.name: each for each in config.resolved_listeners()}
        assert (host, inside) == ("127.0.0.1", str(listeners["EXTERNAL"].address.port))
        assert str(listeners["EXTERNAL"].advertised) == f"localhost:{outside}"
        assert listeners["INTERNAL"].advertised.host == name
        (certificate,) = certificates_of((tmp_path / f"broker-{number + 1}.pem").read_text())
        names = b" ".join(parse_certificate(certificate).alternative_names)
        assert name.encode() in names
        assert listeners["REPLICATION"].advertised.host.encode() in names

    def test_secure_brokers_have_metadata_of_their_own(self):
        places = {
            s["environment"]["KAFKA_ZOOKEEPER_CONNECT"]
            for s in {**compose_brokers(), **compose_brokers("secure")}.values()
        }
        assert places == {"zookeeper:2181", "zookeeper:2181/secure"}

    def test_published_ports_are_distinct(self):
        services = compose()["services"].values()
        ports = [port.split(":")[1] for s in services for port in s.get("ports", ())]
        assert len(ports) == len(set(ports))

    def test_pods_have_the_files_of_the_secret(self, tmp_path: Path):
        text = (SECURE_MANIFESTS / "kustomization.yaml").read_text()
        (command,) = re.findall(r"barnabas (secure .*)", text)
        kept = re.findall(r"--from-file=made/(\S+)", text)
        words = shlex.split(command)
        hosts = [words[at + 1] for at, word in enumerate(words) if word == "--host"]
        make_files(tmp_path, hosts)
        assert {each.name for each in tmp_path.iterdir()} == {*kept, "ca.key"}
        (tmp_path / "ca.key").unlink()
        (certificate,) = certificates_of((tmp_path / "broker.pem").read_text())
        names = b" ".join(parse_certificate(certificate).alternative_names)
        assert b"*.barnabas-brokers.default.svc" in names
        patch = yaml.safe_load((SECURE_MANIFESTS / "brokers.yaml").read_text())
        pod = patch["spec"]["template"]["spec"]
        ((container,), (volume,)) = pod["containers"], pod["volumes"]
        assert container["name"] == pod_template()["containers"][0]["name"]
        (mount,) = container["volumeMounts"]
        assert mount["name"] == volume["name"]
        assert f"secret generic {volume['secret']['secretName']} " in text
        environment = {k: v for k, v in pod_environment(0).items() if k.startswith("KAFKA_")}
        config = secure_config(environment, tmp_path, container["args"], mount["mountPath"])
        opened = {each.name: each.protocol for each in config.resolved_listeners()}
        assert opened == {"CLIENTS": "SASL_SSL", "REPLICATION": "SSL"}
        # ZooKeeper is open to the hosts of its network, but its nodes have rights.
        assert (config.zookeeper_set_acl, config.exposures()) == (True, [])


class TestKubernetes:
    @pytest.mark.parametrize("pod", range(3))
    def test_each_pod_is_a_broker_with_its_own_address(self, pod):
        config = broker_config(
            {k: v for k, v in pod_environment(pod).items() if k.startswith("KAFKA_")}
        )
        service = manifest("Service", "barnabas-brokers")
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        assert config.broker_id == pod
        assert {listener.name: listener.advertised for listener in config.resolved_listeners()} == {
            "CLIENTS": (f"barnabas-{pod}.barnabas-brokers.default.svc", ports["kafka"]),
            "REPLICATION": (f"barnabas-{pod}.barnabas-brokers.default.svc", ports["replication"]),
        }
        assert config.inter_broker_listener().address.port == ports["replication"]

    def test_every_value_of_a_variable_is_a_string(self):
        # Kubernetes refuses a number here.
        for variable in pod_template()["containers"][0]["env"]:
            assert isinstance(variable.get("value", ""), str)

    def test_pods_belong_to_the_service_of_their_names(self):
        stateful = manifest("StatefulSet", "barnabas")["spec"]
        labels = stateful["template"]["metadata"]["labels"]
        assert stateful["serviceName"] == "barnabas-brokers"
        assert stateful["selector"]["matchLabels"] == labels
        for name in ("barnabas", "barnabas-brokers"):
            assert manifest("Service", name)["spec"]["selector"] == labels
        budget = manifest("PodDisruptionBudget", "barnabas")["spec"]
        assert budget["selector"]["matchLabels"] == labels

    def test_pods_have_the_user_and_the_data_directory_of_the_image(self):
        security = pod_template()["securityContext"]
        container = pod_template()["containers"][0]
        ids = f"{security['runAsUser']}:{security['runAsGroup']}"
        assert ids == final_stage()["USER"].text
        assert security["fsGroup"] == security["runAsGroup"]
        assert [m["mountPath"] for m in container["volumeMounts"]] == final_stage()["VOLUME"].words

    def test_probes_use_the_metrics_endpoint(self):
        container = pod_template()["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert broker_config({}).metrics_listener == f":{ports['metrics']}"
        paths = {
            probe: container[probe]["httpGet"]["path"]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe")
        }
        assert paths == {
            "startupProbe": "/syncz",
            "readinessProbe": "/readyz",
            "livenessProbe": "/healthz",
        }

    def test_brokers_use_the_manifests_zookeeper(self):
        host, _, port = pod_environment(0)["KAFKA_ZOOKEEPER_CONNECT"].partition(":")
        assert str(manifest("Service", host)["spec"]["ports"][0]["port"]) == port
        assert manifest("StatefulSet", host)["spec"]["serviceName"] == host

    def test_brokers_alone_reach_the_replication_port_and_zookeeper(self):
        brokers = manifest("StatefulSet", "barnabas")["spec"]["selector"]
        open_to_all, to_brokers = manifest("NetworkPolicy", "barnabas")["spec"]["ingress"]
        assert open_to_all == {"ports": [{"port": "kafka"}, {"port": "metrics"}]}
        assert to_brokers["ports"] == [{"port": "replication"}]
        assert to_brokers["from"] == [{"podSelector": brokers}]
        (to_zookeeper,) = manifest("NetworkPolicy", "barnabas-zookeeper")["spec"]["ingress"]
        assert to_zookeeper["from"] == [{"podSelector": brokers}]
        for name in ("barnabas", "barnabas-zookeeper"):
            pods = manifest("StatefulSet", name)["spec"]
            policy = manifest("NetworkPolicy", name)["spec"]
            assert policy["podSelector"] == pods["selector"]
            named = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
            container = pods["template"]["spec"]["containers"][0]
            assert named == {port["name"] for port in container["ports"]}

    def test_names_are_distinct(self):
        names = [(m["kind"], m["metadata"]["name"]) for m in manifests()]
        assert len(names) == len(set(names))
