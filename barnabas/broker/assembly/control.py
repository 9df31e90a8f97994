"""Assembly of the controller, and of the broker's parts that exchange requests with it."""

from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.cluster.config_admin import ConfigAdmin
from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.cluster.controlled_shutdown import ControlledShutdown
from barnabas.broker.cluster.controller_client import ControllerClient
from barnabas.broker.cluster.internal_topics import internal_topics
from barnabas.broker.cluster.registration import stored_epochs
from barnabas.broker.cluster.topic_creator import TopicCreator
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.controller_channel import BrokerClient, RemoteBrokerClient
from barnabas.broker.controller.rules.leader_election import ElectionPolicy
from barnabas.broker.controller.topic_admin import Defaults
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.config.topic import TopicConfig


class Control(NamedTuple):
    """The controller of this broker, its client and its receiver, and configuration changes."""

    receiver: ControlReceiver
    controller: Controller
    controller_client: ControllerClient
    controlled_shutdown: ControlledShutdown
    topic_creator: TopicCreator
    loggers: LoggerLevels
    config_admin: ConfigAdmin


def make_control(core: Core, replication: Replication) -> Control:
    platform, cache = core.platform, core.cache
    receiver = ControlReceiver(
        replication.replicas,
        cache,
        core.configs,
        lambda: stored_epochs(core.store, core.broker_id),
        core.slicer,
    )
    loggers = LoggerLevels()
    config_admin = ConfigAdmin(core.configs, cache, core.broker_id, loggers, core.slicer)
    controller = Controller(
        core.store,
        core.broker_id,
        clock=platform.clock,
        slicer=core.slicer,
        random=platform.random,
        connect=lambda broker: _channel(core, receiver, broker),
        policy=lambda topic: _election_policy(core, topic),
        defaults=lambda: Defaults(
            core.config.num_partitions, core.config.default_replication_factor
        ),
        check_configs=config_admin.check_new_topic,
        require_descriptors=replication.descriptors.require,
        events=core.events,
        on_fatal=core.fatal,
    )
    core.configs.follow_topics(lambda topic, _config: controller.retry_elections(topic))
    controller_client = ControllerClient(
        core.broker_id, controller, cache, core.peers, lambda: core.membership.is_connected
    )
    replication.isr_manager.begin(
        controller_client, lambda: core.membership.broker_epoch, replication.replicas
    )
    controlled_shutdown = ControlledShutdown(
        core.broker_id,
        controller_client,
        cache,
        lambda: core.config,
        lambda: core.membership.broker_epoch,
    )
    creator = TopicCreator(
        controller_client, cache, internal_topics(lambda: core.config), core.slicer
    )
    gauges.read_cluster(core.metrics, controller, cache)
    return Control(
        receiver, controller, controller_client, controlled_shutdown, creator, loggers, config_admin
    )


def _channel(core: Core, receiver: ControlReceiver, broker: BrokerInfo) -> BrokerClient:
    if broker.id == core.broker_id:
        return receiver
    return RemoteBrokerClient(core.peers.at(broker))


async def _election_policy(core: Core, topic: str) -> ElectionPolicy:
    """Return the election policy of a topic, which need not have a replica on this broker."""
    config = TopicConfig.resolve(await core.configs.overrides(topic), core.config)
    return ElectionPolicy(config.unclean_leader_election_enable, config.flushes_each_append)
