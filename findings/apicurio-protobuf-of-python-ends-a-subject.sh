#!/usr/bin/env bash
# A Protobuf schema that confluent-kafka for Python registers in Apicurio, and every later version of its subject.
#
# Seen with Apicurio Registry 2.6.13.Final (its Confluent API, in memory) and confluent-kafka 2.16.1.
# - ProtobufSerializer registers no .proto text but a FileDescriptorProto in base64. Confluent's registry makes text of
#   it; Apicurio keeps it as it is, also if the subject is to be BACKWARD compatible: there is nothing to compare with.
# - From then on each other version of the subject is answered with status 500, "Syntax error in :1:1: unexpected
#   label": a new optional field of the same serializer, and the same schema as text.
# - Producers with the first schema go on. NONE as the subject's own rule changes nothing, because it only takes that
#   rule away, and the global one counts; with NONE there too new versions are taken again, unchecked.
# - Text first is no way out: the serializer without its registration asks for descriptors (format=serialized), gets
#   text, and fails.
# Why a guess is wrong: registration, serializing and consuming work on the first day, with the compatibility rule in
# force; what is refused is the first change, months later, and by all clients, also those that send text.
# What follows: with this pair leave the global rule at NONE, its default, give subjects of Avro and JSON Schema their
# own rules, and compare Protobuf schemas elsewhere.
# Source: issues 1478 and 5790 of Apicurio/apicurio-registry (base64, and a refusal by the validity rule); own
# measurement of what comes after.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill "${registry:-}" 2>/dev/null || true; rm -rf "$dir"' EXIT
source "$(dirname "$0")/lib/kafka.sh"
cd "$dir"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'confluent-kafka[protobuf,schemaregistry]==2.16.1' 'protobuf>=5'
version=2.6.13.Final
curl -sfL "https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/$version/apicurio-registry-app-$version-all.tar.gz" |
    tar xz
port=$(free_port)
java -Xmx512m -Dquarkus.http.host=127.0.0.1 "-Dquarkus.http.port=$port" \
    -jar "apicurio-registry-app-$version-runner.jar" >apicurio.log 2>&1 &
registry=$!
url="http://127.0.0.1:$port/apis/ccompat/v7"
until curl -sf "$url/subjects" >/dev/null; do
    kill -0 $registry || { tail -n 20 apicurio.log; exit 1; }
    sleep 0.3
done
curl -sf -X PUT -H 'Content-Type: application/json' -d '{"compatibility": "BACKWARD"}' "$url/config" >/dev/null
cat > evolve.py <<'PYTHON'
import sys

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TEXT = 'syntax = "proto3"; package shop; message Order {{ string id = 1;{} }}'
FIRST, SECOND = TEXT.format(""), TEXT.format(" int32 count = 2;")
client = SchemaRegistryClient({"url": sys.argv[1]})


def order(**fields):
    """Return the class that protoc would generate."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", package="shop")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(fields.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def tell(what, work):
    try:
        said = work() or "accepted"
    except Exception as error:
        said = f"refused: {str(error)[:39]}"
    print(f"{what}: {said}")


def serialize(kind, topic, **more):
    made = ProtobufSerializer(kind, client, {"use.deprecated.format": False, **more})
    made(kind(), SerializationContext(topic, MessageField.VALUE))


def register(subject, text):
    client.register_schema(subject, Schema(text, "PROTOBUF"))


first, second = order(id=9), order(id=9, count=5)
tell("Python's first schema", lambda: serialize(first, "python"))
tell("what the registry keeps", lambda: client.get_latest_version("python-value").schema.schema_str[:16])
tell("Python with a new field", lambda: serialize(second, "python"))
tell("the same schema as text", lambda: register("python-value", FIRST))
tell("text with a new field", lambda: register("python-value", SECOND))
tell("Python's first schema again", lambda: serialize(first, "python"))
client.set_compatibility("python-value", "NONE")
tell("with NONE as the subject's rule", lambda: serialize(second, "python"))
latest = {"auto.register.schemas": False, "use.latest.version": True}
tell("other subject, text first", lambda: register("text-value", FIRST))
tell("text with a new field", lambda: register("text-value", SECOND))
tell("Python without registration", lambda: serialize(first, "text", **latest))
client.set_compatibility(level="NONE")
tell("with NONE as the global rule", lambda: serialize(second, "python"))
PYTHON
venv/bin/python evolve.py "$url" 2>/dev/null | tee said
diff said - <<'EXPECTED'
Python's first schema: accepted
what the registry keeps: CgtvcmRlci5wcm90
Python with a new field: refused: Syntax error in :1:1: unexpected label:
the same schema as text: refused: Syntax error in :1:1: unexpected label:
text with a new field: refused: Syntax error in :1:1: unexpected label:
Python's first schema again: accepted
with NONE as the subject's rule: refused: Syntax error in :1:1: unexpected label:
other subject, text first: accepted
text with a new field: accepted
Python without registration: refused: Error parsing message with type 'google
with NONE as the global rule: accepted
EXPECTED
