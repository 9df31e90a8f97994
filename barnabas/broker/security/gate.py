"""The gate: it asks the authorizer for the rights of each request, before its handler runs.

Without an authorizer there is no gate, and a route has the bare handler.
"""

import copy
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.operations import NOT_ASKED
from barnabas.broker.cluster.peers import broker_id_of
from barnabas.broker.security.authorizer import Action, Authorizer
from barnabas.broker.security.rights import (
    ANY_NAME,
    DESCRIBE,
    ITSELF,
    NOTHING,
    OF_BROKERS,
    Need,
    Operations,
    Rights,
)
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.coordinator.soon import settle
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from barnabas.protocol.schema import Encoded
from barnabas.protocol.steps import Steps
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.matcher import slot
from barnabas.security.acl.rules import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
)
from barnabas.security.principal import Principal

Decided = Mapping[int, Mapping[str, bool]]
"""The earlier decisions about a client."""
AT_ONCE: Final = 100
"""The elements of a request that are asked for in one go."""
BEFORE_AUTHENTICATION: Final = frozenset(
    module.API.key for module in (api_versions, sasl_handshake, sasl_authenticate)
)
"""The APIs whose requests come before it is known who sends them."""
_AS_BROKER: Final = Action(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


class Gate:
    """The guard of a broker's routes."""

    def __init__(self, authorizer: Authorizer, cache: MetadataCache) -> None:
        self.authorizer = authorizer
        self.cache = cache

    def guard(self, route: Route, rights: Rights) -> Route:
        """Return the route with its handler behind the gate."""
        if rights == NOTHING:
            return route
        return route._replace(handle=_Guarded(self, route, rights).handle)

    def guard_shared(self, route: Route, rights: Rights) -> Route:
        """Return the route of a listener that brokers share with clients.

        Clients are served when this broker has its first metadata: other brokers come before.
        """
        handle = self.guard(route, rights).handle
        cache, is_early = self.cache, route.api.key in BEFORE_AUTHENTICATION

        def handled(request: Any, context: RequestContext) -> Any:
            # A super user's tools are clients too.
            context.inter_broker = broker_id_of(context.client_id) is not None and self.is_broker(
                context.principal, context.client_host
            )
            if context.inter_broker:
                # Brokers have no quotas.
                context.charge = None
            elif not (cache.ready or is_early):
                raise CloseConnection
            return handle(request, context)

        return route._replace(handle=handled)

    def guard_between(self, route: Route, _rights: Rights) -> Route:
        """Return the route of a listener that brokers have for themselves.

        Every request there needs ClusterAction, and nothing else.
        """
        if route.api.key in BEFORE_AUTHENTICATION:
            return route
        handle = _Guarded(self, route, OF_BROKERS, asks=False).handle
        # A request that repeats asks for the rights of clients only.
        return route._replace(handle=handle, again=None)

    def is_broker(self, principal: Principal, host: str) -> bool:
        """Return whether a principal may act as a broker. The audit log does not hear of it."""
        return self.authorizer.allows(principal, host, "", _AS_BROKER, log_denied=False)


class _Need:
    """A need, prepared for its API."""

    __slots__ = (
        "_id_field",
        "_unless",
        "_versions",
        "any",
        "error",
        "is_plain",
        "name_of",
        "operation",
        "slot",
        "type",
        "when",
    )

    def __init__(self, need: Need) -> None:
        self.operation, self.type, self._id_field = need.operation, need.type, need.id_field
        self.when, self._versions = need.when, need.versions
        self._unless = None if need.unless is None else _Need(need.unless)
        self.any = need.field == ANY_NAME
        self.error = need.error
        self.slot = slot(need.operation, need.type)
        self.name_of = _name_of(need)
        """Returns the name that a request or an element has."""
        self.is_plain = not self.any and need.versions is None and need.unless is None
        """Whether an earlier decision with the same name is enough."""

    def name(self, subject: Any, cache: MetadataCache) -> str | None:
        """Return the name of the resource; None if nothing is needed.

        Raises KafkaError for an unknown topic id.
        """
        name = self.name_of(subject)
        if not name and self._id_field:
            topic_id = getattr(subject, self._id_field)
            name = cache.topic_name(topic_id)
            if name is None and topic_id != ZERO_UUID:
                # The topic may become known before the handler looks.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    def is_met(
        self, asker: "_Guarded", subject: Any, context: RequestContext, *, log_denied: bool = True
    ) -> bool:
        """Return whether the client has the right that a request or an element needs.

        Raises KafkaError for an unknown topic id.
        """
        if self._versions is not None and context.api_version not in self._versions:
            return True
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


def _name_of(need: Need) -> Callable[[Any], str | None]:
    if need.type is ResourceType.CLUSTER:
        return lambda _: CLUSTER_NAME
    return (lambda subject: subject) if need.field == ITSELF else attrgetter(need.field)


