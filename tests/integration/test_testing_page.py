"""The examples of docs/testing.md run, and the names in it exist."""

import re
from inspect import getattr_static, iscoroutinefunction
from pathlib import Path
from textwrap import dedent

import pytest

from barnabas.testing import AsyncCluster, Cluster

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES = [dedent(each) for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)]
(INI,) = (dedent(each) for each in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, request: pytest.FixtureRequest) -> None:
    example = EXAMPLES[number]
    if "barnabas_" not in example:
        exec(compile(example, f"example {number} of docs/testing.md", "exec"), {})
        return
    # Only here: a pytester forgets the modules that are imported in its time, and the broker of
    # a later test would import them again, beside the classes of the first import.
    pytester = request.getfixturevalue("pytester")
    if "def test_" in example:
        pytester.makepyfile(example)
        pytester.runpytest_subprocess("-W", "ignore").assert_outcomes(passed=1)
    else:
        check_settings(pytester, conftest=example)


def test_ini_example_is_in_force(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(INI)
    check_settings(pytester, brokers=1)


def check_settings(pytester: pytest.Pytester, *, conftest: str = "", brokers: int = 3) -> None:
    """Run a test that sees three partitions, no automatic topics, and so many brokers."""
    pytester.makeconftest(conftest)
    pytester.makepyfile(f"""
        from confluent_kafka.admin import AdminClient, ConfigResource

        def test_settings(barnabas_cluster):
            assert len(barnabas_cluster.broker_ids) == {brokers}
            admin = AdminClient({{"bootstrap.servers": barnabas_cluster.bootstrap_servers}})
            resource = ConfigResource(ConfigResource.Type.BROKER, "1")
            found = admin.describe_configs([resource])[resource].result(20)
            assert found["num.partitions"].value == "3"
            assert found["auto.create.topics.enable"].value == "false"
    """)
    pytester.runpytest_subprocess("-W", "ignore").assert_outcomes(passed=1)


def test_page_names_every_fixture_and_every_method_of_cluster_and_no_other() -> None:
    # These have words of others in their tables.
    others = r"^## (From testcontainers|Levers over HTTP)\n.*?(?=^## )"
    own, found = re.subn(others, "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found == 2
    rows = re.findall(r"^\| (`.*?) \|", own, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    kinds = ("broker", "cluster", "process_cluster", "session_broker", "session_cluster")
    fixtures = {f"barnabas_{kind}" for kind in kinds}
    methods = {name for name in dir(Cluster) if not name.startswith("_")}
    # `broker_ids` is an attribute; the others are described in the text.
    methods |= {"broker_ids"}
    assert named == fixtures | methods - {
        *("aio", "bootstrap_servers", "jump_transaction_clock", "start", "stop")
    }


def test_page_names_every_method_that_is_awaited_and_no_other() -> None:
    def is_awaited(name: str) -> bool:
        found = getattr_static(AsyncCluster, name)
        return iscoroutinefunction(found.fget if isinstance(found, property) else found)

    helpers = {"create_topic", "produce", "records", "lag", "to_read", "wait_for_group"}
    listed = r"^These methods are awaited: (.*?)\. "
    (sentence,) = re.findall(listed, PAGE, re.MULTILINE | re.DOTALL)
    named = {*re.findall(r"`(\w+)`", sentence)} - {"fresh_name"} | helpers
    public = {name for name in dir(AsyncCluster) if not name.startswith("_")}
    assert named == {name for name in public if is_awaited(name)}
