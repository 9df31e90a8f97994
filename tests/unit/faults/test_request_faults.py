"""Faults on requests, and the fast paths beside them."""

from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.server.dispatch import Route
from barnabas.broker.server.repeats import Repeat
from barnabas.faults.request_faults import RequestFault, RequestFaults
from barnabas.protocol.messages import produce

ANSWER = (1, 2)


def test_requests_are_not_served_from_memory_while_there_is_a_fault() -> None:
    """The handler sees them then, and so does the fault."""
    faults = RequestFaults()
    cache = cast(MetadataCache, SimpleNamespace(on_change=lambda _: None))
    plain = Route(produce.API, range(14), lambda *_: None)
    repeat = Repeat(lambda *_: ANSWER, None)
    some = [plain, plain._replace(again=lambda *_: None), plain._replace(again=lambda *_: repeat)]
    never, not_now, always = map(faults.around(cache), some)
    asked: Any = (None, None, None)
    assert never.again is None
    assert not_now.again is not None
    assert not_now.again(*asked) is None
    assert always.again is not None
    made: Any = always.again(*asked)
    assert made.serve(None, 0, ()) is ANSWER
    faults.add(1, RequestFault(produce.API.key, hold=True))
    assert made.serve(None, 0, ()) is None
    faults.remove(1)
    assert made.serve(None, 0, ()) is ANSWER
