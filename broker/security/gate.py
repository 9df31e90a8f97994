"""The gate: it asks the authorizer for the rights of each request, before its handler runs.

Without an authorizer there is no gate, and a route has the bare handler.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from types import GeneratorType
from typing import Any, Final

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.operations import NOT_ASKED
from barnabas.broker.security.authorizer import Action, Authorizer
from barnabas.broker.security.rights import ANY_NAME, ITSELF, Need, Operations, Rights
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.broker.server.slices import Steps
from barnabas.config.key import ConfigError
from barnabas.coordinator.soon import spawn
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
)

AT_ONCE: Final = 100
"""The elements of a request that are asked for in one go."""


class Gate:
    """The guard of a broker's routes."""

    def __init__(self, authorizer: Authorizer, cache: MetadataCache) -> None:
        self.authorizer = authorizer
        self.cache = cache

    def guard(self, route: Route, rights: Rights | None) -> Route:
        """Return the route with its handler behind the gate.

        Raises ConfigError for a route without a declaration.
        """
        if rights is None:
            raise ConfigError(
                f"authorizer.class.name cannot be used: {route.api.name} declares no rights yet"
            )
        if rights == Rights():
            return route
        return route._replace(handle=_Guarded(self, route, rights).handle)


class _Need:
    """A need, prepared for its API."""

    __slots__ = ("_field", "_id_field", "_unless", "any", "error", "operation", "type", "when")

    def __init__(self, need: Need) -> None:
        self.operation, self.type, self._field, self._id_field, self.when, unless, _ = need
        self._unless = None if unless is None else _Need(unless)
        self.any = need.field == ANY_NAME
        self.error = need.error

    def name(self, subject: Any, cache: MetadataCache) -> str | None:
        """Return the name of the resource; None if nothing is needed."""
        if self.type is ResourceType.CLUSTER:
            return CLUSTER_NAME
        if self._field == ITSELF:
            name: str | None = subject
        else:
            name = getattr(subject, self._field)
        if not name and self._id_field:
            return cache.topic_name(getattr(subject, self._id_field))
        return name

    def is_met(
        self, asker: "_Guarded", subject: Any, context: RequestContext, *, log_denied: bool = True
    ) -> bool:
        """Return whether the client has the right that a request or an element needs."""
        if self.when is not None and not self.when(subject):
            return True
        unless = self._unless
        if unless is not None and unless.is_met(asker, subject, context, log_denied=False):
            return True
        if self.any:
            return asker.allows_any(context, self.operation, self.type)
        name = self.name(subject, asker.cache)
        return name is None or asker.allows(
            context, self.operation, self.type, name, log_denied=log_denied
        )


