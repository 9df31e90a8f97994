import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Kafka Streams, and a transaction whose topic is created again before its end. Loaded at its first
 * command: older lists of jars have no Streams.
 */
final class Streaming {
    private static final long DEADLINE_NS = TimeUnit.SECONDS.toNanos(60);

    /**
     * Arguments: servers, input, output, count, and the directory of the state. Copies a topic
     * with exactly_once_v2, and returns what a read_committed consumer reads of the copy. It is in a
     * group of the consumer protocol; Streams itself takes its own one or the classic one alone.
     */
    static List<String> stream(JsonNode command) {
        Properties config = new Properties();
        config.put("application.id", command.get("output").asText());
        config.put("bootstrap.servers", command.get("servers").asText());
        config.put("state.dir", command.get("directory").asText());
        config.put("processing.guarantee", StreamsConfig.EXACTLY_ONCE_V2);
        config.put("commit.interval.ms", 50);
        config.put("auto.offset.reset", "earliest");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(command.get("input").asText())
                .mapValues(value -> value + "!")
                .to(command.get("output").asText());
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            return values(command, command.get("output").asText(), command.get("count").asInt());
        }
    }

    private static List<String> values(JsonNode command, String topic, int count) {
        Map<String, Object> reading = DataPath.config(command);
        reading.put("group.id", topic + "-readers");
        reading.put("group.protocol", "consumer");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        List<String> read = new ArrayList<>();
        long late = System.nanoTime() + DEADLINE_NS;
        try (var consumer =
                new KafkaConsumer<>(
                        reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (read.size() < count && System.nanoTime() < late) {
                consumer.poll(Duration.ofMillis(100)).forEach(it -> read.add(it.value()));
            }
        }
        return read;
    }

    /**
     * Arguments: servers, topic, kept, and group. Sends offsets of two topics in a transaction,
     * deletes the first one and creates it again, and commits. Returns the group's offsets.
     */
    static Map<String, Long> recreate(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        String kept = command.get("kept").asText();
        String group = command.get("group").asText();
        Map<String, Object> writing = DataPath.config(command);
        writing.put("transactional.id", group);
        try (Admin admin = Admin.create(DataPath.config(command));
                var producer =
                        new KafkaProducer<>(
                                writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(kept, "in"));
            producer.sendOffsetsToTransaction(
                    Map.of(
                            new TopicPartition(topic, 0), new OffsetAndMetadata(5),
                            new TopicPartition(kept, 0), new OffsetAndMetadata(6)),
                    new ConsumerGroupMetadata(group));
            producer.flush();
            admin.deleteTopics(List.of(topic)).all().get();
            create(admin, topic);
            producer.commitTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(kept, 0), new OffsetAndMetadata(7)),
                    new ConsumerGroupMetadata(group));
            producer.commitTransaction();
            Map<String, Long> offsets = new HashMap<>();
            admin.listConsumerGroupOffsets(group)
                    .partitionsToOffsetAndMetadata()
                    .get()
                    .forEach(
                            (at, offset) -> {
                                // Null: an offset of the earlier topic, until it is deleted.
                                if (offset != null) {
                                    offsets.put(at.topic(), offset.offset());
                                }
                            });
            return offsets;
        }
    }

    /** Create a topic once the one of the same name is gone. */
    private static void create(Admin admin, String topic) throws Exception {
        long late = System.nanoTime() + DEADLINE_NS;
        while (true) {
            try {
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
                return;
            } catch (ExecutionException error) {
                if (System.nanoTime() > late) {
                    throw error;
                }
                Thread.sleep(20);
            }
        }
    }
}
