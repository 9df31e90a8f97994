"""Failed logins of users that exist and of users that do not.

Delegation tokens, which exist or not, log in by SCRAM too. For each mechanism Welch's t-test
compares the times; the slowest tenth of each kind is left out, as what else the machine does. A |t|
of 4.5 or more tells them apart (as in dudect).
"""

import asyncio
import contextlib
import logging
import math
import random
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.protocol.types import uuid_text
from barnabas.security.sasl.credentials import ScramMechanism
from barnabas.testing import Broker
from benchmarks.logins import accepted, authenticate, connected
from benchmarks.measures import Faulty, Figures
from tests.support import named_users

APART: Final = 4.5
"""The |t| from which two kinds of logins can be told apart."""
KEPT: Final = 0.9
USERS: Final = 50
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BY_TOKEN: Final = " by token"
KINDS: Final = (*MECHANISMS, *(f"{each}{BY_TOKEN}" for each in MECHANISMS[1:]))
KNOWN: Final = [f"user-{number:04}" for number in range(USERS)]
UNKNOWN: Final = [f"none-{number:04}" for number in range(USERS)]
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"

Login = Callable[[str], None]
"""A login of a user with a wrong password, up to its refusal."""


class Compared(NamedTuple):
    """The mean times in microseconds, and Welch's t."""

    known_us: float
    unknown_us: float
    t: float


def compare(login: Login, tries: int, seed: int = 0) -> Compared:
    """Time logins of both kinds in random order."""
    rng = random.Random(seed)
    order = [True, False] * tries
    rng.shuffle(order)
    times: dict[bool, list[int]] = {True: [], False: []}
    for name in [*KNOWN, *UNKNOWN]:
        login(name)
    for known in order:
        name = rng.choice(KNOWN if known else UNKNOWN)
        began = time.perf_counter_ns()
        login(name)
        times[known].append(time.perf_counter_ns() - began)
    one, other = (sorted(each)[: int(len(each) * KEPT)] for each in times.values())
    means = statistics.fmean(one), statistics.fmean(other)
    error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    return Compared(means[0] / 1e3, means[1] / 1e3, (means[0] - means[1]) / error)


def first_message(kind: str, name: str) -> bytes:
    extension = ",tokenauth=true" if kind.endswith(BY_TOKEN) else ""
    return f"n,,n={name},r=client{extension}".encode()


def final_message(mechanism: ScramMechanism, nonce: str) -> bytes:
    """Return a final message with a wrong proof."""
    proof = {32: "A" * 43 + "=", 64: "A" * 86 + "=="}[len(mechanism.digest(b""))]
    return f"c=biws,r={nonce},p={proof}".encode()


# -- a broker --------------------------------------------------------------------------------------


@contextlib.contextmanager
def broker() -> Iterator[Callable[[str], Login]]:
    """Run a broker with users and tokens; give the function that returns the login of a kind."""
    users = " ".join(f'user_{name}="{name}"' for name in ("admin", *KNOWN))
    keys = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.plaintext.plain.sasl.jaas.config": f"{_MODULE} {users};",
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "secret",
    }
    with Broker(keys) as running:
        ids = asyncio.run(_add_passwords_and_tokens(running.bootstrap_servers))
        port = int(running.bootstrap_servers.rpartition(":")[2])
        yield lambda kind: partial(_over_network, port, kind, ids)


async def _add_passwords_and_tokens(servers: str) -> dict[str, str]:
    """Give each known name a password by SCRAM and a token; return the ids by name, with those of
    tokens that do not exist."""
    ids = {name: uuid_text(random.randbytes(16)) for name in UNKNOWN}
    async with Cluster(servers, connect=connect_with(named_users.login("admin"))) as cluster:
        users = UserAdmin(cluster)
        for name in KNOWN:
            for mechanism in map(ScramMechanism, MECHANISMS[1:]):
                await users.set_password(name, name, mechanism)
            ids[name] = (await users.create_token()).id
    return ids


def _over_network(port: int, kind: str, ids: dict[str, str], name: str) -> None:
    """Log in by a kind; `ids` are those of tokens, by name."""
    mechanism = kind.removesuffix(BY_TOKEN)
    with connected(port, mechanism) as client:
        if mechanism == "PLAIN":
            last = f"\0{name}\0wrong".encode()
        else:
            known = ids[name] if kind.endswith(BY_TOKEN) else name
            nonce = accepted(client, first_message(kind, known)).decode().split(",")[0][2:]
            last = final_message(ScramMechanism(mechanism), nonce)  # type: ignore[call-arg]
        assert authenticate(client, last) is None


def measure(options: Namespace, _directory: Path) -> Iterator[Figures]:
    """Compare failed logins of known and of unknown users over the loopback interface."""
    # The broker warns of each failed login.
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    apart = []
    with broker() as login_by:
        for kind in KINDS:
            found = compare(login_by(kind), options.tries)
            apart += [kind] if abs(found.t) >= APART else []
            yield {
                f"{kind}: known, us": found.known_us,
                f"{kind}: unknown, us": found.unknown_us,
                f"{kind}: t": found.t,
            }
    if apart:
        raise Faulty(f"users can be told apart: {', '.join(apart)}")
