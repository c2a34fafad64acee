// A worker in another language: it needs only a socket and docs/protocol.md.
//
//   holdfast conformance --export . # writes holdfast.lua
//   node worker.mjs redis://127.0.0.1:6379 shout
//
// It converts items of the queue `shout` to upper case, and exits after five seconds without an item.

import crypto from "node:crypto";
import os from "node:os";
import { Client, connect } from "./client.mjs";

const [address, queue] = process.argv.slice(2);
const host = os.hostname().replace(/[^\w.-]/g, "").slice(0, 20) || "node";
const worker = `${host}/${crypto.randomBytes(6).toString("hex")}`; // unique for each start
const executor = `${worker}.0`;
const client = new Client(connect(address), process.env.HOLDFAST_NAMESPACE ?? "default");
const block = connect(address); // a blocking command needs its own connection

let held = [];
const about = JSON.stringify({ pid: process.pid, kind: "node" });
const renew = () => client.call("renew", { worker, held: [executor, held], queues: [queue], about });

await renew();
const timer = setInterval(renew, 5000); // at most a quarter of the lease, and at least every ten seconds
for (let counter = 1, idle, last = Date.now(); ; counter++) {
  const request = { executor, counter, queues: [queue], limit: 1, lease: 30000, pid: process.pid, idle };
  const [wait, wake, , id, attempt, , , payload] = await client.call("claim", request);
  if (id === undefined) {
    if (Date.now() - last >= 5000) break;
    await block("BLPOP", wake, Math.min(wait, 5000) / 1000); // claim again, woken or not
    idle = true;
    continue;
  }
  idle = undefined; // undefined fields are not sent
  held = [id.toString(), attempt];
  const item = { id: id.toString(), attempt, outcome: "succeed", blob: true, pid: process.pid };
  const [[answer]] = await client.call("finish", { executor, items: [item] }, payload.toString().toUpperCase());
  console.log(item.id, answer.toString()); // OK, or LOST if another executor has it by now
  held = [];
  last = Date.now();
}
clearInterval(timer);
while ((await client.call("requeue_orphaned", { worker, reason: "nothing to do" })).length) continue;
process.exit(0);
