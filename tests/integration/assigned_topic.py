"""A topic with replicas that the test assigns."""

from confluent_kafka.admin import AdminClient, NewTopic


def create(servers: str, topic: str, *assignment: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    new = NewTopic(topic, 1, replica_assignment=[list(assignment)])
    admin.create_topics([new])[topic].result(20)
