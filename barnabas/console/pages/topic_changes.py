"""The changes of topics: create and delete, partitions and configuration, and one more record."""

from typing import Any, Final

from starlette.requests import Request

from barnabas.client.admin import Admin
from barnabas.client.cluster import TopicInfo
from barnabas.client.producer import Producer
from barnabas.config.key import INT_MAX
from barnabas.console.changes import Change, Done, Field, Plan
from barnabas.console.console import Console, parameter, whole_number
from barnabas.console.reads import disks, topic_named
from barnabas.console.render import NONE, size
from barnabas.operations.quantities import kafka_value
from barnabas.protocol.config_resources import (
    CONFIG_SOURCES,
    ConfigOperation,
    ConfigResourceType,
)
from barnabas.protocol.types import uuid_text

_NAME: Final = Field("name", "Topic", is_needed=True, is_fixed=True)


def _lines(request: Request, name: str) -> dict[str, str]:
    """Return the lines NAME=VALUE of a parameter."""
    found = {}
    for line in request.query_params.get(name, "").splitlines():
        key, equals, value = line.partition("=")
        if line.strip() and not (equals and key.strip()):
            raise ValueError(f"{line!r} is not NAME=VALUE")
        if line.strip():
            found[key.strip()] = value.strip()
    return found


# -- create and delete -----------------------------------------------------------------------------


def _new(request: Request) -> dict[str, Any]:
    """Return the arguments of `Admin.create_topic`."""
    configs = _lines(request, "configs")
    return {
        "name": parameter(request, "name").strip(),
        "partitions": whole_number(request, "partitions", -1, least=1, most=INT_MAX),
        "replication_factor": whole_number(request, "replicas", -1, least=1, most=2**15 - 1),
        "configs": {key: kafka_value(key, value) for key, value in configs.items()},
    }


async def _plan_creation(console: Console, request: Request) -> Plan:
    new = _new(request)
    checked = await Admin(console.cluster).create_topic(**new, validate_only=True)

    def told(given: int, found: int) -> str:
        # Brokers before 2.4 do not tell what they would take.
        number = found if given < 0 else given
        return str(number) if number > 0 else "the default of the brokers"

    return Plan(
        f"The topic {new['name']} will be created.",
        "Create the topic",
        ["What", "Value"],
        [
            ["Partitions", told(new["partitions"], checked.num_partitions)],
            ["Replicas", told(new["replication_factor"], checked.replication_factor)],
            *([key, value] for key, value in new["configs"].items()),
        ],
        new,
    )


async def _create(console: Console, _request: Request, facts: Any) -> Done:
    row = await Admin(console.cluster).create_topic(**facts)
    await console.cluster.refresh_after_now()
    count = row.num_partitions
    partitions = "" if count < 1 else f" with {count} partition(s)"
    return Done(f"{row.name} was created{partitions}.", "/topic", {"name": row.name})


async def _topic(console: Console, request: Request) -> TopicInfo:
    """Return the topic of a request: as it is now, and not a second ago, once it is confirmed."""
    if request.method == "POST":
        await console.cluster.refresh_after_now()
    return await topic_named(console, parameter(request, "name"))


async def _plan_deletion(console: Console, request: Request) -> Plan:
    topic = await _topic(console, request)
    bytes_ = (await disks(console)).size(topic)
    id = uuid_text(topic.topic_id)
    return Plan(
        f"The topic {topic.name} and all records in it will be deleted. They cannot be brought "
        "back.",
        "Delete the topic",
        ["Topic", "Id", "Partitions", "Size of all replicas"],
        [[topic.name, id, str(len(topic.leaders)), size(bytes_)]],
        [topic.name, id],
    )


async def _delete(console: Console, request: Request, _facts: Any) -> Done:
    name = parameter(request, "name")
    await Admin(console.cluster).delete_topic(name)
    await console.cluster.refresh_after_now()
    return Done(f"{name} was deleted.", "/topics", {})


# -- partitions and configuration ------------------------------------------------------------------


async def _plan_partitions(console: Console, request: Request) -> Plan:
    topic = await _topic(console, request)
    count = whole_number(request, "count", 0, least=1, most=INT_MAX)
    await Admin(console.cluster).create_partitions(topic.name, count, validate_only=True)
    return Plan(
        f"{topic.name} will have {count} partitions in place of {len(topic.leaders)}. Records with "
        "a key go to other partitions than those before them, and partitions cannot be taken away.",
        f"Add {count - len(topic.leaders)} partition(s)",
        ["Topic", "Partitions before", "Partitions after"],
        [[topic.name, str(len(topic.leaders)), str(count)]],
        [uuid_text(topic.topic_id), len(topic.leaders), count],
    )


async def _add_partitions(console: Console, request: Request, facts: Any) -> Done:
    name, (_, _, count) = parameter(request, "name"), facts
    await Admin(console.cluster).create_partitions(name, count)
    await console.cluster.refresh_after_now()
    return Done(f"{name} has {count} partitions.", "/topic", {"name": name})


_KINDS: Final = (("set", "to the value"), ("delete", "to the default"))


