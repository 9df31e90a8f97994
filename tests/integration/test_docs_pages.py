"""The commands and programs of the pages run, in the order of each page, and print what it says.

A block of `python` begins with the name of its file. A block of `sh` runs; each line of a block of
`text` behind it is a line of its output. A block of `console` is run by a test of its own, or not.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.command_line import ROOT, Served, run_in_shell
from tests.support.ports import ports_in_a_row
from tests.support.supervised import running
from tests.support.watched import Watched

PAGES = ("tutorial", "exactly-once", "migrate", "operate")
BLOCK = re.compile(r"^( *)```(sh|python|text)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")


@pytest.fixture
def addresses() -> Iterator[Mapping[str, str]]:
    """The brokers that stand for the addresses in the pages."""
    with Watched() as cluster, Broker() as kafka:
        yield {
            "localhost:9092": cluster.bootstrap_servers,
            "kafka.example.org:9092": kafka.bootstrap_servers,
        }


@pytest.mark.parametrize("page", PAGES)
def test_page_runs_as_it_is_written(
    page: str, addresses: Mapping[str, str], tmp_path: Path
) -> None:
    run_blocks((ROOT / "docs" / f"{page}.md").read_text(), addresses, tmp_path)


def run_blocks(text: str, addresses: Mapping[str, str], directory: Path) -> None:
    """Run the blocks of a page; `addresses` has those to use in place of the written ones."""
    printed = ""
    for _, kind, block in BLOCK.findall(text):
        if kind == "text":
            assert set(block.splitlines()) <= set(printed.splitlines())
            continue
        for written, address in addresses.items():
            block = block.replace(written, address)
        if kind == "sh":
            printed = run_in_shell(block, addresses["localhost:9092"], directory)
        else:
            name = NAME.match(block)
            assert name is not None, f"a program without the name of its file: {block[:60]}"
            (directory / name[1]).write_text(block)


def test_user_who_may_only_read_is_refused_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "SECURITY.md").read_text()
    section = page.partition("## A user who may only read\n")[2].partition("\n## ")[0]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    served = Served("--secure", "--listen", "localhost:0")
    try:
        run_blocks(section, {"localhost:9092": served.servers}, tmp_path)
        refused = re.findall(r"^\$ (.+)\n(barnabas: .+)$", section, re.MULTILINE)
        assert [
            run_in_shell(f"! ({command}) 2>&1", served.servers, tmp_path).strip()
            for command, _ in refused
        ] == [error for _, error in refused]
        assert len(refused) == 2
        other = "barnabas consume orders --group other --exit --command-config bob.properties"
        errors = run_in_shell(f"! {other} 2>&1", served.servers, tmp_path)
        assert "GROUP_AUTHORIZATION_FAILED" in errors
    finally:
        served.stop()


def test_killed_broker_of_the_tutorial_is_seen_and_comes_back(tmp_path: Path) -> None:
    """The brokers have other ports than on the page, and other processes."""
    section = (ROOT / "docs" / "tutorial.md").read_text().partition("## 7. ")[2]
    up, create, watch, kill, produce = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    port = ports_in_a_row(6)
    server = f"localhost:{port}"
    own = ("--listen", server)
    with running(*up.split()[1:], *own, XDG_STATE_HOME=str(tmp_path)) as cluster:
        cluster.says("broker 3:")
        told = "".join(cluster.said).replace(str(tmp_path), "/home/you/.local/state")
        for number in range(3):
            told = told.replace(f":{port + number}", f":{9092 + number}")
            pid = re.search(rf"broker {number + 1}:.* process (\d+)", told)
            assert pid is not None
            told = told.replace(f" {pid[1]},", f" {4711 + number},")
            kill = kill.replace(str(4711 + number), pid[1])
        assert told in section
        run_in_shell(create, server, tmp_path)
        with running(*watch.split()[1:], BARNABAS_BOOTSTRAP_SERVER=server) as watched:
            watched.says("The cluster is healthy")
            run_in_shell(kill, server, tmp_path)
            watched.says("\tproblem\tbrokers\tbroker 2\tnot (reached|alive)")
            run_in_shell(produce, server, tmp_path)
            cluster.says("broker 2 serves .* again")
            watched.says("The cluster is healthy")
            watched.process.kill()
        cluster.process.terminate()
        assert cluster.ends() == 0


def test_each_job_is_one_command(addresses: Mapping[str, str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "jobs.md").read_text().partition("\n## In a browser")[0]
    commands = re.findall(r"^\| [^|]+ \| `(barnabas [^`]+)` \|", page, re.MULTILINE)
    assert len(commands) == page.count("\n| ") - 1 > 20
    (tmp_path / "lines.txt").write_text("alice:1\nbob:2\ncarol:3\ndave:4\n")
    printed = {
        command: run_in_shell(command, addresses["localhost:9092"], tmp_path)
        for command in commands
    }
    read = [printed[each] for each in commands if "-o beginning -e" in each and "json" not in each]
    assert [sorted(each.split()) for each in read] == [["1", "2", "3", "4"]] * 2
    assert "3600000" in printed["barnabas configs describe topic clicks"]
