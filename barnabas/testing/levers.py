"""The levers of a test cluster: faults on links, requests and clocks."""

from collections.abc import Iterable
from typing import Any, Self

from barnabas.testing.calls import TIMEOUT, refuse_running_loop
from barnabas.testing.lifecycle import ClusterLifecycle


class ClusterLevers(ClusterLifecycle):
    """The levers of a cluster, which take milliseconds and wait for no client."""

    # -- links -----------------------------------------------------------------------------------

    def partition(self, *groups: Iterable[int], one_way: bool = False) -> None:
        """Cut the links between brokers of different groups; a broker in no group keeps its links.

        With `one_way` only the direction from the first group to the others is cut. Connections are
        neither refused nor reset: requests and answers do not arrive before `heal`. A broker that
        does not run is cut off when it starts; one that stops in order has whole links meanwhile.
        """
        self._do(self._levers.partition(*groups, one_way=one_way))

    def cut_clients(self, *brokers: int) -> None:
        """Cut the links between these brokers and all clients."""
        self._do(self._levers.cut_clients(*brokers))

    def cut_store(self, *brokers: int) -> None:
        """Cut the links between these brokers and the metadata store: their sessions time out, and
        the controller among them loses its role."""
        self._do(self._levers.cut_store(*brokers))

    def isolate(self, broker: int) -> None:
        """Cut a broker off from all others, from clients and from the metadata store."""
        self._do(self._levers.isolate(broker))

    def heal(self) -> None:
        """Make every link whole."""
        self._do(self._levers.heal())

    # -- requests --------------------------------------------------------------------------------

    def hold(
        self,
        api: int | str,
        number: int = 1,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> "Held":
        """Hold one request of an API: the first that matches, or the one of that number.

        The broker reads it from its connection and does not handle it before `release`, even if its
        client disconnects meanwhile. `api` is Kafka's name or key. A request must have `client_id`,
        `topic` and `transactional_id`, if they are given, and `broker` is the one that receives it.
        Each broker counts its own requests, and starts at 1 again when it restarts.
        """
        where = _where(client_id, topic, transactional_id, broker)
        return Held(self, self._do(self._levers.hold(api, number, **where)), str(api))

    def delay(
        self,
        api: int | str,
        seconds: float,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> "Lever":
        """Delay all requests of an API that match, or the first `times` of them; see `hold`.

        With 0 s it counts them, and changes nothing.
        """
        where = _where(client_id, topic, transactional_id, broker)
        number = self._do(self._levers.delay(api, seconds, times=times, **where))
        return Lever(self, number, str(api))

    def error(
        self,
        api: int | str,
        code: int | str,
        *,
        times: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
    ) -> "Lever":
        """Refuse all requests of an API that match, or the first `times` of them; see `hold`.

        They are not handled, and answered with the error `code`, Kafka's code or name.
        """
        where = _where(client_id, topic, transactional_id, broker)
        number = self._do(self._levers.error(api, code, times=times, **where))
        return Lever(self, number, str(api))

    # -- time, sessions --------------------------------------------------------------------------

    def jump_transaction_clock(self, seconds: float) -> None:
        """Advance the clock by which transactions time out, for all brokers."""
        self._do(self._levers.jump_transaction_clock(seconds))

    def expire_session(self, broker: int) -> None:
        """End a broker's session with the metadata store, as if it had timed out.

        Raises RuntimeError if the broker has no session.
        """
        self._do(self._levers.expire_session(broker))


class Lever:
    """A fault on the requests of an API; as a context manager it ends with its block."""

    def __init__(self, cluster: ClusterLevers, number: int, api: str) -> None:
        self._cluster = cluster
        self._number = number
        self._counted: int | None = None
        """The number of requests touched, if it is final."""
        self._removed = False
        self._late = f"no {api} request was touched"

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Wait until a request was touched. Raises TimeoutError.

        Raises RuntimeError if the lever was removed, or no broker that has it runs; also, at once,
        on a running event loop, whose clients could not send the request: await `arrived` there.
        """
        refuse_running_loop("wait()", "await held.arrived()")
        self._cluster._do(self._cluster._levers.first_arrival(self._number), timeout, self._late)

    async def arrived(self, timeout: float = TIMEOUT) -> None:
        """Wait as `wait` does, and let the running event loop continue meanwhile."""
        work = self._cluster._levers.first_arrival(self._number)
        await self._cluster._awaited(work, timeout, self._late)

    @property
    def touched(self) -> int:
        """The number of requests touched, on the brokers that run, since each of them started.

        It keeps its value when the lever is removed. Raises RuntimeError while a broker with the
        lever is paused.
        """
        if self._counted is not None:
            return self._counted
        found = self._cluster._do(self._cluster._levers.touched(self._number))
        if self._removed:
            self._counted = found
        return found

    def remove(self) -> None:
        """Touch no further requests. Idempotent."""
        if not self._removed:
            self._counted = self._cluster._do(self._cluster._levers.remove(self._number))
            self._removed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Held(Lever):
    """A request that is held, or will be."""

    def release(self) -> None:
        """Pass the request to its handler, unchanged. Idempotent."""
        self.remove()


def _where(
    client_id: str | None, topic: str | None, transactional_id: str | None, broker: int | None
) -> dict[str, Any]:
    """Return the conditions that a request must meet."""
    return {
        "client_id": client_id,
        "topic": topic,
        "transactional_id": transactional_id,
        "broker": broker,
    }
