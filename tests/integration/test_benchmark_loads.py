"""The loads of `benchmarks` run, on a broker, on several processes, on kfake and on the floor."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks import (
    client_load,
    clients,
    consumer_groups,
    floors,
    large_console,
    long_runs,
    raw,
    requests,
    whole_clients,
)
from benchmarks.measures import Faulty
from benchmarks.systems import Barnabas, Kfake, Processes, System, left_out

FEW = 24


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, System]]:
    directory = tmp_path_factory.mktemp("systems")
    made: list[System] = [Barnabas(directory), Processes(directory, 2)]
    if Kfake.name not in left_out():
        made.append(Kfake(directory))
    with ExitStack() as stack:
        for each in made:
            stack.enter_context(each)
            raw.connect(each.port).close()
        yield {each.name: each for each in made}


@pytest.mark.parametrize("name", [Barnabas.name, "Barnabas, 2 processes", Kfake.name])
def test_single_requests_are_measured(systems: dict[str, System], name: str) -> None:
    if name not in systems:
        pytest.skip(left_out()[name])
    for load in requests.loads(FEW, FEW):
        (figures,) = load(systems[name]).values()
        assert figures["cpu_us"] > 0
        assert 0 < figures["p50_us"] <= figures["p99_us"]


def test_floor_takes_the_same_requests(tmp_path) -> None:
    if reason := floors.why_not():
        pytest.skip(reason)
    for load in requests.loads(FEW, FEW):
        (figures,) = load(floors.Floor(tmp_path)).values()
        assert figures["cpu_us"] > 0


@pytest.mark.parametrize("name", [Barnabas.name, "Barnabas, 2 processes"])
def test_clients_of_several_processes_are_measured(systems: dict[str, System], name: str) -> None:
    produced, transacted = requests.loads_of_several(2, FEW, FEW)
    assert produced(systems[name])["Produce of 10 records, 2 clients"]["per_s"] > 0
    beside = "transactions of one record, beside 2 processes"
    assert transacted(systems[name])[beside]["cpu_us"] > 0


def test_bursts_and_transactions_come_from_the_same_load(systems: dict[str, System]) -> None:
    found = whole_clients.streams(systems[Barnabas.name], bursts=2)
    bursts, transactions = (found[name] for name in (whole_clients.FLUSHED, whole_clients.BURSTS))
    assert "commit_p50_ms" in transactions
    assert "commit_p50_ms" not in bursts
    assert transactions["of_bursts"] == transactions["mb_per_s"] / bursts["mb_per_s"]


def test_cores_of_the_client_are_known(systems: dict[str, System]) -> None:
    found = whole_clients.throughput(systems[Barnabas.name], 1024, 16 * 1024, megabytes=5)
    for figures in found.values():
        assert figures["client_cores"] > 0


def test_requests_to_group_coordinators_are_measured(systems: dict[str, System]) -> None:
    for load in requests.coordinated_loads(FEW):
        (figures,) = load(systems[Barnabas.name]).values()
        assert figures["cpu_us"] > 0


def test_clients_of_all_libraries_are_measured(systems: dict[str, System]) -> None:
    libraries = clients.libraries(before=None)
    assert [each.name for each in libraries] == [*client_load.LOADS]
    for load in clients.loads(systems[Barnabas.name], count=FEW):
        for library in libraries:
            (figures,) = load(library).values()
            assert figures["cpu_us"] > 0


@pytest.mark.parametrize("name", [Barnabas.name, "Barnabas, 2 processes"])
def test_members_of_consumer_groups_get_their_shares(systems: dict[str, System], name: str) -> None:
    broker = systems[name]
    one, many, paced = consumer_groups.shapes(members=FEW, groups=FEW)
    consumer_groups.prepare(broker, [one, many])
    assert consumer_groups.unchanged(broker, one, FEW)[consumer_groups.UNCHANGED]["cpu_us"] > 0
    for shape in (one, many, paced):
        found = consumer_groups.assign(broker, shape)
        # A member joins, and acknowledges what it got.
        assert found[shape.name]["heartbeats"] >= 2 * shape.groups * shape.members
        assert found[shape.name]["seconds"] > 0
        assert found[shape.beside]["p99_ms"] > 0
    assert found[consumer_groups.ALONE]["p99_ms"] > 0


def test_recovery_after_a_kill_is_measured(tmp_path) -> None:
    found: dict[str, float] = {}
    for some in long_runs.recovery(Namespace(gb=0.005), tmp_path):
        found |= some
    assert found["seconds from the start until it serves"] > 0
    assert found["CPU until then"] > 0


def test_bounds_of_a_console_are_measured(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_console, "ROUNDS", 1)
    monkeypatch.setattr(large_console, "WINDOW_S", 2.5)
    monkeypatch.setattr(large_console, "ORDINARY", 40)
    # Another process may disturb one of so few and short windows.
    monkeypatch.setattr(large_console, "RATIO", 100.0)
    found: dict[str, float] = {}
    for some in large_console.console(Namespace(partitions=200), tmp_path):
        found |= some
    assert 0 < found["Metadata requests a second"] < 1.2
    assert found["CPU of the console, share of a core"] > 0
    assert found["with tabs over without, 40 partitions"] > 0
    with pytest.raises(Faulty, match="takes too much"):
        large_console.require(found[large_console.MEMORY] < 1, "takes too much")


def test_lost_records_are_a_fault(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_runs, "ends", lambda *_: 0)
    with pytest.raises(Faulty, match="records were acknowledged, and 0 are left"):
        list(long_runs.recovery(Namespace(gb=0.001), tmp_path))
