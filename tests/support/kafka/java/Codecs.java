import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;

/** Reads the records of batches, as brokers and consumers do. */
final class Codecs {
    record Read(List<byte[]> values, String error) {}

    static void register(Map<String, Resident.Command> commands) {
        commands.put("records", Codecs::records);
    }

    /** Answers the values of a batch's records, or the error: snappy-java throws Errors too. */
    private static Read records(JsonNode command) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(command.get("batch").binaryValue());
        List<byte[]> values = new ArrayList<>();
        try {
            for (RecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                for (Record record : batch) {
                    values.add(Utils.toArray(record.value()));
                }
            }
        } catch (RuntimeException | Error error) {
            return new Read(null, String.valueOf(error));
        }
        return new Read(values, null);
    }
}
