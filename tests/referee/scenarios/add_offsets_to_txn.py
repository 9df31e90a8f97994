"""AddOffsetsToTxn: the group's partition of `__consumer_offsets` joins the transaction."""

from barnabas.protocol.messages.add_offsets_to_txn import API
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import producer, worn

scenario = Scenarios(API, LEVELS)


@scenario
def one_group(s: Peer) -> None:
    x = producer(s)
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())
    x.ends()


@scenario
def the_same_group_again(s: Peer) -> None:
    x = producer(s)
    s.ask(x.add_group(s.name("g")))
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())


@scenario
def groups_of_both_partitions(s: Peer) -> None:
    x = producer(s)
    for suffix in "abcdefgh":
        s.ask(x.add_group(s.name(suffix)))
    s.ask(x.describe())
    x.ends(committed=False)


@scenario
def beside_partitions(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())
    x.ends()
    x.aftermath(to)


@scenario
def a_group_with_members(s: Peer) -> None:
    member, x = given.member(s), producer(s)
    s.ask(x.add_group(member.group))
    s.ask(x.describe())


@scenario
def a_group_without_a_name(s: Peer) -> None:
    x = producer(s)
    s.ask(x.add_group(""))
    s.ask(x.describe())


@scenario
def an_older_epoch(s: Peer) -> None:
    old = producer(s)
    x = producer(s)
    s.ask(old.add_group(s.name("g")))
    s.ask(x.add_group(s.name("g")))
    s.ask(old.add_group(s.name("g")))
    s.ask(x.describe())


@scenario
def an_epoch_of_the_future(s: Peer) -> None:
    x = producer(s)
    for epoch in (x.epoch + 1, 32_767, -1):
        s.ask(x.add_group(s.name("g"), producer_epoch=epoch))
    s.ask(x.describe())


@scenario
def another_producer_id(s: Peer) -> None:
    x, y = producer(s), producer(s, "y")
    s.ask(x.add_group(s.name("g"), producer_id=y.id))
    s.ask(x.add_group(s.name("g"), producer_id=-1))
    s.ask(x.describe())


@scenario
def an_unknown_transactional_id(s: Peer) -> None:
    x = producer(s)
    s.ask(x.add_group(s.name("g"), transactional_id=s.name("unknown")))
    s.ask(x.add_group(s.name("g"), transactional_id=""))


@scenario
def after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())


@scenario
def after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish(committed=False)
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())


@scenario
def while_a_commit_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to)
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())


@scenario
def while_an_abort_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to, committed=False)
    s.ask(x.add_group(s.name("g")))
    s.ask(x.add_group(s.name("g"), producer_epoch=x.epoch + 1))


@scenario
def aborted_by_a_newer_producer(s: Peer) -> None:
    old = producer(s)
    s.ask(old.add_group(s.name("g")))
    x = producer(s)
    s.ask(old.add_group(s.name("g")))
    s.ask(x.describe())


@scenario(worn=True)
def worn_and_its_last_epoch(s: Peer) -> None:
    x = worn(s).start()
    s.ask(x.add_group(s.name("g")))
    s.ask(x.describe())
    x.ends()
