"""DescribeConfigs (key 32): the value of each key, its source and its synonyms.

Errors by resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST. v1 has
synonyms, v3 types and documentation, v4 is flexible.
"""

from collections.abc import Hashable
from contextlib import suppress

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.config_admin import Resource, parse_broker_id
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.topic_names import check_name
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.broker.security.rights import (
    CLUSTER,
    DESCRIBE_CONFIGS,
    GROUP,
    TOPIC,
    Each,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.config.describe import (
    Entry,
    Source,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from barnabas.config.group_keys import readable_group_overrides
from barnabas.coordinator.soon import in_task
from barnabas.protocol.config_resources import ConfigResourceType
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
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

_TYPES = frozenset(ConfigResourceType)
_OF_CLUSTER = _TYPES - {ConfigResourceType.TOPIC, ConfigResourceType.GROUP}


def is_of_topic(resource: Resource) -> bool:
    """Return whether the resource is a topic."""
    return resource.resource_type == ConfigResourceType.TOPIC


def is_of_group(resource: Resource) -> bool:
    """Return whether the resource is a group."""
    return resource.resource_type == ConfigResourceType.GROUP


def is_of_cluster(resource: Resource) -> bool:
    """Return whether the resource is a broker, its loggers, or client metrics."""
    return resource.resource_type in _OF_CLUSTER


def _is_known(resource: Resource) -> bool:
    """Return whether the resource is a broker, its loggers, or client metrics."""
    if resource.resource_type not in _TYPES:
        # As in Kafka, the whole request is refused.
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return is_of_cluster(resource)


def _refused(
    resource: DescribeConfigsResource, code: ErrorCode, _version: int
) -> DescribeConfigsResult:
    return _refusal(resource, code, code.text)


RIGHTS = Rights(
    each=Each(
        "resources",
        (
            Need(DESCRIBE_CONFIGS, CLUSTER, when=_is_known),
            Need(DESCRIBE_CONFIGS, TOPIC, "resource_name", when=is_of_topic),
            Need(DESCRIBE_CONFIGS, GROUP, "resource_name", when=is_of_group),
        ),
        _refused,
        "results",
    )
)


def handle(
    configs: Configs,
    cache: MetadataCache,
    broker_id: int,
    loggers: LoggerLevels,
    request: DescribeConfigsRequest,
    _context: RequestContext,
) -> Steps[DescribeConfigsResponse]:
    """Describe or refuse each resource on its own, once."""
    resources: dict[Hashable, DescribeConfigsResource] = {}
    for resource in request.resources:
        _is_known(resource)
        resources.setdefault(_identity(resource), resource)
        yield None
    results = []
    for resource in resources.values():
        name = resource.resource_name
        yield None
        try:
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                found = _describe_loggers(broker_id, loggers, name)
            else:
                kind = ConfigResourceType(resource.resource_type)
                entries = yield from _entries(configs, cache, broker_id, kind, name)
                found = [_result(entry, request) for entry in entries]
        except KafkaError as error:
            results.append(_refusal(resource, error.code, error.message))
            continue
        if resource.configuration_keys:
            wanted = set(resource.configuration_keys)
            found = [config for config in found if config.name in wanted]
        results.append(
            DescribeConfigsResult(
                resource_type=resource.resource_type, resource_name=name, configs=found
            )
        )
    return DescribeConfigsResponse(results=results)


def _identity(resource: DescribeConfigsResource) -> Hashable:
    """Return what a repeated resource has in common: a broker has many names, as 1, 01 and +1."""
    name: str | int = resource.resource_name
    if resource.resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        with suppress(ValueError):
            name = parse_broker_id(resource.resource_name)
    return resource.resource_type, name, frozenset(resource.configuration_keys or ())


def _entries(
    configs: Configs, cache: MetadataCache, broker_id: int, kind: ConfigResourceType, name: str
) -> Steps[list[Entry]]:
    dynamic = configs.broker
    match kind:
        case ConfigResourceType.TOPIC:
            check_name(name)
            if cache.topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic((yield in_task(configs.overrides(name))), dynamic)
        case ConfigResourceType.BROKER if not name:
            return describe_cluster_defaults(dynamic)
        case ConfigResourceType.BROKER:
            _require_this_broker(broker_id, name, f"{broker_id} or empty string,")
            return describe_broker(dynamic)
        case ConfigResourceType.GROUP if not name:
            raise _invalid("Group name must not be empty")
        case _ if not name:
            raise _invalid(f"The name of a {kind.name} resource must not be empty")
        case ConfigResourceType.GROUP:
            stored = (yield in_task(configs.readable("groups", [name])))[name]
            overrides, _ = readable_group_overrides(stored or {})
            return describe_group(overrides, dynamic)
        case _:
            # Client metrics have no keys before KIP-714 is served.
            return []


def _describe_loggers(
    broker_id: int, loggers: LoggerLevels, name: str
) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise _invalid("Broker id must not be empty")
    _require_this_broker(broker_id, name, str(broker_id))
    return [
        DescribeConfigsResourceResult(
            name=logger,
            value=level,
            read_only=False,
            config_source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=[],
        )
        for logger, level in loggers.levels().items()
    ]


def _require_this_broker(broker_id: int, name: str, expected: str) -> None:
    try:
        asked = parse_broker_id(name)
    except ValueError:
        raise _invalid(f"Broker id must be an integer, but it is: {name}") from None
    if asked != broker_id:
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
