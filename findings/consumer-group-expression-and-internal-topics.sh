#!/usr/bin/env bash
# Seen: subscribe(new SubscriptionPattern(".*")) of Kafka's Java consumer includes __consumer_offsets, although
#   exclude.internal.topics is true (its default); subscribe(Pattern.compile(".*")) of the same consumer in the same
#   protocol leaves it out. In a cluster where nobody writes the member then reads its own commits, without an end.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, with the clients of the same release.
# Why a guess is wrong: the newer class looks like the older one with another syntax (RE2), and the consumer takes the
#   key without a word. But a Pattern is matched in the client, which knows the key; a SubscriptionPattern is matched by
#   the broker (KIP-848), to which the key is not sent and which leaves no internal topic out.
# What follows: an application that changes the class gets binary records that its deserializers do not know, a lag that
#   never ends, and a share of the 50 partitions of __consumer_offsets for each member. Name what is wanted, or
#   `[^_].*`. Rights on topics hide internal ones too: the broker leaves out what the principal may not describe.
# Source: refreshRegularExpressions in Kafka's GroupMetadataManager; https://github.com/twmb/franz-go/pull/1410, which
#   found the same for its clients.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
start_kafka 4.4.0 2

cat >"$dir/Seen.java" <<'JAVA'
import java.time.Duration;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Seen {
    static String brokers;

    static int read(KafkaConsumer<?, ?> consumer, int seconds) {
        int records = 0;
        for (long end = System.nanoTime() + seconds * 1_000_000_000L; System.nanoTime() < end; ) {
            records += consumer.poll(Duration.ofMillis(100)).count();
        }
        return records;
    }

    static void show(String name, java.util.function.Consumer<KafkaConsumer<byte[], byte[]>> subscribe) {
        Map<String, Object> config = Map.of("bootstrap.servers", brokers, "group.id", name,
                "group.protocol", "consumer", "exclude.internal.topics", true, "auto.commit.interval.ms", 500);
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            subscribe.accept(consumer);
            for (int i = 0; i < 200 && consumer.assignment().isEmpty(); i++) read(consumer, 1);
            read(consumer, 10);
            var topics = consumer.assignment().stream().map(TopicPartition::topic)
                    .collect(Collectors.toCollection(TreeSet::new));
            int first = read(consumer, 5);
            int second = read(consumer, 5);
            System.out.println(name + ": " + topics + ", reads without an end: " + (first > 0 && second > 0));
            System.err.println(name + ": records in twice 5 s: " + first + ", " + second);
        }
    }

    public static void main(String[] arguments) throws Exception {
        brokers = arguments[0];
        try (var admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
        }
        show("Pattern", consumer -> consumer.subscribe(Pattern.compile(".*")));
        show("SubscriptionPattern", consumer -> consumer.subscribe(new SubscriptionPattern(".*")));
    }
}
JAVA
basename "$dir"/kafka/kafka-clients-*.jar
java -cp "$dir/kafka/*" "$dir/Seen.java" "127.0.0.1:$port" 2>"$dir/errors" | grep ": \[" | tee "$dir/said" ||
    cat "$dir/errors"
grep "records in" "$dir/errors" >&2
diff "$dir/said" - <<'EXPECTED'
Pattern: [orders], reads without an end: false
SubscriptionPattern: [__consumer_offsets, orders], reads without an end: true
EXPECTED
