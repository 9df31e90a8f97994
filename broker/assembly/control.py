"""The controller, and the receiving end of whichever controller is in office."""

from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.controller.channel import Channel
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.election import ElectionPolicy
from barnabas.broker.controller.handover import Handover
from barnabas.broker.controller.internal_topics import internal_topics
from barnabas.broker.controller.reach import ToController
from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.controller.remote import RemoteChannel
from barnabas.broker.controller.topic_admin import Defaults
from barnabas.broker.controller.topic_creator import TopicCreator
from barnabas.broker.metadata.config_admin import ConfigAdmin
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.config.topic import TopicConfig


class Control(NamedTuple):
    """What decides about the cluster, and what is told of it."""

    receiver: ControlReceiver
    controller: Controller
    reach: ToController
    handover: Handover
    topic_creator: TopicCreator
    loggers: LoggerLevels
    config_admin: ConfigAdmin


def make_control(core: Core, replication: Replication) -> Control:
    doors, cache = core.doors, core.cache
    receiver = ControlReceiver(replication.replicas, cache, core.configs)
    loggers = LoggerLevels()
    config_admin = ConfigAdmin(core.configs, cache, core.broker_id, loggers)
    controller = Controller(
        core.store,
        core.broker_id,
        clock=doors.clock,
        random=doors.random,
        connect=lambda broker: _channel(core, receiver, broker),
        policy=lambda topic: _election_policy(core, topic),
        defaults=lambda: Defaults(
            core.config.num_partitions, core.config.default_replication_factor
        ),
        check_configs=config_admin.check_new_topic,
        on_fatal=core.fatal,
    )
    core.configs.follow_topics(lambda topic, _config: controller.reconsider(topic))
    reach = ToController(
        core.broker_id, controller, cache, core.peers, lambda: core.membership.in_touch
    )
    replication.in_sync.begin(reach, lambda: core.membership.broker_epoch, replication.replicas)
    handover = Handover(core.broker_id, reach, cache, lambda: core.config)
    creator = TopicCreator(reach, cache, internal_topics(lambda: core.config))
    gauges.read_cluster(core.metrics, controller, cache)
    return Control(receiver, controller, reach, handover, creator, loggers, config_admin)


def _channel(core: Core, receiver: ControlReceiver, broker: BrokerInfo) -> Channel:
    if broker.id == core.broker_id:
        return receiver
    return RemoteChannel(core.peers.at(broker))


async def _election_policy(core: Core, topic: str) -> ElectionPolicy:
    """Also of topics that have no replica on this broker, whose configuration it has not kept."""
    config = TopicConfig.resolve(await core.configs.overrides(topic), core.config)
    return ElectionPolicy(config.unclean_leader_election_enable, config.flushes_each_append)
