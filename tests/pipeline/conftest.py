"""The modules of this folder have sessions of Spark in the same JVM, which ends before others."""

from pathlib import Path

import pytest

from tests.support.spark import end_jvm

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or HERE not in nextitem.path.parents:
        end_jvm()
