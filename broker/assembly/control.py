"""The controller, and the receiving end of whichever controller is in office."""

from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.internal_topics import internal_topics
from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.controller.topic_admin import Defaults
from barnabas.broker.controller.topic_creator import TopicCreator
from barnabas.broker.metadata.config_admin import ConfigAdmin
from barnabas.broker.observability.logging import LoggerLevels


class Control(NamedTuple):
    """What decides about the cluster, and what is told of it."""

    receiver: ControlReceiver
    controller: Controller
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
        connect=lambda _broker: receiver,
        unclean=lambda topic: core.configs.topic(topic).unclean_leader_election_enable,
        defaults=lambda: Defaults(
            core.config.num_partitions, core.config.default_replication_factor
        ),
        check_configs=config_admin.check_new_topic,
        on_fatal=core.fatal,
    )
    creator = TopicCreator(controller, cache, internal_topics(lambda: core.config))
    gauges.read_cluster(core.metrics, controller, cache)
    return Control(receiver, controller, creator, loggers, config_admin)
