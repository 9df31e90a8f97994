#!/usr/bin/env bash
# Seen: a producer of Kafka 4.4 whose broker is replaced by one of another cluster at the same address goes on writing
#   to the other cluster, without an error to the application, though metadata.cluster.check.enable is true by default.
# Versions: org.apache.kafka:kafka_2.13:4.4.0, with the clients of the same release.
# Why a guess is wrong: the key's name, and the cluster id that the client sends with each connection since 4.4, suggest
#   a guard against the wrong cluster. The broker does answer REBOOTSTRAP_REQUIRED, and the client then asks its
#   bootstrap servers again: the same address, which is now the other cluster's.
# What follows: where addresses are reused (tests, containers, a restored environment) compare Admin.describeCluster()
#   before and after; the key only helps where the bootstrap servers name another address.
# Source: KIP-1242; own measurement.
set -euo pipefail
dir=$(mktemp -d)
kafka=
trap '[ -z "$kafka" ] || kill "$kafka"; wait; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
start_kafka 4.4.0 2

cat >"$dir/Seen.java" <<'END'
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

public class Seen {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", arguments[0]));
        Scanner lines = new Scanner(System.in);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String cluster : List.of("first", "second")) {
                lines.nextLine();
                producer.send(new ProducerRecord<>("t", cluster)).get(100, TimeUnit.SECONDS);
                try (var admin = Admin.create(config)) {
                    System.out.println("written to cluster " + admin.describeCluster().clusterId().get());
                }
            }
        }
    }
}
END
mkfifo "$dir/turns"
java -cp "$dir/kafka/*" "$dir/Seen.java" "127.0.0.1:$port" <"$dir/turns" >"$dir/said" 2>"$dir/errors" &
client=$!
exec 4>"$dir/turns"
echo >&4
until grep -q written "$dir/said"; do kill -0 $client || { cat "$dir/errors"; exit 1; }; sleep 0.2; done
kill "$kafka"
wait "$kafka" || true
rm -rf "$dir/data"
run=(java -Xmx384m -XX:+UseSerialGC -cp "$dir/kafka/*")
"${run[@]}" kafka.tools.StorageTool format -t FindingsCluster1000000 -c "$dir/server.properties" >"$dir/kafka.log" 2>&1
"${run[@]}" kafka.Kafka "$dir/server.properties" >"$dir/kafka.log" 2>&1 &
kafka=$!
echo >&4
wait $client || { cat "$dir/errors"; exit 1; }
cat "$dir/said"
diff "$dir/said" - <<'EXPECTED'
written to cluster FindingsCluster0000000
written to cluster FindingsCluster1000000
EXPECTED
