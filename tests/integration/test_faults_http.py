"""`--faults`: levers over HTTP."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.one_request import in_thread
from tests.support.command_line import ROOT
from tests.support.faults import FaultRefused, Faults, served
from tests.support.ports import ports_in_a_row
from tests.support.supervised import Parent, running
from tests.support.waiting import until

DEADLINE = 30.0
QUIET = 0.2
Served = tuple[Parent, str, Faults]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("cluster")
    up = ("cluster", "up", "-l", "127.0.0.1:0", "-d", str(data))
    quick = ("--set", "offsets.topic.num.partitions=3")
    few = ("--set", "transaction.state.log.num.partitions=3")
    with served(*up, *quick, *few) as found:
        yield found


def topics(servers: str, client_id: str = "test", timeout: float = DEADLINE) -> int:
    """Send a Metadata request, and return the number of brokers in its answer."""
    admin = AdminClient({"bootstrap.servers": servers, "client.id": client_id})
    return len(admin.list_topics(timeout=timeout).brokers)


def produce(servers: str, topic: str, **settings: object) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})
    producer.produce(topic, b"1", partition=0)
    return producer


def states(faults: Faults) -> list[str]:
    return [each["state"] for each in faults.get("/v1/brokers")["brokers"]]


def test_held_request_waits_until_it_is_released(cluster: Served) -> None:
    _, servers, faults = cluster
    lever = faults.post("/v1/hold", api="Produce", topic="held", client_id="held")["lever"]
    producer = produce(servers, "held", **{"client.id": "held"})
    flushed = in_thread(lambda: producer.flush(DEADLINE))
    assert faults.wait(lever)["touched"] == 1
    with pytest.raises(TimeoutError):
        flushed.result(QUIET)
    assert faults.release(lever) == {
        "lever": lever,
        "kind": "hold",
        "api": "Produce",
        "touched": 1,
        "released": True,
    }
    assert flushed.result(DEADLINE) == 0
    assert faults.get(f"/v1/levers/{lever}")["touched"] == 1
    assert faults.wait(lever) == faults.release(lever)


def test_refused_and_delayed_requests_are_counted(cluster: Served) -> None:
    _, servers, faults = cluster
    where = {"api": "Produce", "topic": "refused", "client_id": "refused"}
    error = faults.post("/v1/error", code="NOT_LEADER_OR_FOLLOWER", times=2, **where)["lever"]
    delay = faults.post("/v1/delay", seconds=0, **where)["lever"]
    assert produce(servers, "refused", **{"client.id": "refused"}).flush(DEADLINE) == 0
    assert faults.release(error)["touched"] == 2
    # The third attempt passes the first lever, and the second one counts it.
    assert faults.release(delay)["touched"] == 1


def test_killed_broker_stays_down_until_it_is_started(cluster: Served) -> None:
    parent, servers, faults = cluster
    lever = faults.post("/v1/error", api="Metadata", code=3, client_id="again")["lever"]
    faults.post("/v1/brokers/2/kill")
    assert states(faults) == ["running", "down", "running"]
    parent.says(r"broker 2 ended \(SIGKILL\), and stays down")
    with pytest.raises(FaultRefused, match="broker 2 does not run") as refused:
        faults.post("/v1/brokers/2/kill")
    assert refused.value.status == 409
    faults.post("/v1/brokers/2/start")
    assert states(faults) == ["running"] * 3
    # It has the faults that are in force.
    with pytest.raises(confluent_kafka.KafkaException):
        topics(servers.split(",")[1], "again", 1)
    assert faults.release(lever)["touched"] > 0
    faults.post("/v1/brokers/3/stop")
    assert states(faults) == ["running", "running", "down"]
    faults.post("/v1/brokers/3/start")
    until(lambda: topics(servers) == 3)


def test_broker_that_dies_by_itself_is_started_again(cluster: Served) -> None:
    parent, _, faults = cluster
    before = set(parent.children())
    faults.post("/v1/brokers/1/pause")
    assert states(faults) == ["paused", "running", "running"]
    with pytest.raises(FaultRefused, match="broker 1 is paused"):
        faults.get(f"/v1/levers/{faults.post('/v1/delay', api='Fetch', seconds=0)['lever']}")
    faults.post("/v1/brokers/1/resume")
    assert states(faults) == ["running"] * 3
    assert set(parent.children()) == before


def test_cut_links_are_silent_until_they_are_healed(cluster: Served) -> None:
    _, servers, faults = cluster
    faults.post("/v1/partition", groups=[[1], [2, 3]], one_way=True)
    faults.post("/v1/cut", brokers=[1, 2, 3], off="clients")
    asked = in_thread(lambda: topics(servers))
    with pytest.raises(TimeoutError):
        asked.result(QUIET)
    faults.post("/v1/heal")
    assert asked.result(DEADLINE) == 3
    controller = faults.get("/v1/brokers")["controller"]
    faults.post("/v1/cut", brokers=[controller])
    other = lambda: faults.get("/v1/brokers")["controller"] not in (None, controller)  # noqa: E731
    until(other, DEADLINE)
    faults.post("/v1/heal")


def test_roles_are_told_and_moved(cluster: Served) -> None:
    _, servers, faults = cluster
    assert produce(servers, "moved").flush(DEADLINE) == 0
    for kind, where in (
        ("leader", {"topic": "moved", "partition": 0}),
        ("coordinator", {"group": "g"}),
        ("coordinator", {"transactional_id": "t"}),
    ):
        before = faults.get(f"/v1/{kind}", **where)["broker"]
        to = before % 3 + 1
        faults.post(f"/v1/move-{kind}", to=to, **where)
        assert faults.get(f"/v1/{kind}", **where)["broker"] == to
    controller = faults.get("/v1/brokers")["controller"]
    faults.post(f"/v1/brokers/{controller}/expire-session")
    until(lambda: faults.get("/v1/brokers")["controller"] is not None, DEADLINE)


def test_transaction_times_out_when_the_clock_jumps(cluster: Served) -> None:
    _, servers, faults = cluster
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "late"})
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    producer.produce("late", b"1", partition=0)
    assert producer.flush(DEADLINE) == 0
    assert produce(servers, "late").flush(DEADLINE) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "late"})
    consumer.assign([confluent_kafka.TopicPartition("late", 0, 0)])
    # The record behind an open transaction is read once that was aborted.
    assert consumer.poll(QUIET) is None
    faults.post("/v1/jump-transaction-clock", seconds=60)
    message = consumer.poll(DEADLINE)
    assert message is not None
    assert message.offset() == 1
    consumer.close()


WRONG: dict[str, Callable[[Faults], object]] = {
    "there is no API Nonsense": lambda f: f.post("/v1/hold", api="Nonsense"),
    "seconds: Input should be a valid number, not '1s'": lambda f: f.post(
        "/v1/delay", api="Fetch", seconds="1s"
    ),
    "greater than or equal to 0, not -1": lambda f: f.post("/v1/delay", api="Fetch", seconds=-1),
    "second: Extra inputs": lambda f: f.post("/v1/delay", api="Fetch", seconds=1, second=1),
    "api: Field required": lambda f: f.post("/v1/hold"),
    "there is no error NONE": lambda f: f.post("/v1/error", api="Fetch", code="NONE"),
    "there is no broker 9": lambda f: f.post("/v1/brokers/9/kill"),
    "there is no partition none-0": lambda f: f.get("/v1/leader", topic="none"),
    "either a group or a transactional id": lambda f: f.get("/v1/coordinator"),
    "broker 1 is running": lambda f: f.post("/v1/brokers/1/start"),
    "there is no lever 999": lambda f: f.release(999),
    "no Fetch request was touched within 0.1 s": lambda f: f.post(
        f"/v1/levers/{f.post('/v1/hold', api='Fetch', topic='none')['lever']}/wait", timeout=0.1
    ),
    "a partition has two groups of brokers or more": lambda f: f.post(
        "/v1/partition", groups=[[1]]
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_request_is_told_what_is_wrong(cluster: Served, text: str) -> None:
    with pytest.raises(FaultRefused, match=re.escape(text)):
        WRONG[text](cluster[2])


def test_brokers_stop_with_any_active_fault(tmp_path: Path) -> None:
    place = ("cluster", "up", "-n", "2", "-l", "127.0.0.1:0", "-d", str(tmp_path))
    with served(*place) as (_, _, faults):
        faults.post("/v1/hold", api="Fetch")
        faults.post("/v1/cut", brokers=[1])
        faults.post("/v1/brokers/2/pause")
    assert list(tmp_path.glob("*.socket")) == []


def test_single_broker_of_serve_has_levers_and_the_token_of_the_user(tmp_path: Path) -> None:
    token = "a-token-of-the-user"
    place = ("serve", "-l", "127.0.0.1:0", "-d", str(tmp_path), "--secure")
    with served(*place, BARNABAS_FAULTS_TOKEN=token) as (_, _, faults):
        assert faults.token == token
        # To ask creates the internal topic: a change.
        where = "/v1/coordinator?transactional_id=t"
        assert faults.request("GET", where, Authorization="")[0] == 401
        # The levers log in as the administrator.
        assert faults.get("/v1/coordinator", transactional_id="t") == {"broker": 0}
        assert faults.request("GET", where, Authorization="") == (200, {"broker": 0})
        faults.post("/v1/brokers/0/kill")
        faults.post("/v1/brokers/0/start")


def test_broker_with_the_variables_of_the_image_has_levers(tmp_path: Path) -> None:
    first = ports_in_a_row(2)
    image = {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{first}",
        "KAFKA_LOG_DIRS": str(tmp_path),
        "KAFKA_METRICS_LISTENER": ":0",
    }
    assert re.findall(r"(KAFKA_\w+)=", (ROOT / "Dockerfile").read_text()) == [*image]
    with served("serve", at="0.0.0.0:0", **image) as (_, servers, faults):
        assert servers == f"localhost:{first}"
        lever = faults.post("/v1/delay", api="Metadata", seconds=0, client_id="test")["lever"]
        assert topics(servers) == 1
        assert faults.release(lever)["touched"] > 0


@pytest.mark.parametrize("command", [("serve",), ("cluster", "up", "-n", "2")])
def test_nothing_of_the_faults_is_imported_or_reachable_without_the_option(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    place = ("-l", "127.0.0.1:0", "-d", str(tmp_path), "--log-level", "warn")
    with running(*command, *place, PYTHONPROFILEIMPORTTIME="1") as parent:
        parent.says(r"Barnabas serves")
        processes = [parent.process.pid, *parent.children()]
        brokers = 1 if command == ("serve",) else 2
        # Of clients and, in a cluster, of brokers.
        assert sum(map(listening, processes)) == (1 if brokers == 1 else 2 * brokers)
        parent.process.terminate()
        assert parent.ends() == 0
        imported = {line.rpartition("|")[2].strip() for line in parent.said if "|" in line}
    assert "barnabas.broker.app" in imported
    foreign = ("barnabas.faults", "barnabas.testing", "pydantic", "h11")
    assert [each for each in imported if each.startswith(foreign)] == []


def listening(process: int) -> int:
    """Return the number of TCP ports on which a process listens."""
    own = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            own.add(str(each.readlink()))
        except FileNotFoundError:
            continue
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]
    ]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in own for row in rows)


def test_faults_refuse_a_store_that_they_cannot_cut(tmp_path: Path) -> None:
    words = ("serve", "-d", str(tmp_path), "--set", "zookeeper.connect=127.0.0.1:1")
    with running(*words, "--faults", "127.0.0.1:0") as parent:
        parent.says("--faults is for brokers without ZooKeeper")
        assert parent.ends() == 1
