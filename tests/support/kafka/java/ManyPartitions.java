import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Calls that name partitions, each about all partitions of a topic at once. */
final class ManyPartitions {
    private static final String GROUP = "many";

    static void register(Map<String, Resident.Command> commands) {
        commands.put("create_many_partitions", ManyPartitions::create);
        commands.put("use_many_partitions", ManyPartitions::use);
    }

    /** Arguments: servers, topic, and count of its partitions, each of which is named. */
    private static Object create(JsonNode command) throws Exception {
        try (Admin admin = Admin.create(DataPath.config(command))) {
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            Map<Integer, List<Integer>> replicas =
                    all(command).stream()
                            .collect(Collectors.toMap(TopicPartition::partition, it -> List.of(node)));
            NewTopic topic = new NewTopic(command.get("topic").asText(), replicas);
            return admin.createTopics(List.of(topic)).all().get();
        }
    }

    /**
     * Arguments: servers, topic, and count of its partitions. Returns for each call the number of
     * partitions whose answer is right.
     */
    private static Map<String, Long> use(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        List<TopicPartition> all = all(command);
        Map<String, Long> right = new LinkedHashMap<>();
        try (Admin admin = Admin.create(DataPath.config(command))) {
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            right.put("describeTopics", (long) described.partitions().size());
            transact(command, all);
            consume(command, all, right);
            var latest = admin.listOffsets(each(all, it -> OffsetSpec.latest())).all().get();
            // A record and the marker of its transaction.
            right.put("listOffsets", count(latest.values(), it -> it.offset() == 2));
            var deleted = admin.deleteRecords(each(all, it -> RecordsToDelete.beforeOffset(1)));
            long begin = 0;
            for (var watermark : deleted.lowWatermarks().values()) {
                begin += watermark.get().lowWatermark();
            }
            right.put("deleteRecords", begin);
            admin.deleteConsumerGroupOffsets(GROUP, Set.copyOf(all)).all().get();
            var left = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get();
            right.put("deleteConsumerGroupOffsets", (long) all.size() - left.size());
        }
        return right;
    }

    private static List<TopicPartition> all(JsonNode command) {
        String topic = command.get("topic").asText();
        return IntStream.range(0, command.get("count").asInt())
                .mapToObj(index -> new TopicPartition(topic, index))
                .toList();
    }

    /** Writes a record into each partition, and commits offset 7 of each, in one transaction. */
    private static void transact(JsonNode command, List<TopicPartition> all) {
        Map<String, Object> config = DataPath.config(command);
        config.put("transactional.id", GROUP);
        // One request for all batches, whose buffers are small.
        config.put("linger.ms", 10_000);
        config.put("batch.size", 200);
        try (var producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
                var member =
                        new KafkaConsumer<>(
                                consuming(command),
                                new StringDeserializer(),
                                new StringDeserializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            all.forEach(it -> producer.send(new ProducerRecord<>(it.topic(), it.partition(), "", "")));
            producer.sendOffsetsToTransaction(
                    each(all, it -> new OffsetAndMetadata(7)), member.groupMetadata());
            producer.commitTransaction();
        }
    }

    private static void consume(JsonNode command, List<TopicPartition> all, Map<String, Long> right) {
        try (var consumer =
                new KafkaConsumer<>(
                        consuming(command), new StringDeserializer(), new StringDeserializer())) {
            // Waits for the end of the transaction.
            var sent = consumer.committed(Set.copyOf(all)).values();
            right.put("sendOffsets", count(sent, it -> it.offset() == 7));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long read = 0;
            long late = System.nanoTime() + TimeUnit.SECONDS.toNanos(DataPath.DEADLINE_S);
            while (read < all.size() && System.nanoTime() < late) {
                read += consumer.poll(Duration.ofMillis(100)).count();
            }
            right.put("poll", read);
            consumer.commitSync(each(all, it -> new OffsetAndMetadata(1)));
            var committed = consumer.committed(Set.copyOf(all)).values();
            right.put("committed", count(committed, it -> it.offset() == 1));
        }
    }

    private static Map<String, Object> consuming(JsonNode command) {
        Map<String, Object> config = DataPath.config(command);
        config.put("group.id", GROUP);
        config.put("enable.auto.commit", false);
        config.put("isolation.level", "read_committed");
        return config;
    }

    private static <T> Map<TopicPartition, T> each(
            List<TopicPartition> all, Function<TopicPartition, T> value) {
        Map<TopicPartition, T> values = new HashMap<>();
        all.forEach(it -> values.put(it, value.apply(it)));
        return values;
    }

    private static <T> long count(Collection<T> all, Predicate<T> isRight) {
        return all.stream().filter(isRight).count();
    }
}
