import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;

/** Runs Kafka's command-line tools in this JVM. */
final class Tools {
    record Finished(int code, String text, String errors) {}

    /** Thrown instead of a tool's exit. */
    private static final class Exited extends Error {}

    /**
     * A stream that stays, because Scala's println keeps its first one, with a target for each tool:
     * a client that an earlier tool has left open writes into that tool's output, not into this one's.
     */
    private static final class Redirected extends OutputStream {
        private final InheritableThreadLocal<OutputStream> target = new InheritableThreadLocal<>();
        private final OutputStream idle;

        Redirected(OutputStream idle) {
            this.idle = idle;
        }

        PrintStream stream() {
            return new PrintStream(this, true, StandardCharsets.UTF_8);
        }

        /** Redirects what this thread writes, and the threads that it starts from now on. */
        void to(OutputStream wanted) {
            target.set(wanted);
        }

        private OutputStream current() {
            OutputStream own = target.get();
            return own == null ? idle : own;
        }

        @Override
        public void write(int one) throws IOException {
            current().write(one);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            current().write(bytes, offset, length);
        }

        @Override
        public void flush() throws IOException {
            current().flush();
        }
    }

    private static final Redirected OUT = new Redirected(System.err);
    private static final Redirected ERR = new Redirected(System.err);
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer exitCode;

    static void register(Map<String, Resident.Command> commands) {
        System.setOut(OUT.stream());
        System.setErr(ERR.stream());
        try {
            replaceExit();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
        commands.put("tool", Tools::run);
    }

    /** Kafka 4.4 has the class in another package than the releases before it. */
    private static void replaceExit() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        InvocationHandler end =
                (proxy, method, arguments) -> {
                    exit((int) arguments[0]);
                    return null;
                };
        replace(exit, "setExitProcedure", end);
        replace(exit, "setHaltProcedure", end);
        replace(
                exit,
                "setShutdownHookAdder",
                (proxy, method, arguments) -> {
                    HOOKS.add((Runnable) arguments[1]);
                    return null;
                });
    }

    /** Call a static setter of an interface with one method. */
    private static void replace(Class<?> exit, String setter, InvocationHandler handler)
            throws ReflectiveOperationException {
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> type = method.getParameterTypes()[0];
                ClassLoader loader = type.getClassLoader();
                method.invoke(null, Proxy.newProxyInstance(loader, new Class<?>[] {type}, handler));
            }
        }
    }

    /** Keeps the first code: a tool may catch the error and exit again. */
    private static void exit(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Exited();
    }

    private static Finished run(JsonNode command) throws Exception {
        InputStream stdin = System.in;
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        byte[] input = command.get("stdin").asText().getBytes(StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(input));
        OUT.to(text);
        ERR.to(errors);
        Set<Thread> before = Thread.getAllStackTraces().keySet();
        try {
            call(command);
            HOOKS.forEach(Runnable::run);
            closeClients(before);
        } finally {
            HOOKS.clear();
            System.setIn(stdin);
            OUT.to(null);
            ERR.to(null);
        }
        return new Finished(exitCode, printed(text), printed(errors));
    }

    /** Closes the admin clients of a tool that left them open: they would ask its broker for ever. */
    private static void closeClients(Set<Thread> before) throws ReflectiveOperationException {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("kafka-admin-client-thread")
                    && !before.contains(thread)) {
                Object work = field(Thread.class, "target").get(thread);
                if (work != null) {
                    ((Admin) field(work.getClass(), "this$0").get(work)).close(Duration.ZERO);
                }
            }
        }
    }

    private static Field field(Class<?> of, String name) throws ReflectiveOperationException {
        Field field = of.getDeclaredField(name);
        field.setAccessible(true);
        return field;
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
