"""Faults on requests, and the fast paths beside them."""

from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.server.dispatch import FastPath, Route
from barnabas.faults.request_faults import RequestFault, RequestFaults
from barnabas.protocol.messages import produce

ANSWER: list[Any] = [b"answer"]
SERVES = cast(FastPath, SimpleNamespace(serve=lambda _frame, _now: ANSWER, learn=lambda *_: None))


def test_requests_leave_the_fast_path_while_there_is_a_fault() -> None:
    """The handler sees them then, and so does the fault."""
    faults = RequestFaults()
    cache = cast(MetadataCache, SimpleNamespace(on_change=lambda _: None))
    plain = Route(produce.API, range(14), lambda *_: None)
    routes = faults.around([plain, plain._replace(fast_path=lambda _version: SERVES)], cache)
    assert routes[0].fast_path is None
    assert routes[1].fast_path is not None
    path, frame = routes[1].fast_path(9), memoryview(b"")
    assert path.serve(frame, 0) is ANSWER
    faults.add(1, RequestFault(produce.API.key, hold=True))
    assert path.serve(frame, 0) is None
    faults.remove(1)
    assert path.serve(frame, 0) is ANSWER
