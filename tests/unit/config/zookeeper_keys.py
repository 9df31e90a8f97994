"""Kafka's keys of a broker on ZooKeeper."""

CLUSTER = {
    "zookeeper.connect": "zk1:2181",
    "listeners": "PLAINTEXT://:9092,REPLICATION://:9192",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
    "inter.broker.listener.name": "REPLICATION",
}
