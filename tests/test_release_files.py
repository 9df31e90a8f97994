"""The files of a release: workflows, hooks, links of the README on a package index."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas import __version__
from docs.build.package_index import prepare

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
URL = "https://example.org/barnabas"


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    pinned = re.findall(r"uses: (\S+@[0-9a-f]{40}) # v\d+\.\d+\.\d+$", workflow.read_text(), re.M)
    assert used == pinned


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_programs_and_modules_of_a_workflow_exist(workflow: Path) -> None:
    commands = "\n".join(step["run"] for step in steps(workflow) if "run" in step)
    paths = re.findall(r"\btests/[\w./-]+", commands)
    modules = [
        f"{each.replace('.', '/')}.py" for each in re.findall(r"-m (docs\.[\w.]+)", commands)
    ]
    assert [path for path in (*paths, *modules) if not (ROOT / path).exists()] == []


def test_every_python_of_the_package_is_tested() -> None:
    unit = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["unit"]
    found = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.M)
    assert unit["strategy"]["matrix"]["python"] == found
    assert PROJECT["requires-python"] == f">={found[0]}"


def test_release_has_one_version_everywhere() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/barnabas/Chart.yaml").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert newest[1] == chart["version"] == chart.get("appVersion", __version__) == __version__


def test_folders_of_updated_dependencies_have_some() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    files = {"docker": "Dockerfile", "gomod": "go.mod", "maven": "pom.xml", "pip": "pyproject.toml"}
    for each in updates:
        name = files.get(each["package-ecosystem"], ".github/workflows")
        assert (ROOT / each["directory"].strip("/") / name).exists(), each


def test_readme_of_an_upload_has_links_into_the_repository(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    prepare(tmp_path, URL, "v1.2.3")
    text = (tmp_path / "README.md").read_text()
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    raw = f"{URL}/raw/v1.2.3/"
    assert [(ROOT / each.removeprefix(raw)).is_file() for each in pictures] == [True]
    links = re.findall(r"\]\(([^)#\s]+)", text)
    prefix = f"{URL}/blob/v1.2.3/"
    assert len(links) > 10
    for link in links:
        assert link.startswith("https://")
        assert (ROOT / link.removeprefix(prefix)).exists() or not link.startswith(prefix)
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    own = [url.removeprefix(prefix) for url in urls.values() if url.startswith(prefix)]
    assert len(urls) == 4
    assert [path for path in own if not (ROOT / path).exists()] == []