class _Guarded:
    """A route behind the gate."""

    def __init__(self, gate: Gate, route: Route, rights: Rights, *, asks: bool = True) -> None:
        """Without `asks` the handler may do everything for the client, if the rights are there."""
        self._asks = asks
        self._authorizer = gate.authorizer
        self.cache = gate.cache
        self._route = route
        self._inner = route.handle
        self._api = route.api.name
        self._rights = rights
        self._whole = tuple(map(_Need, rights.whole))
        each, shown = rights.each, rights.shown
        self._needs = () if each is None else tuple(map(_Need, each.needs))
        only = self._needs[0] if len(self._needs) == 1 else None
        self._only = only if only is not None and only.is_plain and only.when is None else None
        """The need of each element, if there is only one and its name is enough."""
        self._elements = each.elements if each is not None and each.needs else None
        self._shown = None if shown is None else _Need(shown.need)
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
        decided = self._authorizer.decided(context.principal, context.client_host)
        known = decided.get(slot(operation, resource_type))
        if known is not None and known.get(name):
            return True
        return self._authorizer.allows(
            context.principal,
            context.client_host,
            self._api,
            Action(operation, resource_type, name),
            log_denied=log_denied,
        )

    def is_super_user(self, principal: Principal) -> bool:
        return self._authorizer.is_super_user(principal)

    def standing(self) -> object:
        return self._authorizer.standing()

    def allows_any(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return self._authorizer.allows_any(
            context.principal, context.client_host, self._api, operation, resource_type
        )

    def _require(self, request: Any, context: RequestContext, decided: Decided) -> None:
        """Raise KafkaError unless the client has the rights for the whole request."""
        for need in self._whole:
            if need.is_plain:
                if need.when is not None and not need.when(request):
                    continue
                known = decided.get(need.slot)
                if known is not None and (name := need.name_of(request)) and known.get(name):
                    continue
            if not need.is_met(self, request, context):
                raise KafkaError(need.error)

    def _refusal(self, element: Any, context: RequestContext, decided: Decided) -> ErrorCode | None:
        for need in self._needs:
            if need.is_plain:
                if need.when is not None and not need.when(element):
                    continue
                known = decided.get(need.slot)
                # A topic may have an id in place of a name.
                if known is not None and (name := need.name_of(element)) and known.get(name):
                    continue
            try:
                if not need.is_met(self, element, context):
                    return need.error
            except KafkaError as error:
                return error.code
        return None

    def _are_known(self, elements: Any, decided: Decided) -> bool:
        """Whether all elements were allowed before. False if their need is more than a name."""
        need = self._only
        if need is None:
            return False
        known: Mapping[Any, bool] | None = decided.get(need.slot)
        # A topic may have an id in place of a name.
        if known is None or "" in known:
            return False
        return all(map(known.get, map(need.name_of, elements)))

    # -- handling ---------------------------------------------------------------------------------

    def handle(self, request: Any, context: RequestContext) -> Any:
        """Pass the allowed part of a request to its handler."""
        if self._asks:
            context.asker = self
        decided = self._authorizer.decided(context.principal, context.client_host)
        if self._whole:
            self._require(request, context, decided)
        if self._elements is not None:
            elements = getattr(request, self._elements) or ()
            if len(elements) > AT_ONCE:
                return self._handle_many(request, elements, context)
            if not self._are_known(elements, decided):
                refused = {}
                for number, element in enumerate(elements):
                    code = self._refusal(element, context, decided)
                    if code is not None:
                        refused[number] = code
                if refused:
                    return self._handle_partly(request, elements, refused, context)
        if self._finishes:
            return self._finish(request, context)
        return self._inner(request, context)

    def _handle_many(self, request: Any, elements: Any, context: RequestContext) -> Steps[Any]:
        refused = {}
        for number, element in enumerate(elements):
            # The rules may change between the steps.
            decided = self._authorizer.decided(context.principal, context.client_host)
            code = self._refusal(element, context, decided)
            if code is not None:
                refused[number] = code
            yield None
        if refused:
            return (yield from self._handle_partly(request, elements, refused, context))
        return (yield from self._finish(request, context))

    def _handle_partly(
        self, request: Any, elements: Any, refused: Mapping[int, ErrorCode], context: RequestContext
    ) -> Steps[Any]:
        """Let the handler answer what is not refused."""
        each = self._rights.each
        assert each is not None
        kept, answers = [], []
        answered: set[str] = set()
        for number, element in enumerate(elements):
            yield None
            code = refused.get(number)
            if code is None:
                kept.append(element)
                continue
            if isinstance(element, str):
                # Handlers answer a repeated name once.
                if element in answered:
                    continue
                answered.add(element)
            answers.append((yield from each.refusal(element, code, context.api_version)))
        allowed = copy.copy(request)
        setattr(allowed, each.elements, kept)
        try:
            if not kept:
                # As in Kafka, a request of which nothing is left has no effect.
                raise KafkaError(ErrorCode.NONE)
            response = yield from settle(self._inner(allowed, context))
        except KafkaError as error:
            # A failure of the others is no failure of the whole request.
            response = yield from self._route.refuse(allowed, error.code, context.api_version)
        if response is None:
            # The protocol has no response (Produce with acks=0), so that a refusal closes.
            raise CloseConnection
        setattr(response, each.answers, [*getattr(response, each.answers), *answers])
        yield from self._hide(response, context)
        yield from self._fill_in(response, context)
        return response

    # -- finishing --------------------------------------------------------------------------------

    def _finish(self, request: Any, context: RequestContext) -> Steps[Any]:
        """Let the handler answer; take out of its response what the client may not see."""
        response = yield from settle(self._inner(request, context))
        if self._rights.again:
            decided = self._authorizer.decided(context.principal, context.client_host)
            self._require(request, context, decided)
        if response is not None:
            yield from self._hide(response, context)
            yield from self._fill_in(response, context)
        return response

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
                if type(element) is not Encoded and getattr(element, each.field) != NOT_ASKED:
                    setattr(element, each.field, self._operations(each, element, context))
                yield None

    def _operations(self, declared: Operations, element: Any, context: RequestContext) -> int:
        """Return the operations that the client may perform, as bits (KIP-430)."""
        kind = declared.type
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else getattr(element, declared.name)
        if name is None:
            return NOT_ASKED
        if kind is ResourceType.CLUSTER and not self.allows(context, DESCRIBE, kind, name):
            return 0
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[kind]
            if self.allows(context, operation, kind, name, log_denied=False)
        )
