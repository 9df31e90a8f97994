// Hold the commit of a transaction, and see that its client waits. Client: kafka-clients.
//
//     barnabas serve --faults localhost:9500
//     BARNABAS_FAULTS_TOKEN=... java -cp 'jars/*' HoldCommit.java localhost:9092 http://localhost:9500
//
// With the token that the start has printed it prints:
//
//     held 1 EndTxn, committed: false
//     released, committed: true
//     read: paid

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class HoldCommit {
    private static final String NAME = "examples.faults.java";
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], faults = arguments[1] + "/v1";
        var settings = Map.<String, Object>of("bootstrap.servers", servers, "transactional.id", NAME);
        var texts = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(settings, texts, texts)) {
            String hold = "{\"api\": \"EndTxn\", \"transactional_id\": \"" + NAME + "\"}";
            String lever = faults + "/levers/" + number("lever", post(faults + "/hold", hold));
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(NAME, "paid")).get();
            var commit = CompletableFuture.runAsync(producer::commitTransaction);
            int touched = number("touched", post(lever + "/wait", "{}"));
            System.out.printf("held %d EndTxn, committed: %b%n", touched, commit.isDone());
            post(lever + "/release", "{}");
            commit.get(30, TimeUnit.SECONDS);
            System.out.printf("released, committed: %b%n", commit.isDone());
        }
        read(servers);
    }

    private static void read(String servers) {
        var settings = Map.<String, Object>of("bootstrap.servers", servers,
            "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        var texts = new StringDeserializer();
        try (var consumer = new KafkaConsumer<String, String>(settings, texts, texts)) {
            consumer.assign(List.of(new TopicPartition(NAME, 0)));
            while (true) {
                for (var each : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println("read: " + each.value());
                    return;
                }
            }
        }
    }

    private static String post(String url, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(url))
            .header("Content-Type", "application/json")
            .header("Authorization", "Bearer " + System.getenv("BARNABAS_FAULTS_TOKEN"))
            .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        var answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IllegalStateException(url + ": " + answer.body());
        }
        return answer.body();
    }

    /** Return a number of an answer; a test of your own has a parser of JSON. */
    private static int number(String field, String json) {
        var found = Pattern.compile("\"" + field + "\": (\\d+)").matcher(json);
        if (!found.find()) {
            throw new IllegalStateException(json);
        }
        return Integer.parseInt(found.group(1));
    }
}
