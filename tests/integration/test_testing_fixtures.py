"""The fixtures of the pytest plugin, and their settings, in runs of pytest of their own."""

import pytest

pytest_plugins = ["pytester"]

READ = """
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

def read(brokers, key):
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    broker = str(getattr(brokers, "broker_ids", [0])[0])
    resource = ConfigResource(ConfigResource.Type.BROKER, broker)
    return admin.describe_configs([resource])[resource].result(20)[key].value
"""


def run(
    pytester: pytest.Pytester, test: str, *, ini: str = "", conftest: str = ""
) -> pytest.RunResult:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(conftest)
    pytester.makepyfile(READ + test)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore")


def passes(result: pytest.RunResult, count: int) -> None:
    result.assert_outcomes(passed=count)


EACH = """
def test_broker(barnabas_broker):
    assert read(barnabas_broker, "num.partitions") == "{0}"

def test_cluster(barnabas_cluster):
    assert read(barnabas_cluster, "num.partitions") == "{0}"

def test_shared(barnabas_session_broker, barnabas_session_cluster, barnabas_process_cluster):
    for brokers in barnabas_session_broker, barnabas_session_cluster, barnabas_process_cluster:
        assert read(brokers, "num.partitions") == "{0}"
"""
INI = "barnabas_configs =\n    num.partitions = 4\n    log.retention.ms=7000\n"
OVERRIDE = """
import pytest

@pytest.fixture(scope="session")
def barnabas_configs():
    return {"num.partitions": 5, "auto.create.topics.enable": False}
"""


def test_ini_option_sets_keys_of_all_fixtures(pytester: pytest.Pytester) -> None:
    passes(run(pytester, EACH.format(4), ini=INI), 3)


def test_fixture_of_the_project_sets_keys_of_all_fixtures(pytester: pytest.Pytester) -> None:
    kept = """
def test_rest(barnabas_broker):
    assert read(barnabas_broker, "log.retention.ms") == "7000"
    assert read(barnabas_broker, "auto.create.topics.enable") == "false"
"""
    passes(run(pytester, EACH.format(5) + kept, ini=INI, conftest=OVERRIDE), 4)


def test_mark_of_the_test_wins_over_that_of_its_module(pytester: pytest.Pytester) -> None:
    test = """
pytestmark = pytest.mark.barnabas({"num.partitions": 6, "log.retention.ms": 8000}, brokers=2)

def test_module(barnabas_cluster):
    assert barnabas_cluster.broker_ids == [1, 2]
    assert read(barnabas_cluster, "num.partitions") == "6"

@pytest.mark.barnabas(configs={"num.partitions": 7}, processes=True)
def test_own(barnabas_cluster):
    assert barnabas_cluster.broker_ids == [1, 2]
    assert read(barnabas_cluster, "num.partitions") == "7"
    assert read(barnabas_cluster, "log.retention.ms") == "8000"
    barnabas_cluster.kill(2)
"""
    passes(run(pytester, test, ini=INI, conftest=OVERRIDE), 2)


def test_ini_options_choose_number_and_processes_of_brokers(pytester: pytest.Pytester) -> None:
    test = """
def test_clusters(barnabas_cluster, barnabas_session_cluster):
    for cluster in barnabas_cluster, barnabas_session_cluster:
        assert cluster.broker_ids == [1, 2]
        cluster.kill(2)

@pytest.mark.barnabas(brokers=1, processes=False)
def test_mark_wins(barnabas_cluster):
    assert barnabas_cluster.broker_ids == [1]
    with pytest.raises(RuntimeError, match="processes=True"):
        barnabas_cluster.kill(1)
"""
    passes(run(pytester, test, ini="barnabas_brokers = 2\nbarnabas_processes = true"), 2)


def test_session_cluster_starts_once_and_process_cluster_for_each_test(
    pytester: pytest.Pytester,
) -> None:
    test = """
shared, own = set(), set()

@pytest.mark.parametrize("turn", [1, 2])
def test_turns(barnabas_session_cluster, barnabas_process_cluster, turn):
    shared.add(barnabas_session_cluster.bootstrap_servers)
    own.add(barnabas_process_cluster.bootstrap_servers)
    barnabas_process_cluster.kill(turn)
    assert (len(shared), len(own)) == (1, turn)
"""
    passes(run(pytester, test), 2)


