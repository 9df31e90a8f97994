import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** A connector of Kafka Connect that prints what {@code member_program.py} documents. */
public final class PrintingSink extends SinkConnector {
    /** The task of the connector. */
    public static final class Printing extends SinkTask {
        private final TreeSet<Integer> owned = new TreeSet<>();

        @Override
        public void open(Collection<TopicPartition> opened) {
            opened.forEach(it -> owned.add(it.partition()));
            tellOwned();
        }

        @Override
        public void close(Collection<TopicPartition> closed) {
            closed.forEach(it -> owned.remove(it.partition()));
            tellOwned();
        }

        private void tellOwned() {
            StringBuilder line = new StringBuilder("owns");
            owned.forEach(it -> line.append(' ').append(it));
            System.out.println(line);
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            records.forEach(
                    it -> System.out.println("read " + it.kafkaPartition() + " " + it.value()));
        }

        @Override
        public void start(Map<String, String> config) {}

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }

    private Map<String, String> config;

    @Override
    public void start(Map<String, String> started) {
        config = started;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(config);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Printing.class;
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public String version() {
        return "1";
    }
}
