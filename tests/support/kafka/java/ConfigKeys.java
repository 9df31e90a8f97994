import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;

/** Prints the keys of brokers with their types and update modes, and the keys of clients. */
public class ConfigKeys {
    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        KafkaConfig.configDef().configKeys().forEach((name, key) ->
            System.out.println("broker " + name + " " + key.type + " " + modes.getOrDefault(name, "read-only")));
        Set<String> names = new TreeSet<>(AdminClientConfig.configNames());
        names.addAll(ConsumerConfig.configNames());
        names.addAll(ProducerConfig.configNames());
        names.forEach(name -> System.out.println("client " + name));
    }
}
