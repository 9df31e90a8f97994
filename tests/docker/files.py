"""The Dockerfile, docker-compose.yml and the Kubernetes manifests, read as their users do."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from barnabas.config.broker import BrokerConfig
from barnabas.config.properties import from_environment

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"


class Instruction(NamedTuple):
    """One of a Dockerfile, its continued lines joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Those of the exec form, else the shell's."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


def dockerfile() -> list[Instruction]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [Instruction(name, text) for name, text in pairs]


def final_stage() -> Mapping[str, Instruction]:
    """By name: what is said twice is said for the last time."""
    stage: dict[str, Instruction] = {}
    for instruction in dockerfile():
        if instruction.name == "FROM":
            stage.clear()
        stage[instruction.name] = instruction
    return stage


def image_environment() -> dict[str, str]:
    pairs = (word.partition("=") for word in final_stage()["ENV"].words)
    return {name: value for name, _, value in pairs}


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def compose_brokers() -> dict[str, dict[str, Any]]:
    services = compose()["services"]
    return {name: service for name, service in services.items() if service["image"] == "barnabas"}


def compose_config(name: str) -> BrokerConfig:
    """Of the broker that has this name as a service."""
    return broker_config(compose_brokers()[name]["environment"])


def manifests() -> Iterator[dict[str, Any]]:
    """Those that kustomize would apply."""
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    for name in listed:
        yield from yaml.safe_load_all((MANIFESTS / name).read_text())


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = (m for m in manifests() if (m["kind"], m["metadata"]["name"]) == (kind, name))
    return found


def broker_config(environment: Mapping[str, object]) -> BrokerConfig:
    """What `serve` makes of it in the image; ConfigError where a key has no effect."""
    texts = {name: str(value) for name, value in environment.items()}
    return BrokerConfig.from_properties(from_environment(image_environment() | texts), strict=True)
