"""AlterReplicaLogDirs on brokers with one directory: the present directory, and unknown ones."""

from barnabas.protocol.messages.alter_replica_log_dirs import (
    API,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def request(path: str, *wanted: tuple[str, list[int]]) -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=p) for name, p in wanted]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])


def directory(s: Peer) -> str:
    path: str = s.do(DescribeLogDirsRequest(topics=[])).results[0].log_dir
    return path


@scenario
def a_replica_is_there_already(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(request(directory(s), (to.name, [0])))
    s.ask(request(directory(s), (to.name, [0, 0])))


@scenario
def an_unknown_directory(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request("/no/such/directory", (to.name, [0])))
    s.ask(request("", (to.name, [0])))
    s.ask(request(directory(s) + "/", (to.name, [0])))


@scenario
def partitions_and_topics_that_do_not_exist(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(directory(s), (to.name, [7])))
    s.ask(request(directory(s), (to.name, [-1])))
    s.ask(request(directory(s), (s.name("unknown"), [0])))
    s.ask(request(directory(s), ("no/topic", [0])))
    s.ask(request("/no/such/directory", (s.name("unknown"), [0])))


@scenario
def a_name_that_is_too_long_for_a_directory(s: Peer) -> None:
    for length in (213, 214, 249):
        s.ask(request(directory(s), ("x" * length, [0])))


@scenario
def no_partitions(s: Peer) -> None:
    s.ask(AlterReplicaLogDirsRequest(dirs=[]))
    s.ask(request(directory(s)))
    s.ask(request(directory(s), (s.name("unknown"), [])))
