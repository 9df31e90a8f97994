"""The modules of this folder have sessions of Spark in the same JVM, which ends before others."""

import gc
import os
from pathlib import Path

import pytest

from tests.support import class_archive, spark

HERE = Path(__file__).parent
HIGHEST_DESCRIPTOR = 1000
"""Py4J waits for Spark's calls of functions in Python by select(), which takes none from 1024 on:
the JVM would wait for ever."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or HERE not in nextitem.path.parents:
        spark.end_jvm()


@pytest.fixture(scope="session", autouse=True)
def archived_classes() -> None:
    """The archived classes, with which every driver of this folder starts, in any process."""
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(class_archive.options(spark.archive()))


@pytest.fixture(autouse=True)
def low_descriptors() -> None:
    """Fail at once, and not by a timeout, if other tests of this process have left files open."""
    if lowest_descriptor() >= HIGHEST_DESCRIPTOR:
        gc.collect()
        assert lowest_descriptor() < HIGHEST_DESCRIPTOR


def lowest_descriptor() -> int:
    """Return the file descriptor that is free next."""
    with open(os.devnull) as file:
        return file.fileno()
