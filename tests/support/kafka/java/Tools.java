import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command-line tools in this JVM. */
final class Tools {
    record Finished(int code, String text, String errors) {}

    /** Thrown instead of a tool's exit. */
    private static final class Exited extends Error {}

    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer exitCode;

    static void register(Map<String, Resident.Command> commands) {
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        commands.put("tool", Tools::run);
    }

    /** Keeps the first code: a tool may catch the error and exit again. */
    private static void exit(int code, String message) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Exited();
    }

    private static Finished run(JsonNode command) throws Exception {
        InputStream stdin = System.in;
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        byte[] input = command.get("stdin").asText().getBytes(StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(text, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            call(command);
            HOOKS.forEach(Runnable::run);
        } finally {
            HOOKS.clear();
            System.setIn(stdin);
            System.setOut(stdout);
            System.setErr(stderr);
        }
        return new Finished(exitCode, printed(text), printed(errors));
    }

    private static void call(JsonNode command) throws Exception {
        String[] arguments = Resident.JSON.treeToValue(command.get("arguments"), String[].class);
        Class<?> tool = Class.forName(command.get("main").asText());
        exitCode = null;
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            exitCode = exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Exited)) {
                raised.getCause().printStackTrace();
                exitCode = 1;
            }
        }
    }

    private static String printed(ByteArrayOutputStream output) {
        return output.toString(StandardCharsets.UTF_8);
    }
}