class _Guarded:
    """A route behind the gate."""

    def __init__(self, gate: Gate, route: Route, rights: Rights) -> None:
        self._authorizer = gate.authorizer
        self.cache = gate.cache
        self._route = route
        self._inner = route.handle
        self._api = route.api.name
        self._rights = rights
        self._whole = tuple(map(_Need, rights.whole))
        each, shown = rights.each, rights.shown
        self._needs = () if each is None else tuple(map(_Need, each.needs))
        self._elements = None if each is None else each.elements
        self._shown = None if shown is None else _Need(shown.need)
        self._inside = bool(rights.inside)
        self._finishes = bool(shown or rights.operations or rights.again)

    # -- asking -----------------------------------------------------------------------------------

    def allows(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        return self._authorizer.allows(
            context.principal,
            context.client_host,
            self._api,
            Action(operation, resource_type, name),
            log_denied=log_denied,
        )

    def allows_any(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return self._authorizer.allows_any(
            context.principal, context.client_host, self._api, operation, resource_type
        )

    def _require(self, request: Any, context: RequestContext) -> None:
        """Raise KafkaError unless the client has the rights for the whole request."""
        for need in self._whole:
            if not need.is_met(self, request, context):
                raise KafkaError(need.error)

    def _refusal(self, element: Any, context: RequestContext) -> ErrorCode | None:
        for need in self._needs:
            if not need.is_met(self, element, context):
                return need.error
        return None

    # -- handling ---------------------------------------------------------------------------------

    def handle(self, request: Any, context: RequestContext) -> Any:
        """Pass a request to its handler, as far as it is allowed."""
        if self._inside:
            context.asker = self
        if self._whole:
            self._require(request, context)
        if self._elements is not None:
            elements = getattr(request, self._elements) or ()
            if len(elements) > AT_ONCE:
                return self._handle_many(request, elements, context)
            refused = {}
            for number, element in enumerate(elements):
                code = self._refusal(element, context)
                if code is not None:
                    refused[number] = code
            if refused:
                return self._handle_partly(request, elements, refused, context)
        if self._finishes:
            return self._finished(request, self._inner(request, context), context)
        return self._inner(request, context)

    def _handle_many(self, request: Any, elements: Any, context: RequestContext) -> Steps[Any]:
        refused = {}
        for number, element in enumerate(elements):
            code = self._refusal(element, context)
            if code is not None:
                refused[number] = code
            yield None
        if refused:
            return (yield from self._handle_partly(request, elements, refused, context))
        return self._finished(request, self._inner(request, context), context)

    def _handle_partly(
        self, request: Any, elements: Any, refused: Mapping[int, ErrorCode], context: RequestContext
    ) -> Steps[Any]:
        """Let the handler answer what is not refused."""
        each = self._rights.each
        assert each is not None
        kept, answers = [], []
        for number, element in enumerate(elements):
            yield None
            code = refused.get(number, each.others)
            if code is None:
                kept.append(element)
                continue
            answer = each.refused(element, code, context.api_version)
            if type(answer) is GeneratorType:
                answer = yield from answer
            answers.append(answer)
        allowed = copy.copy(request)
        setattr(allowed, each.elements, kept)
        try:
            if each.others is not None:
                raise KafkaError(ErrorCode.NONE)
            outcome = self._inner(allowed, context)
        except KafkaError as error:
            outcome = self._failed(allowed, error, context)

        def merge(response: Any) -> Any:
            if response is None:
                # The protocol has no answer (Produce with acks=0), so that a refusal closes.
                raise CloseConnection
            merged = [*getattr(response, each.answers), *answers]
            setattr(response, each.answers, merged)
            return response

        return self._finished(allowed, outcome, context, merge)

    def _failed(self, request: Any, error: KafkaError, context: RequestContext) -> Any:
        """Return the answer to a request that its handler refuses as a whole."""
        version = context.api_version
        code = downgrade(context.api_key, version, error.code)
        return self._route.refuse(request, code, version)

    # -- finishing --------------------------------------------------------------------------------

    def _finished(
        self,
        request: Any,
        outcome: Any,
        context: RequestContext,
        merge: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return an outcome of the handler with the changes of the gate.

        `merge` is given for a request of which elements were refused: a failure of the others is no
        failure of the whole request.
        """
        if isinstance(outcome, Awaitable):
            later = self._later(request, outcome, context, merge)
            # A future is cancelled with its connection; a coroutine runs to its end.
            return spawn(later) if isinstance(outcome, asyncio.Future) else later
        return self._finishing(request, outcome, context, merge)

    def _finishing(
        self,
        request: Any,
        outcome: Any,
        context: RequestContext,
        merge: Callable[[Any], Any] | None,
    ) -> Steps[Any]:
        try:
            while type(outcome) is GeneratorType:
                outcome = yield from outcome
        except KafkaError as error:
            if merge is None:
                raise
            refusal = self._failed(request, error, context)
            return self._finished(request, refusal, context, merge)
        if isinstance(outcome, Awaitable):
            return self._finished(request, outcome, context, merge)
        if merge is not None:
            outcome = merge(outcome)
        if outcome is not None:
            yield from self._hide(outcome, context)
            yield from self._fill_in(outcome, context)
        return outcome

    async def _later(
        self,
        request: Any,
        outcome: Awaitable[Any],
        context: RequestContext,
        merge: Callable[[Any], Any] | None,
    ) -> Any:
        try:
            found = await outcome
            if self._rights.again:
                self._require(request, context)
        except KafkaError as error:
            if merge is None:
                raise
            found = self._failed(request, error, context)
        return self._finishing(request, found, context, merge)

    def _hide(self, response: Any, context: RequestContext) -> Steps[None]:
        """Take out what the client may not see."""
        shown, need = self._rights.shown, self._shown
        if shown is None or need is None:
            return
        seen = []
        for element in getattr(response, shown.answers):
            if need.is_met(self, element, context, log_denied=False):
                seen.append(element)
            yield None
        setattr(response, shown.answers, seen)

    def _fill_in(self, response: Any, context: RequestContext) -> Steps[None]:
        for each in self._rights.operations:
            elements = getattr(response, each.answers) if each.answers else (response,)
            for element in elements:
                if getattr(element, each.field) != NOT_ASKED:
                    setattr(element, each.field, self._operations(each, element, context))
                yield None

    def _operations(self, declared: Operations, element: Any, context: RequestContext) -> int:
        """Return the operations that the client may perform, as bits (KIP-430)."""
        kind = declared.type
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else getattr(element, declared.name)
        if name is None:
            return NOT_ASKED
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[kind]
            if self.allows(context, operation, kind, name, log_denied=False)
        )
