import com.fasterxml.jackson.databind.JsonNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Matches names as the subscriptions of consumer groups do. */
final class Expressions {
    /** Answers the names that an expression matches, or what is wrong with it. */
    static Object matching(JsonNode command) {
        List<String> found = new ArrayList<>();
        try {
            Pattern expression = Pattern.compile(command.get("expression").asText());
            for (JsonNode name : command.get("names")) {
                if (expression.matcher(name.asText()).matches()) {
                    found.add(name.asText());
                }
            }
        } catch (PatternSyntaxException error) {
            return error.getDescription();
        }
        return found;
    }
}
