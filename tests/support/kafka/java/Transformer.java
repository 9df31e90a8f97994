import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consume, transform, produce with Java's clients: the counterpart of {@code transformer.py}, which
 * documents the transactions and the output.
 */
public final class Transformer {
    private static final int BATCH = 200;

    private interface Step<T> {
        T run() throws Exception;
    }

    private final Properties common = new Properties();
    private final int total;
    private final String name;
    private final String member;
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;
    private Map<Integer, Long> at = new HashMap<>();
    private int attempts;
    private volatile boolean stops;

    private Transformer(String servers, int total, String name, String member, String protocol) {
        this.total = total;
        this.name = name;
        this.member = member;
        common.put("bootstrap.servers", servers);
        common.put("reconnect.backoff.ms", 10);
        common.put("reconnect.backoff.max.ms", 100);
        common.put("retry.backoff.ms", 20);
        Properties config = new Properties();
        config.putAll(common);
        config.put("group.id", name + "transformers");
        config.put("group.protocol", protocol);
        if (protocol.equals("classic")) {
            // As in group_protocols.py.
            config.put("heartbeat.interval.ms", 200);
            config.put("session.timeout.ms", 6000);
        }
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("max.poll.records", BATCH);
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(name + "input"));
    }

    /**
     * Arguments: servers, number of records of the input, the route's name; for one of several
     * members its name and protocol.
     */
    public static void main(String[] arguments) throws Exception {
        int total = Integer.parseInt(arguments[1]);
        String member = arguments.length > 3 ? arguments[3] : "";
        String protocol = arguments.length > 3 ? arguments[4] : "classic";
        Transformer it = new Transformer(arguments[0], total, arguments[2], member, protocol);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> it.stopIn(main)));
        it.run();
    }

    /** Leaves the group after the current transaction. */
    private void stopIn(Thread main) {
        stops = true;
        try {
            main.join();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private void run() throws Exception {
        insist(this::renew);
        rewind();
        while (!stops && done(at) < total) {
            List<ConsumerRecord<String, String>> batch = take();
            if (batch.isEmpty()) {
                rewind();
                continue;
            }
            attempts++;
            try {
                transact(batch);
            } catch (Exception error) {
                recover(error);
            }
        }
        producer.close();
        consumer.close();
    }

    private static long done(Map<Integer, Long> offsets) {
        return offsets.values().stream().mapToLong(Long::longValue).sum();
    }

    /** Returns records for one transaction; none if not at the group's offsets, or if it stops. */
    private List<ConsumerRecord<String, String>> take() {
        List<ConsumerRecord<String, String>> batch = new ArrayList<>();
        Map<Integer, Long> expected = new HashMap<>(at);
        while (batch.isEmpty() && !stops) {
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                // A partition that it did not have at the rewind has no offset here.
                if (!expected.containsKey(each.partition())
                        || each.offset() != expected.get(each.partition())) {
                    return List.of();
                }
                expected.put(each.partition(), each.offset() + 1);
                batch.add(each);
            }
        }
        return batch;
    }

    private void transact(List<ConsumerRecord<String, String>> batch) throws Exception {
        // Those of its other partitions may belong to another member by now.
        Map<Integer, Long> after = new HashMap<>();
        batch.forEach(each -> after.put(each.partition(), each.offset() + 1));
        producer.beginTransaction();
        for (ConsumerRecord<String, String> each : batch) {
            producer.send(
                    new ProducerRecord<>(
                            name + "output", each.partition(), null, each.value() + " seen"));
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        after.forEach(
                (partition, offset) ->
                        offsets.put(
                                new TopicPartition(name + "input", partition),
                                new OffsetAndMetadata(offset)));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (attempts % 3 == 0) {
            producer.abortTransaction();
            tell("aborted");
            rewind();
        } else {
            producer.commitTransaction();
            tell("committed");
            at.putAll(after);
        }
    }

    private void recover(Exception error) throws Exception {
        tell("failed " + error);
        try {
            producer.abortTransaction();
        } catch (Exception refused) {
            tell("renewed " + refused);
            insist(this::renew);
        }
        rewind();
    }

    private Object renew() {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        Properties config = new Properties();
        config.putAll(common);
        config.put("transactional.id", name + "transformer" + member);
        producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return null;
    }

    private void rewind() throws Exception {
        at = insist(this::toGroup);
    }

    private Map<Integer, Long> toGroup() {
        while (consumer.assignment().isEmpty()) {
            consumer.poll(Duration.ofMillis(100));
        }
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        Map<Integer, Long> offsets = new HashMap<>();
        for (TopicPartition each : assigned) {
            OffsetAndMetadata known = committed.get(each);
            long offset = known == null ? 0 : known.offset();
            offsets.put(each.partition(), offset);
            consumer.seek(each, offset);
        }
        return offsets;
    }

    private static <T> T insist(Step<T> step) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (true) {
            try {
                return step.run();
            } catch (Exception error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                tell("again " + error);
                Thread.sleep(50);
            }
        }
    }

    private static void tell(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
