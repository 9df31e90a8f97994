import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Members of groups, each polled by its own thread. */
final class Members {
    record Seen(List<Integer> owned, List<String> read, int revoked) {}

    private static final Map<String, Member> MEMBERS = new HashMap<>();

    static void register(Map<String, Resident.Command> commands) {
        commands.put("join", Members::join);
        commands.put("state", command -> member(command).inTurn(member(command)::seen));
        commands.put("commit", command -> member(command).inTurn(member(command)::commit));
        commands.put("lag", command -> member(command).inTurn(member(command)::lag));
        commands.put("leave", Members::leave);
    }

    private static Object join(JsonNode command) {
        Member member = new Member(DataPath.config(command), command.get("topic").asText());
        MEMBERS.put(command.get("name").asText(), member);
        member.start();
        return null;
    }

    private static Object leave(JsonNode command) throws Exception {
        Member member = MEMBERS.remove(command.get("name").asText());
        member.leaving = true;
        member.join();
        return null;
    }

    private static Member member(JsonNode command) {
        return MEMBERS.get(command.get("name").asText());
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;
        private final ConcurrentLinkedQueue<FutureTask<Object>> commands =
                new ConcurrentLinkedQueue<>();
        private final List<String> read = new ArrayList<>();
        private int revoked;
        volatile boolean leaving;

        Member(Map<String, Object> config, String topic) {
            super("member");
            setDaemon(true);
            consumer =
                    new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
        }

        @Override
        public void run() {
            try (consumer) {
                while (!leaving) {
                    consumer.poll(Duration.ofMillis(20)).forEach(it -> read.add(it.value()));
                    for (var command = commands.poll(); command != null; command = commands.poll()) {
                        command.run();
                    }
                }
            }
        }

        /** Runs a command in the thread that owns the consumer. */
        Object inTurn(Callable<Object> command) throws Exception {
            FutureTask<Object> task = new FutureTask<>(command);
            commands.add(task);
            return task.get(DataPath.DEADLINE_S, TimeUnit.SECONDS);
        }

        Seen seen() {
            List<Integer> owned = new ArrayList<>();
            consumer.assignment().forEach(it -> owned.add(it.partition()));
            return new Seen(owned, List.copyOf(read), revoked);
        }

        Object commit() {
            consumer.commitSync();
            return null;
        }

        Object lag() {
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            return ends.entrySet().stream()
                    .mapToLong(it -> it.getValue() - consumer.position(it.getKey()))
                    .sum();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked += partitions.size();
        }
    }
}
