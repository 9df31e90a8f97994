import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes to and reads from the first partition of a topic. */
final class DataPath {
    static final int DEADLINE_S = 30;

    record Field(String key, byte[] value) {}

    record Message(byte[] key, byte[] value, List<Field> headers, long timestamp) {}

    static void register(Map<String, Resident.Command> commands) {
        commands.put("write", DataPath::write);
        commands.put("read", DataPath::read);
    }

    /** The client's defaults with the options of the test. */
    static Map<String, Object> config(JsonNode command) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", command.get("servers").asText());
        JsonNode options = command.path("options");
        options.fieldNames().forEachRemaining(key -> config.put(key, options.get(key).asText()));
        return config;
    }

    private static List<Long> write(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        Map<String, Object> config = config(command);
        config.put("compression.type", command.get("codec").asText());
        config.put("linger.ms", 20);
        Message[] messages = Resident.JSON.treeToValue(command.get("messages"), Message[].class);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        try (var producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Message each : messages) {
                List<Header> headers = new ArrayList<>();
                each.headers().forEach(it -> headers.add(new RecordHeader(it.key(), it.value())));
                sent.add(
                        producer.send(
                                new ProducerRecord<>(
                                        topic, 0, each.timestamp(), each.key(), each.value(),
                                        headers)));
            }
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get(DEADLINE_S, TimeUnit.SECONDS).offset());
            }
        }
        return offsets;
    }

    private static List<Message> read(JsonNode command) {
        TopicPartition partition = new TopicPartition(command.get("topic").asText(), 0);
        int count = command.get("count").asInt();
        List<Message> messages = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
        try (var consumer =
                new KafkaConsumer<>(
                        config(command), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            if (command.path("since").isNumber()) {
                long since = command.get("since").asLong();
                OffsetAndTimestamp first =
                        consumer.offsetsForTimes(Map.of(partition, since)).get(partition);
                consumer.seek(partition, first.offset());
            } else {
                consumer.seekToBeginning(List.of(partition));
            }
            while (messages.size() < count && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(it -> messages.add(message(it)));
            }
        }
        return messages.subList(0, Math.min(count, messages.size()));
    }

    private static Message message(ConsumerRecord<byte[], byte[]> record) {
        List<Field> headers = new ArrayList<>();
        record.headers().forEach(it -> headers.add(new Field(it.key(), it.value())));
        return new Message(record.key(), record.value(), headers, record.timestamp());
    }
}
