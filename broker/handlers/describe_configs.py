"""DescribeConfigs (key 32): what is set, where each value comes from, and what it stands over.

Errors by resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST. v1 has
synonyms, v3 types and documentation, v4 is flexible.
"""

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.config_admin import parse_broker_id
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.topic_names import check_name
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.broker.server.context import RequestContext
from barnabas.config.describe import (
    Entry,
    Source,
    describe_broker,
    describe_cluster_defaults,
    describe_topic,
)
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_configs import (
    API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ["API", "SERVES", "DescribeConfigsHandler", "error_response"]

SERVES = range(1, 5)


class DescribeConfigsHandler:
    """Each resource is described or refused on its own."""

    def __init__(
        self, configs: Configs, cache: MetadataCache, broker_id: int, loggers: LoggerLevels
    ) -> None:
        self._configs = configs
        self._cache = cache
        self._broker_id = broker_id
        self._loggers = loggers

    async def handle(
        self,
        request: DescribeConfigsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> DescribeConfigsResponse:
        for resource in request.resources:
            if resource.resource_type not in ResourceType.__members__.values():
                raise KafkaError(ErrorCode.INVALID_REQUEST)
        return DescribeConfigsResponse(
            results=[await self._describe(each, request) for each in request.resources]
        )

    async def _describe(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        try:
            if resource.resource_type == ResourceType.BROKER_LOGGER:
                configs = self._describe_loggers(resource.resource_name)
            else:
                configs = [
                    _result(entry, request)
                    for entry in await self._entries(
                        ResourceType(resource.resource_type), resource.resource_name
                    )
                ]
        except KafkaError as error:
            return _refusal(resource, error.code, error.message)
        if resource.configuration_keys:
            wanted = set(resource.configuration_keys)
            configs = [config for config in configs if config.name in wanted]
        return DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )

    async def _entries(self, kind: ResourceType, name: str) -> list[Entry]:
        dynamic = self._configs.broker
        match kind:
            case ResourceType.TOPIC:
                check_name(name)
                if self._cache.topic(name) is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return describe_topic(await self._configs.overrides(name), dynamic)
            case ResourceType.BROKER if not name:
                return describe_cluster_defaults(dynamic)
            case ResourceType.BROKER:
                self._require_this_broker(name, f"{self._broker_id} or empty string,")
                return describe_broker(dynamic)
            case _ if not name:
                raise _invalid(f"The name of a {kind.name} resource must not be empty")
            case _:
                # Groups have no keys until KIP-848 is served, client metrics until KIP-714 is.
                return []

    def _describe_loggers(self, name: str) -> list[DescribeConfigsResourceResult]:
        if not name:
            raise _invalid("Broker id must not be empty")
        self._require_this_broker(name, str(self._broker_id))
        return [
            DescribeConfigsResourceResult(
                name=logger,
                value=level,
                read_only=False,
                config_source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
                is_sensitive=False,
                synonyms=[],
            )
            for logger, level in self._loggers.levels().items()
        ]

    def _require_this_broker(self, name: str, expected: str) -> None:
        try:
            broker_id = parse_broker_id(name)
        except ValueError:
            raise _invalid(f"Broker id must be an integer, but it is: {name}") from None
        if broker_id != self._broker_id:
            raise _invalid(f"Unexpected broker id, expected {expected} but received {name}")


def _result(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=each.name,
                value=None if entry.sensitive else each.value,
                source=each.source,
            )
            for each in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _refusal(
    resource: DescribeConfigsResource, code: ErrorCode, message: str | None
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def error_response(
    request: DescribeConfigsRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> DescribeConfigsResponse:
    """The error for every resource."""
    return DescribeConfigsResponse(
        results=[_refusal(resource, code, code.text) for resource in request.resources]
    )
