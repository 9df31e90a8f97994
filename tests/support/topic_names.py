"""Names of topics for tests on a broker that other tests use too."""

import re

import pytest


def topic_name(request: pytest.FixtureRequest) -> str:
    """Return a name for one run of a test: a test that is run again finds no topic of before."""
    name = re.sub(r"[^\w-]+", ".", request.node.name).strip(".")[:200]
    tries = getattr(request.node, "execution_count", 1)
    return name if tries == 1 else f"{name}.{tries}"
