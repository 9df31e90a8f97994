#!/usr/bin/env bash
# Two compressed frames behind each other, as Kafka's Java clients read them.
#
# Seen with kafka-clients 4.3.1 and Java 17; written with lz4 4.4.5, zstandard 0.25.0 and Python's gzip.
# - gzip and zstd: both frames are read, as their formats say (RFC 1952, RFC 8878).
# - LZ4: the second frame is ignored without an error, though the LZ4 frame format allows frames behind each other. In
#   Python lz4.frame.open reads both, and lz4.frame.decompress the first one only.
# Why a guess is wrong: a producer that compresses a batch in parts works with two of three codecs. With the third the
# records of the later parts are missing, and the error names the size of the batch, not its compression.
# What follows: the records of a batch are one LZ4 frame.
# Source: LZ4 frame format 1.6.4 ("Frame Concatenation"); own measurement.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
cd "$dir"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check lz4==4.4.5 zstandard==0.25.0
fetch jars org.apache.kafka:kafka-clients:4.3.1
cat > write.py <<'PYTHON'
import gzip
import io

import zstandard
from lz4 import frame

one, two = b"first ", b"second"
for name, data in (
    ("gzip", gzip.compress(one) + gzip.compress(two)),
    ("lz4", frame.compress(one) + frame.compress(two)),
    ("zstd", zstandard.compress(one) + zstandard.compress(two)),
):
    print(f"{name}\t{data.hex()}")
both = frame.compress(one) + frame.compress(two)
with frame.open(io.BytesIO(both)) as file:
    assert file.read() == one + two
assert frame.decompress(both) == one
PYTHON
cat > Reads.java <<'JAVA'
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.BufferSupplier;

public class Reads {
    public static void main(String[] none) throws Exception {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] fields = lines.nextLine().split("\t");
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(fields[1]));
            var codec = Compression.of(fields[0]).build();
            try (var in = codec.wrapForInput(data, (byte) 2, BufferSupplier.NO_CACHING)) {
                System.out.println(fields[0] + ": " + new String(in.readAllBytes()));
            }
        }
    }
}
JAVA
venv/bin/python write.py | java -cp 'jars/*' Reads.java 2> errors | tee said || cat errors
diff said - <<'EXPECTED'
gzip: first second
lz4: first 
zstd: first second
EXPECTED
