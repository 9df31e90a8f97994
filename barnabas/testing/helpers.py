"""Helpers of `Broker` and `Cluster`: topics, records and groups in one line of a test."""

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.settings import ClientSettings
from barnabas.faults.arguments import check_number, check_text
from barnabas.testing.calls import TIMEOUT, Calls
from barnabas.testing.configs import Configs

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster as Client
    from barnabas.client.consumer import Message
    from barnabas.client.producing.partition_queue import Delivered
    from barnabas.testing.topics import Data, Header

CLIENT_ID = "barnabas-testing"
"""The client id of the helpers' requests, which levers touch like those of any client."""
ABSENT: Final = object()
"""The value of `json` if it is not given: None is JSON's null."""


class HelperWork(Calls):
    """The work of the helpers, on the event loop of the brokers."""

    def settings(self) -> ClientSettings:
        """Return the settings of a client who may do everything."""
        raise NotImplementedError

    def _reachable_servers(self) -> str:
        """Return the addresses of the brokers that run."""
        raise NotImplementedError

    def fresh_name(self, prefix: str = "test") -> str:
        """Return a new name for a topic, a group or a transactional id, which begins so."""
        return f"{prefix}-{secrets.token_hex(4)}"

    def _client(self, timeout: float = TIMEOUT) -> "Client":
        from barnabas.client.cluster import Cluster as Client

        connect, settings = None, self.settings()
        if settings.user:
            from barnabas.client.security import connect_with

            connect = connect_with(settings.java())
        servers = self._reachable_servers()
        return Client(servers, client_id=CLIENT_ID, timeout=timeout, connect=connect)

    async def _create_topic(
        self, name: str | None, partitions: int, replication_factor: int, configs: Configs | None
    ) -> str:
        from barnabas.testing.topics import create_topic

        name = self.fresh_name() if name is None else name
        check_text("the name of a topic", name)
        async with self._client() as client:
            return await create_topic(client, name, partitions, replication_factor, configs)

    async def _produce(
        self,
        topic: str,
        values: "tuple[Data, ...]",
        json: Any,
        key: "Data",
        partition: int | None,
        headers: "Iterable[Header]",
    ) -> "list[Delivered]":
        from barnabas.testing.topics import (
            encode_headers,
            encode_json,
            encode_key,
            encode_values,
            produce,
        )

        encoded = encode_values(values)
        if json is not ABSENT:
            if values:
                raise ValueError("json= is the value: give no other one")
            encoded = [encode_json(json)]
        async with self._client() as client:
            return await produce(
                client, topic, encoded, encode_key(key), partition, encode_headers(headers)
            )

    async def _records(
        self,
        topic: str,
        count: int,
        partition: int | None,
        read_committed: bool,
        timeout: float,
        seen: list[str],
    ) -> "list[Message]":
        from barnabas.testing.topics import records

        check_number("the count of records", count, 0)
        async with self._client(timeout) as client:
            return await records(
                client, topic, count, partition, seen, read_committed=read_committed
            )

    async def _lag(self, group: str, topic: str | None) -> int:
        from barnabas.testing.topics import lag

        async with self._client() as client:
            return await lag(client, group, topic)

    async def _to_read(self, group: str, topic: str | None) -> int:
        from barnabas.testing.topics import to_read

        async with self._client() as client:
            return await to_read(client, group, topic)

    async def _wait_for_group(
        self, group: str, members: int | None, lag: int | None, timeout: float, seen: list[str]
    ) -> None:
        from barnabas.testing.topics import wait_for_group

        if members is not None:
            check_number("members", members, 0)
        if lag is not None:
            check_number("lag", lag, 0)
        async with self._client(timeout) as client:
            await wait_for_group(client, group, members, lag, seen)


