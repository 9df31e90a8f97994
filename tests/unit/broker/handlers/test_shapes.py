"""The two shapes of a handler."""

from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, get_type_hints

import pytest

from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.coordinator.soon import Soon
from barnabas.protocol.steps import Steps


@pytest.mark.parametrize("row", API_TABLE, ids=lambda row: row.api.name)
def test_handler_returns_a_response_or_a_future_or_takes_steps(row: ApiRow) -> None:
    handle: Any = row.module.handle
    assert not iscoroutinefunction(handle)
    response: Any = row.api.response
    returned = get_type_hints(handle)["return"]
    steps = Steps[response], Steps[response | None]
    if isgeneratorfunction(handle):
        assert returned in steps
    else:
        assert returned in (
            response,
            # The protocol has no answer.
            type(None),
            Soon[response],
            *(Soon[each] | one for each in (response, response | None) for one in steps),
        )
