import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** An administrator's calls of Java's Admin. */
final class Administrator {
    interface Call {
        Object make(Admin admin, JsonNode command) throws Exception;
    }

    record Cluster(Set<Integer> nodes, int controller) {}

    record Group(String state, int members) {}

    static void register(Map<String, Resident.Command> commands) {
        Map<String, Call> calls =
                Map.ofEntries(
                        Map.entry("create_topic", Administrator::createTopic),
                        Map.entry("topics", (admin, command) -> admin.listTopics().names().get()),
                        Map.entry("partitions", Administrator::partitions),
                        Map.entry("grow", Administrator::grow),
                        Map.entry("delete_topic", Administrator::deleteTopic),
                        Map.entry("set_config", Administrator::setConfig),
                        Map.entry("config", Administrator::config),
                        Map.entry("delete_records", Administrator::deleteRecords),
                        Map.entry("log_size", Administrator::logSize),
                        Map.entry("cluster", Administrator::cluster),
                        Map.entry("groups", Administrator::groups),
                        Map.entry("group", Administrator::group),
                        Map.entry("delete_group", Administrator::deleteGroup),
                        Map.entry("offsets", Administrator::offsets),
                        Map.entry("alter_offset", Administrator::alterOffset),
                        Map.entry("delete_offset", Administrator::deleteOffset));
        calls.forEach((name, call) -> commands.put(name, command -> made(call, command)));
    }

    private static Object made(Call call, JsonNode command) throws Exception {
        try (Admin admin = Admin.create(DataPath.config(command))) {
            return call.make(admin, command);
        }
    }

    private static String text(JsonNode command, String name) {
        return command.get(name).asText();
    }

    private static TopicPartition place(JsonNode command) {
        return new TopicPartition(text(command, "topic"), command.get("partition").asInt());
    }

    private static Object createTopic(Admin admin, JsonNode command) throws Exception {
        int partitions = command.get("partitions").asInt();
        NewTopic topic =
                new NewTopic(text(command, "topic"), Optional.of(partitions), Optional.empty());
        return admin.createTopics(List.of(topic)).all().get();
    }

    private static Object partitions(Admin admin, JsonNode command) throws Exception {
        String topic = text(command, "topic");
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions()
                .size();
    }

    private static Object grow(Admin admin, JsonNode command) throws Exception {
        NewPartitions to = NewPartitions.increaseTo(command.get("partitions").asInt());
        return admin.createPartitions(Map.of(text(command, "topic"), to)).all().get();
    }

    private static Object deleteTopic(Admin admin, JsonNode command) throws Exception {
        return admin.deleteTopics(List.of(text(command, "topic"))).all().get();
    }

    private static ConfigResource resource(JsonNode command) {
        return new ConfigResource(ConfigResource.Type.TOPIC, text(command, "topic"));
    }

    private static Object setConfig(Admin admin, JsonNode command) throws Exception {
        ConfigEntry entry = new ConfigEntry(text(command, "key"), text(command, "value"));
        AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(resource(command), List.of(set))).all().get();
    }

    private static Object config(Admin admin, JsonNode command) throws Exception {
        ConfigResource topic = resource(command);
        return admin.describeConfigs(List.of(topic)).all().get().get(topic)
                .get(text(command, "key")).value();
    }

    private static Object deleteRecords(Admin admin, JsonNode command) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before").asLong());
        TopicPartition place = place(command);
        return admin.deleteRecords(Map.of(place, before)).lowWatermarks().get(place).get()
                .lowWatermark();
    }

    private static Object logSize(Admin admin, JsonNode command) throws Exception {
        String topic = text(command, "topic");
        return admin.describeLogDirs(List.of(command.get("node").asInt())).allDescriptions().get()
                .values().stream()
                .flatMap(directories -> directories.values().stream())
                .flatMap(directory -> directory.replicaInfos().entrySet().stream())
                .filter(replica -> replica.getKey().topic().equals(topic))
                .mapToLong(replica -> replica.getValue().size())
                .sum();
    }

    private static Object cluster(Admin admin, JsonNode command) throws Exception {
        var cluster = admin.describeCluster();
        Set<Integer> nodes = new TreeSet<>();
        for (Node node : cluster.nodes().get()) {
            nodes.add(node.id());
        }
        return new Cluster(nodes, cluster.controller().get().id());
    }

    private static Object groups(Admin admin, JsonNode command) throws Exception {
        return admin.listGroups().all().get().stream().map(it -> it.groupId()).sorted().toList();
    }

    private static Object group(Admin admin, JsonNode command) throws Exception {
        String name = text(command, "group");
        ConsumerGroupDescription group =
                admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        return new Group(group.groupState().toString(), group.members().size());
    }

    private static Object deleteGroup(Admin admin, JsonNode command) throws Exception {
        return admin.deleteConsumerGroups(List.of(text(command, "group"))).all().get();
    }

    private static Object offsets(Admin admin, JsonNode command) throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.listConsumerGroupOffsets(text(command, "group")).partitionsToOffsetAndMetadata().get()
                .forEach((place, offset) -> offsets.put(place.partition(), offset.offset()));
        return offsets;
    }

    private static Object alterOffset(Admin admin, JsonNode command) throws Exception {
        OffsetAndMetadata offset = new OffsetAndMetadata(command.get("offset").asLong());
        return admin.alterConsumerGroupOffsets(text(command, "group"), Map.of(place(command), offset))
                .all().get();
    }

    private static Object deleteOffset(Admin admin, JsonNode command) throws Exception {
        return admin.deleteConsumerGroupOffsets(text(command, "group"), Set.of(place(command))).all()
                .get();
    }
}
