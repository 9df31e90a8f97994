#!/usr/bin/env bash
# Avro's check of compatibility, and logical types that change their unit or scale.
#
# Seen with Avro 1.12.1 (Java 17) and fastavro 1.13.1.
# - A field changes from timestamp-millis to timestamp-micros, or a decimal from scale 2 to scale 4. Avro's
#   SchemaCompatibility, which schema registries ask, says COMPATIBLE: it compares the types below the logical ones.
# - Java reads the older records by the logical type of the reader: noon of 2026-01-01 is in January 1970, 1.50 is
#   0.0150. There is no error, and no warning.
# - fastavro reads the same bytes by the logical type of the writer: both values are right.
# Why a guess is wrong: the registry accepted the version as backward compatible, a test with consumers in Python shows
# that old records keep their values, and the specification wants equal scales of decimals, which the check ignores.
# What follows: a new field for a new unit or scale, or readers that take the writer's logical type into account.
# Source: Avro 1.12.1, SchemaCompatibility and Schema resolution in the specification; own measurement.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
cd "$dir"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check fastavro==1.13.1
fetch jars org.apache.avro:avro:1.12.1
cat > write.py <<'PYTHON'
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import fastavro


def schema(unit, scale):
    return {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": f"timestamp-{unit}"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale},
            },
        ],
    }


older, newer = schema("millis", 2), schema("micros", 4)
data = io.BytesIO()
order = {"at": datetime(2026, 1, 1, 12, tzinfo=UTC), "price": Decimal("1.50")}
fastavro.schemaless_writer(data, fastavro.parse_schema(older), order)
for name, content in (("older", older), ("newer", newer)):
    Path(name).write_text(json.dumps(content))
Path("data").write_bytes(data.getvalue())
data.seek(0)
found = fastavro.schemaless_reader(data, fastavro.parse_schema(older), fastavro.parse_schema(newer))
print(f"fastavro: {found['at']:%Y-%m-%dT%H:%M:%SZ} {found['price']}")
PYTHON
cat > Reads.java <<'JAVA'
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;

public class Reads {
    public static void main(String[] none) throws Exception {
        Schema older = new Schema.Parser().parse(Files.readString(Path.of("older")));
        Schema newer = new Schema.Parser().parse(Files.readString(Path.of("newer")));
        System.out.println("SchemaCompatibility: "
            + SchemaCompatibility.checkReaderWriterCompatibility(newer, older).getType());
        GenericData data = new GenericData();
        data.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        data.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        data.addLogicalTypeConversion(new Conversions.DecimalConversion());
        byte[] bytes = Files.readAllBytes(Path.of("data"));
        for (Schema reader : new Schema[] {older, newer}) {
            GenericRecord found = new GenericDatumReader<GenericRecord>(older, reader, data)
                .read(null, DecoderFactory.get().binaryDecoder(bytes, null));
            System.out.println((reader == older ? "Java, older schema: " : "Java, newer schema: ")
                + found.get("at") + " " + found.get("price"));
        }
    }
}
JAVA
{
    venv/bin/python write.py
    java -cp 'jars/*' Reads.java 2>/dev/null
} | tee said
diff said - <<'EXPECTED'
fastavro: 2026-01-01T12:00:00Z 1.50
SchemaCompatibility: COMPATIBLE
Java, older schema: 2026-01-01T12:00:00Z 1.50
Java, newer schema: 1970-01-21T10:54:28.800Z 0.0150
EXPECTED