class Helpers(HelperWork):
    """The helpers in their blocking form."""

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Configs | None = None,
    ) -> str:
        """Create a topic, by default with a fresh name, and return its name.

        Every broker that answers knows it then. Raises ValueError if the topic exists, or if
        numbers or configurations are wrong.
        """
        return self._wait(self._create_topic(name, partitions, replication_factor, configs))

    def produce(
        self,
        topic: str,
        *values: "Data",
        json: Any = ABSENT,
        key: "Data" = None,
        partition: int | None = None,
        headers: "Iterable[Header]" = (),
    ) -> "list[Delivered]":
        """Produce values, which are bytes, texts (sent as UTF-8) or None; or `json`, one value
        that is sent as JSON. Return topic, partition and offset of each.

        All replicas in sync have them then. Raises ValueError if the topic does not exist,
        TypeError for a value of another type.
        """
        return self._wait(self._produce(topic, values, json, key, partition, headers))

    def records(
        self,
        topic: str,
        count: int = 0,
        *,
        partition: int | None = None,
        read_committed: bool = True,
        timeout: float = TIMEOUT,
    ) -> "list[Message]":
        """Return all records of a topic, by partition and offset; wait for at least `count`.

        With `read_committed` records of aborted and of open transactions are left out. Raises
        ValueError if the topic does not exist, TimeoutError if there are too few records.
        """
        seen: list[str] = []
        work = self._records(topic, count, partition, read_committed, timeout, seen)
        return self._wait(work, timeout, lambda: "".join(seen))

    def lag(self, group: str, topic: str | None = None) -> int:
        """Return the lag of a group, as Kafka's tools count it, in one topic or in all of its own.

        It is the sum of the differences between the high watermark and the committed offset. A
        partition without a committed offset counts all of its records. Raises ValueError if group
        or topic does not exist.
        """
        return self._wait(self._lag(group, topic))

    def to_read(self, group: str, topic: str | None = None) -> int:
        """Return the records that read_committed consumers of a group will still be given now.

        Markers, aborted and deleted records, and those behind open transactions do not count, as
        they do in `lag`. Raises ValueError if group or topic does not exist.
        """
        return self._wait(self._to_read(group, topic))

    def wait_for_group(
        self,
        group: str,
        *,
        members: int | None = None,
        lag: int | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """Wait until a group is stable with exactly `members`, 0 for an empty group, or has
        committed and its lag is at most `lag`, or both. Without both: until it is stable.

        Raises TimeoutError, which says the state of the group.
        """
        seen: list[str] = []
        work = self._wait_for_group(group, members, lag, timeout, seen)
        self._wait(work, timeout, lambda: "".join(seen))


class AsyncHelpers(HelperWork):
    """The helpers in their awaited form."""

    async def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Configs | None = None,
    ) -> str:
        """Create a topic, by default with a fresh name, and return its name.

        Every broker that answers knows it then. Raises ValueError if the topic exists, or if
        numbers or configurations are wrong.
        """
        return await self._awaited(
            self._create_topic(name, partitions, replication_factor, configs)
        )

    async def produce(
        self,
        topic: str,
        *values: "Data",
        json: Any = ABSENT,
        key: "Data" = None,
        partition: int | None = None,
        headers: "Iterable[Header]" = (),
    ) -> "list[Delivered]":
        """Produce values, which are bytes, texts (sent as UTF-8) or None; or `json`, one value
        that is sent as JSON. Return topic, partition and offset of each.

        All replicas in sync have them then. Raises ValueError if the topic does not exist,
        TypeError for a value of another type.
        """
        return await self._awaited(self._produce(topic, values, json, key, partition, headers))

    async def records(
        self,
        topic: str,
        count: int = 0,
        *,
        partition: int | None = None,
        read_committed: bool = True,
        timeout: float = TIMEOUT,
    ) -> "list[Message]":
        """Return all records of a topic, by partition and offset; wait for at least `count`.

        With `read_committed` records of aborted and of open transactions are left out. Raises
        ValueError if the topic does not exist, TimeoutError if there are too few records.
        """
        seen: list[str] = []
        work = self._records(topic, count, partition, read_committed, timeout, seen)
        return await self._awaited(work, timeout, lambda: "".join(seen))

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Return the lag of a group, as Kafka's tools count it, in one topic or in all of its own.

        It is the sum of the differences between the high watermark and the committed offset. A
        partition without a committed offset counts all of its records. Raises ValueError if group
        or topic does not exist.
        """
        return await self._awaited(self._lag(group, topic))

    async def to_read(self, group: str, topic: str | None = None) -> int:
        """Return the records that read_committed consumers of a group will still be given now.

        Markers, aborted and deleted records, and those behind open transactions do not count, as
        they do in `lag`. Raises ValueError if group or topic does not exist.
        """
        return await self._awaited(self._to_read(group, topic))

    async def wait_for_group(
        self,
        group: str,
        *,
        members: int | None = None,
        lag: int | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """Wait until a group is stable with exactly `members`, 0 for an empty group, or has
        committed and its lag is at most `lag`, or both. Without both: until it is stable.

        Raises TimeoutError, which says the state of the group.
        """
        seen: list[str] = []
        work = self._wait_for_group(group, members, lag, timeout, seen)
        await self._awaited(work, timeout, lambda: "".join(seen))
