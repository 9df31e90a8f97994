import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * One JVM for many tests: reads commands as JSON, one per line, and answers each with one line.
 *
 * <p>A command is {"do": name, ...arguments}; an answer {"value": ...} or {"error": text}. The JVM
 * ends with its standard input.
 */
public final class Resident {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Command {
        Object carryOut(JsonNode arguments) throws Exception;
    }

    public static void main(String[] none) throws IOException {
        PrintStream answers = System.out;
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Command> known = new HashMap<>();
        Tools.register(known);
        DataPath.register(known);
        Members.register(known);
        Administrator.register(known);
        Exchange.register(known);
        ManyPartitions.register(known);
        Codecs.register(known);
        // Of newer jars than some JVMs have: their classes are loaded when they are called.
        known.put("assign", command -> Assignors.assign(command));
        known.put("matching", command -> Expressions.matching(command));
        known.put("stream", command -> Streaming.stream(command));
        known.put("recreate", command -> Streaming.recreate(command));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(answer(known, JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(Map<String, Command> known, JsonNode command) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("value", known.get(command.get("do").asText()).carryOut(command));
        } catch (Exception error) {
            answer.put("error", String.valueOf(error));
        }
        return answer;
    }
}
