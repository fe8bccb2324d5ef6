// Orders are messages, mails are tasks; both survive a cut connection, a lost answer and a restart of the server.
import { Client, ConflictError, Worker, json } from "@holdfastdb/client";

const client = new Client(process.env.HOLDFAST_URL ?? "http://127.0.0.1:8080", { token: process.env.HOLDFAST_TOKEN });
const orders = client.namespace("default");
const id = `order-${Date.now()}`;

// Only if there is no such stream yet. If the answer is lost, it is sent again, and written once.
await orders.write(id, [{ type: "Placed", data: { items: 3 } }], { expected: -1, level: "power" });

// All of it, or nothing.
const [paid] = await client.update([
  { namespace: "default", write: { stream: id, expected: 0, messages: [{ type: "Paid", data: { amount: 5 } }] } },
  { namespace: "default", enqueue: { tasks: [{ kind: "receipt", payload: json({ order: id }) }] } },
]);
console.log(`paid at ${paid.written.position}`);

try {
  await orders.write(id, [{ type: "Cancelled", data: {} }], { expected: 0 });
} catch (e) {
  if (!(e instanceof ConflictError)) throw e;
  console.log(`the version is ${e.actual}, not ${e.expected}`);
}

// It goes on when the server was away. Whoever keeps position and history begins there again.
const follower = orders.follow({ stream: id });
for await (const m of follower) {
  console.log(m.position, m.type, m.data);
  if (m.type === "Paid") break;
}

const stop = new AbortController(); // a program: process.once("SIGTERM", () => stop.abort())
const worker = new Worker(orders.tasks, {
  receipt: async (run) => {
    console.log("receipt for", run.args().order === id ? "this order" : "another one");
    stop.abort();
  },
});
await worker.run(stop.signal); // what runs is completed
