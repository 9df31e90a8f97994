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
 * One JVM for many tests: reads orders as JSON, one a line, and answers each with one line.
 *
 * <p>An order is {"do": name, ...arguments}; an answer {"value": ...} or {"error": text}. The JVM
 * ends with its standard input.
 */
public final class Resident {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Order {
        Object carryOut(JsonNode arguments) throws Exception;
    }

    public static void main(String[] none) throws IOException {
        PrintStream answers = System.out;
        BufferedReader orders =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Order> known = new HashMap<>();
        Tools.register(known);
        DataPath.register(known);
        Members.register(known);
        Administrator.register(known);
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(JSON.writeValueAsString(answer(known, JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(Map<String, Order> known, JsonNode order) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("value", known.get(order.get("do").asText()).carryOut(order));
        } catch (Exception error) {
            answer.put("error", String.valueOf(error));
        }
        return answer;
    }
}
