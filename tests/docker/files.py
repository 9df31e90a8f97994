"""The Dockerfile, docker-compose.yml and the Kubernetes manifests, parsed."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from barnabas.cli.processes.secure import make_secure
from barnabas.cli.settings import merged, property_sources
from barnabas.config.broker import BrokerConfig

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
SECURE_MANIFESTS = ROOT / "deploy" / "kubernetes-secure"
MONITORING = ROOT / "deploy" / "monitoring"


class Instruction(NamedTuple):
    """One instruction of a Dockerfile, its continued lines joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Return the words of the exec form, or those of a shell command."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


def dockerfile() -> list[Instruction]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [Instruction(name, text) for name, text in pairs]


def final_stage() -> Mapping[str, Instruction]:
    """Return the instructions of the last stage by name; the last one of a name counts."""
    return stage(None)


def stage(target: str | None) -> Mapping[str, Instruction]:
    """Return the instructions of a stage as `final_stage` does; None is the last one."""
    found: dict[str, Instruction] = {}
    for instruction in dockerfile():
        if instruction.name == "FROM":
            if target is not None and "FROM" in found and found["FROM"].words[-1] == target:
                break
            found.clear()
        found[instruction.name] = instruction
    return found


def image_environment() -> dict[str, str]:
    pairs = (word.partition("=") for word in final_stage()["ENV"].words)
    return {name: value for name, _, value in pairs}


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def compose_brokers(*profiles: str) -> dict[str, dict[str, Any]]:
    """Return the services with the broker's image that run a broker, with these profiles."""
    return {
        name: service
        for name, service in compose()["services"].items()
        if service["image"] == "barnabas"
        and service.get("command", ["serve"])[0] == "serve"
        and service.get("profiles", []) == list(profiles)
    }


def compose_config(name: str) -> BrokerConfig:
    """Return the configuration of the broker with this service name."""
    return broker_config(compose_brokers()[name]["environment"])


def secure_config(
    environment: Mapping[str, object], directory: Path, words: list[str], mounted: str
) -> BrokerConfig:
    """Return the configuration of `serve` with these words, where `directory` is mounted."""
    assert words == ["serve", "--secure-directory", mounted]
    texts = {name: str(value) for name, value in environment.items()}
    made = make_secure(_properties(texts), directory, several=False)
    return BrokerConfig.from_properties(made.properties, strict=True)


def manifests() -> Iterator[dict[str, Any]]:
    """Yield the manifests that kustomize would apply."""
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    for name in listed:
        yield from yaml.safe_load_all((MANIFESTS / name).read_text())


EXTERNAL, ENSEMBLE = "external", "zookeeper-ensemble"
"""The components of the manifests."""
CHART = ROOT / "deploy" / "helm" / "barnabas"
needs_helm = pytest.mark.skipif(
    # Its build takes three minutes: too much for a plain test run.
    shutil.which("helm") is None,
    reason="helm is not installed: go install helm.sh/helm/v3/cmd/helm@latest",
)


def kustomized(directory: Path, base: Path, *components: str) -> list[dict[str, Any]]:
    """Return the manifests of a base with components, as kubectl renders them."""
    above = os.path.relpath(ROOT / "deploy", directory)
    kustomization = {
        "resources": [f"{above}/{base.name}"],
        "components": [f"{above}/kubernetes/components/{each}" for each in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    rendered = subprocess.run(["kubectl", "kustomize", directory], check=True, capture_output=True)
    return list(yaml.safe_load_all(rendered.stdout))


def charted(*settings: str, release: str = "barnabas") -> list[dict[str, Any]]:
    """Return the manifests of the chart as Helm renders them for a release."""
    command = ["helm", "template", release, str(CHART), "--kube-version", "1.28.0"]
    for each in settings:
        command += ["--set", each]
    rendered = subprocess.run(command, check=True, capture_output=True)
    return [each for each in yaml.safe_load_all(rendered.stdout) if each is not None]


def find(rendered: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (m for m in rendered if (m["kind"], m["metadata"]["name"]) == (kind, name))
    return found


def expanded(template: Mapping[str, Any], pod: int) -> dict[str, str]:
    """Return the variables of a pod's container as Kubernetes expands them: a value may name
    variables in front of it."""
    from_fields = {
        "metadata.name": f"barnabas-{pod}",
        "metadata.namespace": "default",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(pod),
        "spec.nodeName": "a-node",
        "status.hostIP": "10.0.0.7",
    }
    environment: dict[str, str] = {}
    for variable in template["containers"][0]["env"]:
        given = variable.get("value") or from_fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        environment[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda m: environment[m[1]], given)
    return environment


def manifest(kind: str, name: str) -> dict[str, Any]:
    return find(list(manifests()), kind, name)


def broker_config(environment: Mapping[str, object]) -> BrokerConfig:
    """Return the configuration that `serve` uses in the image.

    Raises ConfigError for an unknown key.
    """
    texts = {name: str(value) for name, value in environment.items()}
    return BrokerConfig.from_properties(_properties(texts), strict=True)


def _properties(variables: Mapping[str, str]) -> dict[str, str]:
    return merged(property_sources(None, {}, image_environment() | variables))
