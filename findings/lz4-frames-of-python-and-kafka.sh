#!/usr/bin/env bash
# LZ4 frames that Python's libraries write by default, and Kafka's Java clients.
#
# Seen with lz4 4.4.5 and cramjam 2.14.0 (Python), kafka-clients 4.3.1 and Java 17.
# - Kafka's reader of LZ4 takes frames of independent blocks only; the flag is bit 5 of the fifth byte.
# - cramjam.lz4.compress has no option for it and links the blocks, even of ten bytes in one block: Kafka's Java reader
#   refuses every frame of it. cramjam.lz4.Compressor(block_linked=False) makes one that it takes.
# - lz4.frame.compress says block_linked=True by default, but clears the flag where the content fits one block (64 KB
#   with its default block size). So a test with small records passes, and the first batch above 64 KB is refused.
# Why a guess is wrong: the frame is valid, every LZ4 library reads it, and the option's name and default suggest that
# its effect does not depend on the size of the content.
# What follows: a producer in Python gives block_linked=False, and is tested with batches of more than 64 KB.
# Source: KIP-57 (interoperable LZ4 framing); python-lz4's documentation of lz4.frame.compress; own measurement.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
cd "$dir"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check lz4==4.4.5 cramjam==2.14.0
fetch jars org.apache.kafka:kafka-clients:4.3.1
cat > write.py <<'PYTHON'
import cramjam
from lz4 import frame

for name, data in (
    ("lz4 frame.compress, 1 KB", frame.compress(bytes(1_000))),
    ("lz4 frame.compress, 100 KB", frame.compress(bytes(100_000))),
    ("lz4 frame.compress(block_linked=False), 100 KB", frame.compress(bytes(100_000), block_linked=False)),
    ("cramjam lz4.compress, 10 bytes", bytes(cramjam.lz4.compress(bytes(10)))),
):
    print(f"{name}\t{data.hex()}")
PYTHON
cat > Reads.java <<'JAVA'
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.compress.Lz4BlockInputStream;
import org.apache.kafka.common.utils.BufferSupplier;

public class Reads {
    public static void main(String[] none) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] fields = lines.nextLine().split("\t");
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(fields[1]));
            String said;
            try (var in = new Lz4BlockInputStream(data, BufferSupplier.NO_CACHING, false)) {
                said = in.readAllBytes().length + " bytes read";
            } catch (Exception error) {
                said = "refused: " + error.getMessage();
            }
            System.out.println(fields[0] + ": " + said);
        }
    }
}
JAVA
venv/bin/python write.py | java -cp 'jars/*' Reads.java 2>/dev/null | tee said
diff said - <<'EXPECTED'
lz4 frame.compress, 1 KB: 1000 bytes read
lz4 frame.compress, 100 KB: refused: Dependent block stream is unsupported
lz4 frame.compress(block_linked=False), 100 KB: 100000 bytes read
cramjam lz4.compress, 10 bytes: refused: Dependent block stream is unsupported
EXPECTED