def test_asynchronous_test_awaits_the_fixture(pytester: pytest.Pytester) -> None:
    test = """
async def test_async(barnabas_cluster, barnabas_broker):
    for brokers in barnabas_cluster.aio, barnabas_broker.aio:
        topic = await brokers.create_topic()
        await brokers.produce(topic, "1")
        assert len(await brokers.records(topic, 1)) == 1
"""
    passes(run(pytester, test, ini="asyncio_mode = auto"), 1)


def test_wrong_marks_are_errors_that_name_them(pytester: pytest.Pytester) -> None:
    test = """
@pytest.mark.barnabas({"num.partition": 1})
def test_key(barnabas_broker): pass

@pytest.mark.barnabas({"num.partition": 1})
def test_key_of_processes(barnabas_process_cluster): pass

@pytest.mark.barnabas({"num.partitions": None})
def test_value(barnabas_broker): pass

@pytest.mark.barnabas({"num.partitions": 1})
def test_shared(barnabas_session_broker): pass

@pytest.mark.barnabas({}, {})
def test_two_mappings(barnabas_broker): pass

@pytest.mark.barnabas(broker=1)
def test_argument(barnabas_cluster): pass
"""
    result = run(pytester, test)
    result.assert_outcomes(errors=6)
    result.stdout.fnmatch_lines(
        [
            "*num.partition (did you mean num.partitions?)*",
            "*num.partition (did you mean num.partitions?)*",
            "*num.partitions: None is not a text, a number or a boolean*",
            "*mark barnabas has no effect on barnabas_session_broker*",
            "*mark barnabas takes one mapping of configurations*",
            "*unexpected keyword argument 'broker'*",
        ]
    )


def test_ini_option_and_mark_limit_the_start(pytester: pytest.Pytester) -> None:
    test = """
def test_broker(barnabas_broker): pass

def test_cluster(barnabas_cluster): pass

@pytest.mark.barnabas(start_timeout=30)
def test_mark_wins(barnabas_broker, barnabas_cluster): pass
"""
    result = run(pytester, test, ini="barnabas_start_timeout = 0.001")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["*the broker did not start within 0.001 s*", "*the cluster did not start within 0.001 s*"]
    )


@pytest.mark.parametrize(
    ("ini", "words"),
    [
        ("barnabas_configs = a.b", "*'a.b' is not KEY=VALUE*"),
        ("barnabas_configs = a.b=1", "*Unknown configuration keys: a.b*"),
        ("barnabas_brokers = two", "*'two' is not a number*"),
        ("barnabas_start_timeout = soon", "*'soon' is not a positive number of seconds*"),
        ("barnabas_start_timeout = 0", "*'0' is not a positive number of seconds*"),
    ],
)
def test_wrong_ini_options_are_errors_that_name_them(
    pytester: pytest.Pytester, ini: str, words: str
) -> None:
    result = run(pytester, "def test(barnabas_cluster): pass", ini=ini)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])


def test_mark_beside_a_shared_broker_is_for_the_own_one(pytester: pytest.Pytester) -> None:
    test = """
@pytest.mark.barnabas({"num.partitions": 6})
def test_both(barnabas_session_broker, barnabas_broker):
    assert read(barnabas_broker, "num.partitions") == "6"
    assert read(barnabas_session_broker, "num.partitions") == "1"

@pytest.mark.barnabas({"num.partitions": 6})
def test_none():
    pass
"""
    passes(run(pytester, test), 2)


def test_options_and_mark_are_described_by_pytest(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess("--help").stdout.str()
    for option in ("barnabas_configs", "barnabas_brokers", "barnabas_processes", "barnabas_start"):
        assert option in shown
    pytester.runpytest_subprocess("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.barnabas(configs*"]
    )
    listed = pytester.runpytest_subprocess("--fixtures").stdout.str()
    for fixture in ("configs", "session_cluster", "process_cluster"):
        assert f"barnabas_{fixture}" in listed
