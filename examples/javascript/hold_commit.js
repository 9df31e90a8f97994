// Hold the commit of a transaction, and see that its client waits. Client: kafkajs.
//
//     barnabas serve --faults localhost:9500
//     cd examples/javascript && npm ci
//     BARNABAS_FAULTS_TOKEN=... node hold_commit.js localhost:9092 http://localhost:9500
//
// With the token that the start has printed it prints:
//
//     held 1 EndTxn, committed: false
//     released, committed: true
//     read: paid

const { Kafka, logLevel } = require("kafkajs");

const NAME = "examples.faults.javascript";
const [servers, faults] = process.argv.slice(2);

async function post(path, body = {}) {
  const answer = await fetch(`${faults}/v1${path}`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Authorization: `Bearer ${process.env.BARNABAS_FAULTS_TOKEN}`,
    },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
  return answer.json();
}

async function commitHeld(kafka) {
  const producer = kafka.producer({
    transactionalId: NAME,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  const { lever } = await post("/hold", { api: "EndTxn", transactional_id: NAME });
  const transaction = await producer.transaction();
  await transaction.send({ topic: NAME, messages: [{ value: "paid" }] });
  let committed = false;
  const commit = transaction.commit().then(() => (committed = true));
  const { touched } = await post(`/levers/${lever}/wait`);
  console.log(`held ${touched} EndTxn, committed: ${committed}`);
  await post(`/levers/${lever}/release`);
  await commit;
  console.log(`released, committed: ${committed}`);
  await producer.disconnect();
}

async function read(kafka) {
  const consumer = kafka.consumer({ groupId: NAME });
  await consumer.connect();
  await consumer.subscribe({ topic: NAME, fromBeginning: true });
  const value = await new Promise((resolve) =>
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }),
  );
  console.log(`read: ${value}`);
  await consumer.disconnect();
}

async function main() {
  const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: NAME }] });
  await admin.disconnect();
  await commitHeld(kafka);
  await read(kafka);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
