"""AlterUserScramCredentials (key 51): sets and deletes credentials of users (KIP-554).

As in Kafka, a request changes one credential of each user. A user who is named twice is refused
both times.
"""

from functools import partial

from barnabas.broker.loop.slices import Slicer
from barnabas.broker.security.rights import ALTER, CLUSTER, Need, Rights
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.server.context import RequestContext
from barnabas.broker.store.metadata_store import SessionExpired, StoreUnavailable, TooLarge
from barnabas.coordinator.soon import Soon, in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_user_scram_credentials import (
    API,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.steps import Steps, in_steps, unseen
from barnabas.security.sasl.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = Rights(whole=(Need(ALTER, CLUSTER),))
Change = ScramCredentialDeletion | ScramCredentialUpsertion
_MECHANISMS = {each.code: each for each in ScramMechanism}


def handle(
    users: ScramUsers,
    slicer: Slicer,
    request: AlterUserScramCredentialsRequest,
    _context: RequestContext,
) -> Soon[AlterUserScramCredentialsResponse]:
    """Make the changes one after another; each is stored when its result is there."""
    return in_task(_altered(users, slicer, request))


async def _altered(
    users: ScramUsers, slicer: Slicer, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes: dict[str, Change] = {}
    repeated: set[str] = set()
    async for each in slicer.each(_asked(request)):
        if changes.setdefault(each.name, each) is not each:
            repeated.add(each.name)
    results = []
    async for name, change in slicer.each(changes.items()):
        try:
            mechanism = _checked(users, change)
            if name in repeated:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            await _make(users, change, mechanism)
        except KafkaError as error:
            results.append(_refused(name, error.code, error.message))
        except TooLarge:
            text = "The user's values are larger than the metadata store takes."
            results.append(_refused(name, ErrorCode.UNACCEPTABLE_CREDENTIAL, text))
        except (SessionExpired, StoreUnavailable):
            text = "The metadata cannot be reached."
            results.append(_refused(name, ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            results.append(AlterUserScramCredentialsResult(user=name))
    return AlterUserScramCredentialsResponse(results=results)


def _asked(request: AlterUserScramCredentialsRequest) -> list[Change]:
    return [*request.deletions, *request.upsertions]


def _checked(users: ScramUsers, change: Change) -> ScramMechanism:
    """Return the mechanism of a change; raise KafkaError if the change is not possible."""
    mechanism = _MECHANISMS.get(change.mechanism)
    if not change.name:
        raise _unacceptable("Username must not be empty")
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if users.find(change.name, mechanism) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    elif change.iterations < MIN_ITERATIONS:
        raise _unacceptable("Too few iterations")
    elif change.iterations > MAX_ITERATIONS:
        raise _unacceptable("Too many iterations")
    elif not change.salt:
        raise _unacceptable("The salt must not be empty")
    return mechanism


async def _make(users: ScramUsers, change: Change, mechanism: ScramMechanism) -> None:
    if isinstance(change, ScramCredentialDeletion):
        await users.delete(change.name, mechanism)
    else:
        salted, salt = bytes(change.salted_password), bytes(change.salt)
        await users.put(
            change.name, ScramCredential.of_salted(mechanism, salted, salt, change.iterations)
        )


def _unacceptable(text: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)


def _refused(name: str, code: ErrorCode, message: str | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)


def error_response(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, _version: int
) -> Steps[AlterUserScramCredentialsResponse]:
    """Answer every user with the error."""
    named = (each.name for each in _asked(request))
    names = yield from unseen(named, set())
    results = yield from in_steps(partial(_refused, code=code, message=code.text), names)
    return AlterUserScramCredentialsResponse(results=results)
