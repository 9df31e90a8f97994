"""Test an application with real brokers. Clients: kafka-python and barnabas.testing.

    pytest examples/test_shipping.py

`ship_orders` is the application. The fixtures come with `pip install barnabas`, and need no
configuration. The last test makes the broker refuse a request, as after a change of the leader.
"""

from kafka import KafkaConsumer, KafkaProducer


def ship_orders(servers: str, orders: str, parcels: str, count: int) -> None:
    """Ship `count` orders: read them in the group `shippers`, and write a parcel for each."""
    consumer = KafkaConsumer(
        orders,
        bootstrap_servers=servers,
        group_id="shippers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for _ in range(count):
        order = next(consumer)
        producer.send(parcels, b"parcel of " + order.value, key=order.key).get(timeout=30)
        consumer.commit()
    producer.close()
    consumer.close()


def test_every_order_becomes_a_parcel(barnabas_broker):
    orders = barnabas_broker.create_topic()
    parcels = barnabas_broker.create_topic()
    barnabas_broker.produce(orders, "apples", "pears")
    ship_orders(barnabas_broker.bootstrap_servers, orders, parcels, 2)
    found = [record.value for record in barnabas_broker.records(parcels, 2)]
    assert found == [b"parcel of apples", b"parcel of pears"]
    assert barnabas_broker.lag("shippers") == 0


def test_second_run_ships_only_new_orders(barnabas_broker):
    orders = barnabas_broker.create_topic()
    parcels = barnabas_broker.create_topic()
    for fruit in ("apples", "pears"):
        barnabas_broker.produce(orders, fruit)
        ship_orders(barnabas_broker.bootstrap_servers, orders, parcels, 1)
    found = [record.value for record in barnabas_broker.records(parcels, 2)]
    assert found == [b"parcel of apples", b"parcel of pears"]


def test_refused_parcel_is_sent_again(barnabas_cluster):
    orders = barnabas_cluster.create_topic()
    parcels = barnabas_cluster.create_topic()
    barnabas_cluster.produce(orders, "apples")
    with barnabas_cluster.error(
        "Produce", "NOT_LEADER_OR_FOLLOWER", topic=parcels, times=2
    ) as refused:
        ship_orders(barnabas_cluster.bootstrap_servers, orders, parcels, 1)
        assert refused.touched == 2
    found = [record.value for record in barnabas_cluster.records(parcels, 1)]
    assert found == [b"parcel of apples"]
