"""Changes of the cluster: a dry run with a confirmation, and then exactly what was confirmed.

The form of a confirmation has the facts that the person has seen, with a token that only this
process can make.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.connection import AuthenticationError
from barnabas.console.console import CLUSTER_ERRORS, Console, Page
from barnabas.console.forms import form_fields
from barnabas.protocol.errors import KafkaError

_MOST_BYTES: Final = 2 << 20
"""The size of a form: a reset names thousands of partitions."""
_FIELDS: Final = {"facts", "issued", "token"}
_MOST_LOGGED: Final = 500
"""The letters of a request in the log: it may have a record in it."""
_LOG: Final = logging.getLogger(__name__)


class Plan(NamedTuple):
    """A dry run: the sentence that a person confirms, with the rows of a table."""

    sentence: str
    button: str
    columns: list[str]
    rows: list[list[str]]
    facts: Any
    """All facts that the change depends on, as JSON; `carry_out` gets them back."""


class Field(NamedTuple):
    """A field of the form that asks for the parameters of a plan."""

    name: str
    label: str
    default: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Values with their texts, to choose from."""
    is_needed: bool = False
    is_long: bool = False
    """Whether it has several lines."""
    is_fixed: bool = False
    """Whether the link to the form gives it."""


class Done(NamedTuple):
    """A change that was made, in a sentence, and where to look at the result."""

    sentence: str
    path: str
    parameters: dict[str, str]


class Change(NamedTuple):
    """A kind of change: `plan` is the dry run of a request, and `carry_out` does it.

    Both raise ValueError for what cannot be done. Before it is carried out, the plan is made again,
    and must have the facts that the person saw.
    """

    path: str
    title: str
    plan: Callable[[Console, Request], Awaitable[Plan]]
    carry_out: Callable[..., Awaitable[Done]]
    """Called with console, request and facts, and with what was typed, by name."""
    form: str = "change.html"
    """A template with another form than that of `fields`."""
    needed: tuple[str, ...] = ()
    """The parameters of the plan. While they are missing, the page shows the form."""
    fields: tuple[Field, ...] = ()
    is_planned_again: bool = True
    """False if `carry_out` compares the facts itself, and raises `changed()`."""
    passwords: tuple[tuple[str, str], ...] = ()
    """Names and labels of the passwords that a person types to confirm: no address has them."""

    def page(self) -> Page:
        return Page(self.path, self.answer, methods=("GET", "POST"))

    async def answer(self, console: Console, request: Request) -> Response:
        try:
            if request.method == "POST":
                return await self._confirmed(console, request)
            return await self._ask(console, request)
        except CLUSTER_ERRORS:
            raise
        except ValueError as error:
            raise HTTPException(400, f"{error}.") from error

    async def _ask(self, console: Console, request: Request) -> Response:
        needed = {*self.needed, *(each.name for each in self.fields if each.is_needed)}
        given = all(request.query_params.get(each) for each in needed)
        plan = trouble = None
        try:
            plan = await self.plan(console, request) if given else None
        except (HTTPException, KafkaError, ValueError) as error:
            if not needed or isinstance(error, AuthenticationError):
                raise
            # With the form: a person corrects what was typed.
            trouble = console.trouble(error)
        facts = issued = token = ""
        if plan is not None:
            facts = json.dumps(plan.facts)
            issued, token = console.tokens.issue(_action(request), facts)
        return console.page(
            request,
            self.form,
            200 if trouble is None else trouble.status,
            title=self.title,
            trouble=trouble,
            fields=self.fields,
            given=request.query_params,
            plan=plan,
            facts=facts,
            issued=issued,
            token=token,
            passwords=self.passwords,
        )

    async def _confirmed(self, console: Console, request: Request) -> Response:
        names = {name for name, _ in self.passwords}
        form = await form_fields(request, _FIELDS | names, _MOST_BYTES)
        if form is None:
            raise HTTPException(403, "The form has no valid token of this console: begin again.")
        console.tokens.take(_action(request), form["facts"], form["issued"], form["token"])
        person = console.person(request)
        _LOG.warning("%s asks for: %s", person, _action(request)[:_MOST_LOGGED])
        facts = json.loads(form["facts"])
        if self.is_planned_again and (await self.plan(console, request)).facts != facts:
            raise changed()
        typed = {name: form[name] for name in names}
        done = await self.carry_out(console, request, facts, **typed)
        # A name from the cluster must not begin a new line of the log.
        _LOG.warning("%s has done: %r", person, done.sentence)
        console.results.forget()
        return console.page(request, "done.html", title=self.title, done=done)


def changed() -> HTTPException:
    """Return the error for a change whose facts are not true any more."""
    return HTTPException(409, "The cluster has changed since: nothing was done, look again.")


def _action(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}"
