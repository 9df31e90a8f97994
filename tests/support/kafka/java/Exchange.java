import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Several clients at once, each with options of its own. Each writes numbers to its topic, one in a
 * transaction, and reads them in a group as read_committed before it writes the next.
 */
final class Exchange {
    private static final String ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls";

    static void register(Map<String, Resident.Command> commands) {
        commands.put("exchange", Exchange::run);
    }

    /**
     * Arguments: clients, count, and seconds after the first record. Returns the records that each
     * client has read.
     */
    private static List<List<String>> run(JsonNode command) throws Exception {
        System.setProperty(ALLOWED_URLS, command.path("token_url").asText());
        List<Future<List<String>>> running = new ArrayList<>();
        List<List<String>> read = new ArrayList<>();
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            for (JsonNode each : command.get("clients")) {
                running.add(threads.submit(() -> exchange(each, command)));
            }
            for (Future<List<String>> each : running) {
                read.add(each.get());
            }
        } finally {
            threads.shutdownNow();
        }
        return read;
    }

    private static List<String> exchange(JsonNode client, JsonNode command) {
        String topic = client.get("topic").asText();
        int count = command.get("count").asInt();
        long duration = TimeUnit.SECONDS.toNanos(command.get("seconds").asLong());
        Map<String, Object> writing = DataPath.config(client);
        writing.put("transactional.id", topic);
        Map<String, Object> reading = DataPath.config(client);
        reading.put("group.id", topic);
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        List<String> read = new ArrayList<>();
        try (var producer =
                        new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
                var consumer =
                        new KafkaConsumer<>(
                                reading, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "aborted"));
            producer.flush();
            producer.abortTransaction();
            long first = 0;
            for (int number = 0;
                    number < count || System.nanoTime() - first < duration;
                    number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, String.valueOf(number)));
                producer.commitTransaction();
                long late = System.nanoTime() + TimeUnit.SECONDS.toNanos(DataPath.DEADLINE_S);
                while (read.size() <= number && System.nanoTime() < late) {
                    consumer.poll(Duration.ofMillis(100)).forEach(it -> read.add(it.value()));
                }
                first = number == 0 ? System.nanoTime() : first;
            }
        }
        return read;
    }
}
