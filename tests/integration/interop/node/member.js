// @platformatic/kafka as a member of a group.
//
//     node member.js SERVERS TOPIC GROUP PROTOCOL
//
// It prints what ../member_program.py documents. A stream that a lost broker has destroyed is
// replaced, with a new consumer.

// Node 20 lacks it; the client asks for 22.
Promise.withResolvers ??= function () {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};
const { Consumer, stringDeserializers } = await import("@platformatic/kafka");

const [servers, topic, groupId, groupProtocol] = process.argv.slice(2);
let owned = "";

function tell(...words) {
  console.log(words.join(" "));
}

function tellOwned(consumer) {
  const partitions = (consumer.assignments ?? []).flatMap((each) => each.partitions);
  const now = ["owns", ...partitions.sort((a, b) => a - b)].join(" ");
  if (now !== owned) tell((owned = now));
}

async function consume() {
  const consumer = new Consumer({
    groupId,
    groupProtocol,
    clientId: "platformatic",
    bootstrapBrokers: servers.split(","),
    deserializers: stringDeserializers,
    autocommit: false,
    maxWaitTime: 100,
    retryDelay: 100,
  });
  const looking = setInterval(() => tellOwned(consumer), 50);
  try {
    const stream = await consumer.consume({
      topics: [topic],
      mode: "committed",
      fallbackMode: "earliest",
    });
    for await (const message of stream) {
      tell("read", message.partition, message.value);
      message.commit(() => {});
    }
  } catch (error) {
    tell("failed", JSON.stringify(error.message));
    console.error(error);
  } finally {
    clearInterval(looking);
    await consumer.close(true).catch((error) => console.error(error));
  }
}

while (true) await consume();
