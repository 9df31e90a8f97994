"""The examples of docs/testing.md run, and the names in it exist."""

import re
from pathlib import Path

import pytest

from barnabas.testing import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int) -> None:
    exec(compile(EXAMPLES[number], f"example {number} of docs/testing.md", "exec"), {})


def test_page_names_every_method_of_cluster_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    fixtures = {"barnabas_broker", "barnabas_session_broker", "barnabas_cluster"}
    plumbing = {"start", "stop", "remove_lever", "wait_for_lever", "touched_by_lever"}
    levers = {name for name in dir(Cluster()) if not name.startswith("_")} - plumbing
    # These two are described in the text.
    assert named - fixtures == levers - {"bootstrap_servers", "jump_transaction_clock"}
