import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;

/** Prints the keys of brokers with their types and update modes, and the keys of clients. */
public class ConfigKeys {
    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        KafkaConfig.configDef().configKeys().forEach((name, key) ->
            System.out.println("broker " + name + " " + key.type + " " + modes.getOrDefault(name, "read-only")));
        print("numbers", KafkaConfig.configDef());
        print("group", GroupConfig.CONFIG_DEF);
        Set<String> names = new TreeSet<>(AdminClientConfig.configNames());
        names.addAll(ConsumerConfig.configNames());
        names.addAll(ProducerConfig.configNames());
        names.forEach(name -> System.out.println("client " + name));
    }

    private static void print(String side, ConfigDef table) {
        table.configKeys().values().stream()
                .filter(key -> key.type == ConfigDef.Type.INT)
                .forEach(key -> System.out.println(
                        side + " " + key.name + " " + key.defaultValue + " " + key.validator));
    }
}
