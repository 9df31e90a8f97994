#!/usr/bin/env bash
# Seen: max.decompressed.message.bytes of Kafka 4.4 bounds each record, not the batch: ten records of 5000 bytes pass a
#   limit of 10000. Only compressed batches are looked at. Lowered below what is stored, it makes the topic unreadable
#   by time: ListOffsets by timestamp fails with InvalidRecordException, while consumers read the same records.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, with the clients of the same release.
# Why a guess is wrong: the name and the neighbour max.message.bytes, which bounds a batch, suggest a bound of what a
#   batch becomes, against bombs; and a limit for new records is not expected to change reads of old ones.
# What follows: it is no bound of a broker's memory per batch. Before lowering it on a topic with data, expect
#   offsetsForTimes, and resets of groups by time, to fail until the larger records are gone.
# Source: own measurement; the key's documentation in Kafka 4.4.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
start_kafka 4.4.0 2

cat >"$dir/Seen.java" <<'END'
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

public class Seen {
    static String brokers;

    static String write(String codec, int records, int size) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", brokers, "compression.type", codec,
                "linger.ms", 1000, "batch.size", 1_000_000);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < records; i++) sent.add(producer.send(new ProducerRecord<>("t", new byte[size])));
            producer.flush();
            for (var each : sent) each.get();
            return "written";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    public static void main(String[] arguments) throws Exception {
        brokers = arguments[0];
        try (var admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1)
                    .configs(Map.of("max.decompressed.message.bytes", "10000")))).all().get();
            System.out.println("ten records of 5000 bytes, gzip: " + write("gzip", 10, 5000));
            System.out.println("one record of 20000 bytes, gzip: " + write("gzip", 1, 20000));
            System.out.println("one record of 20000 bytes, uncompressed: " + write("none", 1, 20000));
            var topic = new ConfigResource(ConfigResource.Type.TOPIC, "t");
            var lower = new AlterConfigOp(
                    new ConfigEntry("max.decompressed.message.bytes", "100"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(lower))).all().get();
            var at = new TopicPartition("t", 0);
            String found = "found";
            for (int i = 0; i < 100 && found.equals("found"); i++) {
                Thread.sleep(100);
                try {
                    admin.listOffsets(Map.of(at, OffsetSpec.forTimestamp(1))).all().get();
                } catch (ExecutionException error) {
                    found = error.getCause().getClass().getSimpleName();
                }
            }
            System.out.println("limit lowered to 100, offset by time: " + found);
            int read = 0;
            try (var consumer = new KafkaConsumer<>(Map.<String, Object>of("bootstrap.servers", brokers),
                    new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.assign(List.of(at));
                consumer.seekToBeginning(List.of(at));
                for (int i = 0; i < 100 && read < 11; i++) {
                    read += consumer.poll(java.time.Duration.ofMillis(100)).count();
                }
            }
            System.out.println("records that a consumer reads: " + read);
        }
    }
}
END
java -cp "$dir/kafka/*" "$dir/Seen.java" "127.0.0.1:$port" 2>"$dir/errors" | grep -v " ERROR " | tee "$dir/said" ||
    cat "$dir/errors"
diff "$dir/said" - <<'EXPECTED'
ten records of 5000 bytes, gzip: written
one record of 20000 bytes, gzip: InvalidRecordException
one record of 20000 bytes, uncompressed: written
limit lowered to 100, offset by time: InvalidRecordException
records that a consumer reads: 11
EXPECTED
