import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Assigns partitions to members of a consumer group. A topic is a number, its id is 0 and that. */
final class Assignors {
    private static Uuid id(String topic) {
        return new Uuid(0, Long.parseLong(topic));
    }

    static Object assign(JsonNode command) {
        Map<Uuid, Integer> counts = new HashMap<>();
        command.get("topics").fields().forEachRemaining(
                topic -> counts.put(id(topic.getKey()), topic.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (JsonNode row : command.get("members")) {
            String member = row.get("id").asText();
            Set<Uuid> topics = new HashSet<>();
            row.get("topics").forEach(topic -> topics.add(id(topic.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            row.get("assigned").fields().forEachRemaining(topic -> {
                Set<Integer> partitions = new TreeSet<>();
                topic.getValue().forEach(partition -> partitions.add(partition.asInt()));
                assigned.put(id(topic.getKey()), partitions);
                partitions.forEach(partition -> owners
                        .computeIfAbsent(id(topic.getKey()), any -> new HashMap<>())
                        .put(partition, member));
            });
            members.put(member, new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(),
                    Optional.ofNullable(row.get("instance").textValue()),
                    topics,
                    new Assignment(Collections.unmodifiableMap(assigned))));
        }
        ConsumerGroupPartitionAssignor assignor =
                command.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                throw new IllegalStateException("no assignor looks at racks");
            }
        };
        SubscriptionType kind = subscriptions.size() > 1
                ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        long start = System.nanoTime();
        GroupAssignment assignment = assignor.assign(new GroupSpecImpl(members, kind, owners), topics);
        double took = (System.nanoTime() - start) / 1e6;
        Map<String, Map<Long, Set<Integer>>> shares = new TreeMap<>();
        for (Map.Entry<String, MemberAssignment> member : assignment.members().entrySet()) {
            Map<Long, Set<Integer>> share = new TreeMap<>();
            member.getValue().partitions().forEach((topic, partitions) ->
                    share.put(topic.getLeastSignificantBits(), new TreeSet<>(partitions)));
            shares.put(member.getKey(), share);
        }
        return Map.of("shares", shares, "ms", took);
    }
}
