"""The levers of brokers that were started with --faults, as buttons next to the timeline."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from barnabas.config.key import INT_MAX
from barnabas.console.changes import Change, Done, Plan
from barnabas.console.console import Console, parameter, whole_number
from barnabas.operations.broker_http import HttpAccess

_OF_BROKERS: Final = {
    "kill": "will be killed (SIGKILL), and stays down until it is started",
    "stop": "will be stopped in order, and stays down until it is started",
    "start": "will be started",
    "pause": "will be paused (SIGSTOP)",
    "resume": "will run again (SIGCONT)",
    "expire-session": "will lose its session with the metadata store",
}
_CUTS: Final = {
    "clients": "its clients",
    "store": "the metadata store",
    "all": "clients, other brokers and the metadata store",
}
_ON_REQUESTS: Final = {
    "hold": "The next one is held until the lever is released",
    "delay": "Each is delayed",
    "error": "Each is refused",
}
_CONDITIONS: Final = ("topic", "transactional_id", "client_id")


class Pull(NamedTuple):
    """A request to the endpoint of the faults, and what it does."""

    sentence: str
    path: str
    body: dict[str, Any]


class BrokerState(NamedTuple):
    """A broker as the endpoint of the faults sees it."""

    broker: int
    address: str
    state: str


async def states(console: Console) -> list[BrokerState]:
    """Return the brokers. Raises OSError."""
    answer = await _ask(console, "/v1/brokers")
    return [
        BrokerState(int(each["broker"]), str(each["address"]), str(each["state"]))
        for each in answer["brokers"]
    ]


async def _ask(console: Console, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return the response of the endpoint. Raises OSError without one, ValueError for a refusal."""
    settings = console.settings
    if settings.faults is None:
        raise HTTPException(404, "Start brokers and console with --faults.")
    access = HttpAccess(settings.faults_token)
    sent = None if body is None else json.dumps(body).encode()
    loop = asyncio.get_running_loop()
    status, answer = await loop.run_in_executor(
        None, access.ask, f"http://{settings.faults}{path}", sent
    )
    try:
        found = json.loads(answer)
        if status != 200:
            raise HTTPException(409, f"The lever was refused: {found['error']}")
    except (LookupError, TypeError, ValueError) as error:
        raise OSError(f"{settings.faults} does not serve levers") from error
    return found


def _pull(request: Request) -> Pull:
    """Return the request for the parameters of a page. Raises ValueError."""
    do = parameter(request, "do")
    if do in _OF_BROKERS:
        broker = whole_number(request, "broker", 0, most=INT_MAX)
        return Pull(f"Broker {broker} {_OF_BROKERS[do]}.", f"/v1/brokers/{broker}/{do}", {})
    if do.startswith("cut-") and (off := do.removeprefix("cut-")) in _CUTS:
        broker = whole_number(request, "broker", 0, most=INT_MAX)
        sentence = f"Broker {broker} will be cut off from {_CUTS[off]}, until links are healed."
        return Pull(sentence, "/v1/cut", {"brokers": [broker], "off": off})
    if do == "heal":
        return Pull("All links that were cut will be whole again.", "/v1/heal", {})
    if do == "jump":
        seconds = whole_number(request, "seconds", 0, least=1, most=86_400)
        sentence = f"The clock by which transactions time out will jump by {seconds} s."
        return Pull(sentence, "/v1/jump-transaction-clock", {"seconds": seconds})
    if do == "release":
        number = whole_number(request, "lever", 0, most=10**9 - 1)
        sentence = f"Lever {number} will be released: requests go to their handler again."
        return Pull(sentence, f"/v1/levers/{number}/release", {})
    if do in _ON_REQUESTS:
        return _on_requests(do, request)
    raise ValueError(f"there is no lever {do}")


def _on_requests(do: str, request: Request) -> Pull:
    body: dict[str, Any] = {"api": parameter(request, "api").strip()}
    for name in _CONDITIONS:
        if value := request.query_params.get(name, ""):
            body[name] = value
    where = "".join(f", {name} {body[name]}" for name in _CONDITIONS if name in body)
    what = _ON_REQUESTS[do]
    if do == "delay":
        body["seconds"] = whole_number(request, "seconds", 1, least=1, most=3_600)
        what += f" by {body['seconds']} s"
    if do == "error":
        body["code"] = parameter(request, "code").strip()
        what += f" with {body['code']}"
    return Pull(f"Requests of {body['api']}{where}: {what}.", f"/v1/{do}", body)


async def _plan(console: Console, request: Request) -> Plan:
    pull = _pull(request)
    await states(console)
    return Plan(pull.sentence, "Pull the lever", [], [], [pull.path, pull.body])


async def _carry_out(console: Console, request: Request, _facts: Any) -> Done:
    pull = _pull(request)
    await _ask(console, pull.path, pull.body)
    return Done(f"Done. {pull.sentence}", "/timeline", {})


PAGES = (Change("/lever", "Lever", _plan, _carry_out).page(),)
