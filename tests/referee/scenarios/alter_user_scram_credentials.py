"""AlterUserScramCredentials, and what DescribeUserScramCredentials says after it."""

from collections.abc import Callable
from typing import Any

from barnabas.protocol.messages.alter_user_scram_credentials import (
    API,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.referee.scenario import Peer, Scenarios

SHA_256, SHA_512 = 1, 2
scenario = Scenarios(API)


def upsertion(
    name: str,
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salt: bytes = b"salt",
    salted_password: bytes = bytes(range(32)),
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password,
    )


def changes(
    *upsertions: ScramCredentialUpsertion, delete: list[tuple[str, int]] | None = None
) -> AlterUserScramCredentialsRequest:
    deletions = [ScramCredentialDeletion(name=name, mechanism=code) for name, code in delete or []]
    return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))


def users(*names: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


def shows(*users: tuple[int, ...]) -> Callable[[Any], bool]:
    """Return whether an answer has these iterations of each user: Kafka's broker hears of a change
    after the controller has answered."""

    def shown(answer: Any) -> bool:
        return [
            tuple(sorted(info.iterations for info in result.credential_infos))
            for result in answer.results
        ] == list(users)

    return shown


@scenario
def user_is_created_changed_and_deleted(s: Peer) -> None:
    name = s.name("alice")
    s.ask(changes(upsertion(name)))
    s.ask(users(name), until=shows((4096,)))
    s.ask(changes(upsertion(name, SHA_512, 8192, salted_password=bytes(64))))
    s.ask(users(name), until=shows((4096, 8192)))
    s.ask(changes(upsertion(name, iterations=16384)))
    s.ask(users(name), until=shows((8192, 16384)))
    s.ask(changes(delete=[(name, SHA_256)]))
    s.ask(users(name), until=shows((8192,)))
    s.ask(changes(delete=[(name, SHA_512)]))
    s.ask(users(name), until=shows(()))


@scenario
def iterations_out_of_range(s: Peer) -> None:
    for iterations in (-1, 0, 4095, 16385, 1 << 30):
        s.ask(changes(upsertion(s.name(f"u{iterations}"), iterations=iterations)))


@scenario
def mechanism_that_does_not_exist(s: Peer) -> None:
    for code in (-1, 0, 3, 127):
        s.ask(changes(upsertion(s.name(f"u{code}"), code)))
        s.ask(changes(delete=[(s.name(f"d{code}"), code)]))


@scenario
def name_that_is_empty(s: Peer) -> None:
    s.ask(changes(upsertion("")))
    s.ask(changes(delete=[("", SHA_256)]))


@scenario
def names_with_all_kinds_of_characters(s: Peer) -> None:
    for text in ("a b", "a/b", "<default>", "CN=a,O=b", "%41", "..", "\N{KEY}", "*"):
        name = s.name("x") + text
        s.ask(changes(upsertion(name)))
        s.ask(users(name), until=shows((4096,)))
        s.ask(changes(delete=[(name, SHA_256)]))


@scenario
def salted_password_of_another_length(s: Peer) -> None:
    for number, size in enumerate((1, 31, 64, 1000)):
        name = s.name(f"u{number}")
        s.ask(changes(upsertion(name, salted_password=bytes(size))))
        s.ask(users(name), until=shows((4096,)))


@scenario
def user_without_the_credential_to_delete(s: Peer) -> None:
    name = s.name("alice")
    s.ask(changes(delete=[(name, SHA_256)]))
    s.ask(changes(upsertion(name)))
    s.ask(changes(delete=[(name, SHA_512)]))
    s.ask(users(name), until=shows((4096,)))


@scenario
def user_named_twice(s: Peer) -> None:
    name = s.name("alice")
    s.ask(changes(upsertion(name), upsertion(name)))
    s.ask(changes(upsertion(name), upsertion(name, SHA_512)))
    s.ask(users(name))
    s.ask(changes(upsertion(name)))
    s.ask(changes(upsertion(name), delete=[(name, SHA_256)]))
    s.ask(changes(delete=[(name, SHA_256), (name, SHA_256)]))
    s.ask(users(name))


@scenario
def error_of_the_first_mention_wins(s: Peer) -> None:
    name = s.name("alice")
    s.ask(changes(upsertion(name, iterations=1), upsertion(name)))
    s.ask(changes(upsertion(name, 9), upsertion(name, iterations=1)))
    s.ask(changes(upsertion(name), upsertion(name, iterations=1)))


@scenario
def nothing_to_change(s: Peer) -> None:
    s.ask(changes())