def _config_change(request: Request) -> tuple[str, ConfigOperation, str | None]:
    key, way = parameter(request, "key").strip(), request.query_params.get("way", "set")
    if way not in dict(_KINDS):
        raise ValueError(f"{way} is no way to change a key")
    if way == "delete":
        return key, ConfigOperation.DELETE, None
    value = request.query_params.get("value", "").strip()
    return key, ConfigOperation.SET, kafka_value(key, value)


async def _plan_config(console: Console, request: Request) -> Plan:
    name, change = parameter(request, "name"), _config_change(request)
    key, _, value = change
    admin = Admin(console.cluster)
    rows = await admin.describe_configs(ConfigResourceType.TOPIC, name)
    found = next((row for row in rows if row.name == key), None)
    if found is None:
        raise ValueError(f"topics have no key {key}")
    await admin.alter_configs(ConfigResourceType.TOPIC, name, [change], validate_only=True)
    source = CONFIG_SOURCES.get(found.config_source, "unknown")
    before = NONE if found.is_sensitive or found.value is None else found.value
    after = "the default" if value is None else value
    return Plan(
        f"{key} of the topic {name} will be changed.",
        "Change the configuration",
        ["Key", "Before", "From", "After"],
        [[key, before, source, after]],
        [before, source, *change],
    )


async def _alter_config(console: Console, request: Request, _facts: Any) -> Done:
    name, change = parameter(request, "name"), _config_change(request)
    await Admin(console.cluster).alter_configs(ConfigResourceType.TOPIC, name, [change])
    sentence = f"{change[0]} of the topic {name} was changed."
    return Done(sentence, "/configs", {"kind": "topic", "name": name})


# -- one record ------------------------------------------------------------------------------------

_VALUES: Final = (("text", "the text below"), ("null", "nothing (a tombstone)"))


async def _plan_record(console: Console, request: Request) -> Plan:
    given = request.query_params
    topic = await topic_named(console, parameter(request, "name"))
    index = None
    if given.get("partition", "").strip():
        index = whole_number(request, "partition", 0, most=INT_MAX)
        if index not in topic.leaders:
            raise ValueError(f"{topic.name} has no partition {index}")
    what = given.get("what", "text")
    if what not in dict(_VALUES):
        raise ValueError(f"{what} is no value")
    # Browsers end each line of a form with both characters.
    value = None if what == "null" else given.get("value", "").replace("\r\n", "\n")
    key, headers = given.get("key") or None, _lines(request, "headers")
    where = "one of its partitions" if index is None else f"partition {index}"
    return Plan(
        f"One record will be written to {topic.name}, in {where}. It cannot be taken back.",
        "Write the record",
        ["Part", "Content"],
        [
            ["Key", NONE if key is None else key],
            *([f"Header {name}", text] for name, text in headers.items()),
            ["Value", NONE if value is None else value],
        ],
        [uuid_text(topic.topic_id), index, key, value, headers],
    )


async def _produce(console: Console, request: Request, facts: Any) -> Done:
    name, (_, index, key, value, headers) = parameter(request, "name"), facts
    async with Producer(console.cluster) as producer:
        written = await (
            await producer.send(
                name,
                None if value is None else value.encode(),
                key=None if key is None else key.encode(),
                headers=tuple((header, text.encode()) for header, text in headers.items()),
                partition=index,
            )
        )
    place = {"topic": name, "partition": str(written.partition), "offset": str(written.offset)}
    sentence = f"The record is at offset {written.offset} of {name}-{written.partition}."
    if console.settings.show_records:
        return Done(sentence, "/records", place)
    return Done(sentence, "/topic", {"name": name})


PAGES = (
    Change(
        "/topic/create",
        "Create a topic",
        _plan_creation,
        _create,
        fields=(
            Field("name", "Name", is_needed=True),
            Field("partitions", "Partitions (none: the default)"),
            Field("replicas", "Replicas (none: the default)"),
            Field("configs", "Configuration, lines KEY=VALUE", is_long=True),
        ),
    ).page(),
    Change("/topic/delete", "Delete a topic", _plan_deletion, _delete).page(),
    Change(
        "/topic/partitions",
        "Add partitions to a topic",
        _plan_partitions,
        _add_partitions,
        fields=(_NAME, Field("count", "Partitions afterwards", is_needed=True)),
    ).page(),
    Change(
        "/topic/config",
        "Change the configuration of a topic",
        _plan_config,
        _alter_config,
        fields=(
            _NAME,
            Field("key", "Key", is_needed=True),
            Field("way", "Set it", "set", _KINDS),
            Field("value", "Value, such as 7d or 512MB"),
        ),
    ).page(),
    Change(
        "/topic/produce",
        "Write a record",
        _plan_record,
        _produce,
        fields=(
            _NAME,
            Field("partition", "Partition (none: by the key)"),
            Field("key", "Key (none: without)"),
            Field("what", "Value", "text", _VALUES, is_needed=True),
            Field("value", "Text", is_long=True),
            Field("headers", "Headers, lines NAME=VALUE", is_long=True),
        ),
    ).page(),
)
