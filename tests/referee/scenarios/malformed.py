"""Requests that reach no handler: versions that are not served and bodies that are cut off."""

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.schema import Api
from tests.referee.scenario import Peer, Scenarios
from tests.support.raw import APIS

API_VERSIONS, LIST_GROUPS = 18, 16
FIRST_WITH_A_BODY = {LIST_GROUPS: 3}
"""Before this version the request consists of its header."""


def malformed(api: Api) -> Scenarios:
    """Return the scenarios that every API but ApiVersions has."""
    scenario = Scenarios(api)
    first = FIRST_WITH_A_BODY.get(api.key)

    @scenario(since=first)
    def a_body_without_bytes(s: Peer) -> None:
        s.ask_bytes(b"", s.version)
        s.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))

    @scenario(since=first)
    def a_body_of_the_wrong_bytes(s: Peer) -> None:
        s.ask_bytes(b"\x7f" * 40, s.version)

    @scenario(since=api.versions[-1])
    def a_version_after_the_highest(s: Peer) -> None:
        s.ask_bytes(b"", api.versions[-1] + 1)

    return scenario


ALL = [malformed(api) for api in APIS.values() if api.key != API_VERSIONS]
