// A worker in another language: it needs only a socket and docs/protocol.md.
//
//   python -c 'from holdfast.store.library import library; print(library(), end="")' > holdfast.lua
//   node worker.mjs redis://127.0.0.1:6379 shout
//
// It converts items of the queue `shout` to upper case, and exits after five seconds without an item.

import crypto from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";

const [address, queue] = process.argv.slice(2);
const namespace = process.env.HOLDFAST_NAMESPACE ?? "default";
const library = fs.readFileSync("holdfast.lua");
const digest = /name=holdfast_(\w+)/.exec(library)[1];
const host = os.hostname().replace(/[^\w.-]/g, "").slice(0, 20) || "node";
const worker = `${host}/${crypto.randomBytes(6).toString("hex")}`; // unique for each start
const executor = `${worker}.0`;

// RESP: returns a value and the offset of the next one, or null if the reply is incomplete.
function read(bytes, at) {
  const end = bytes.indexOf("\r\n", at);
  if (end < 0) return null;
  const kind = String.fromCharCode(bytes[at]);
  const line = bytes.toString("utf8", at + 1, end);
  if (kind === "-") return [new Error(line), end + 2];
  if ("$*".includes(kind) && line === "-1") return [null, end + 2];
  if (kind === "$") {
    const size = Number(line);
    return bytes.length < end + 4 + size ? null : [bytes.subarray(end + 2, end + 2 + size), end + 4 + size];
  }
  if (kind !== "*") return [kind === ":" ? Number(line) : line, end + 2];
  const list = [];
  for (let next = end + 2, left = Number(line); ; left--) {
    if (left <= 0) return [list, next];
    const part = read(bytes, next);
    if (!part) return null;
    list.push(part[0]);
    next = part[1];
  }
}

function connect() {
  const url = new URL(address);
  const socket = url.protocol === "unix:" ? net.connect(url.pathname) : net.connect(url.port || 6379, url.hostname);
  const waiting = [];
  let bytes = Buffer.alloc(0);
  socket.on("data", (more) => {
    bytes = Buffer.concat([bytes, more]);
    for (let part; (part = read(bytes, 0)); bytes = bytes.subarray(part[1])) waiting.shift()(part[0]);
  });
  socket.on("close", () => process.exit(1)); // its items are requeued when their leases expire
  return (...parts) => {
    const buffers = parts.map((part) => Buffer.from(String(part)));
    const framed = buffers.flatMap((buffer) => [Buffer.from(`$${buffer.length}\r\n`), buffer, Buffer.from("\r\n")]);
    socket.write(Buffer.concat([Buffer.from(`*${parts.length}\r\n`), ...framed]));
    return new Promise((resolve) => waiting.push(resolve));
  };
}

const send = connect();
const block = connect(); // a blocking command needs its own connection

async function call(name, args, ...blobs) {
  const parts = ["FCALL", `hf_${digest}_${name}`, 1, `hf:{${namespace}}:meta`, JSON.stringify(args), ...blobs];
  let reply = await send(...parts);
  if (reply instanceof Error && reply.message.includes("Function not found")) {
    await send("FUNCTION", "LOAD", library);
    reply = await send(...parts);
  }
  if (reply instanceof Error) throw reply;
  return reply;
}

let held = [];
const about = JSON.stringify({ pid: process.pid, kind: "node" });
const renew = () => call("renew", { worker, held: [executor, held], queues: [queue], about });

await renew();
const timer = setInterval(renew, 5000); // at most a quarter of the lease, and at least every ten seconds
for (let counter = 1, idle, last = Date.now(); ; counter++) {
  const request = { executor, counter, queues: [queue], limit: 1, lease: 30000, pid: process.pid, idle };
  const [wait, wake, , id, attempt, , , payload] = await call("claim", request);
  if (id === undefined) {
    if (Date.now() - last >= 5000) break;
    await block("BLPOP", wake.toString(), Math.min(wait, 5000) / 1000); // claim again, woken or not
    idle = true;
    continue;
  }
  idle = undefined; // undefined fields are not sent
  held = [id.toString(), attempt];
  const item = { id: id.toString(), attempt, outcome: "succeed", blob: true, pid: process.pid };
  const [[answer]] = await call("finish", { executor, items: [item] }, payload.toString().toUpperCase());
  console.log(item.id, answer.toString()); // OK, or LOST if another executor has it by now
  held = [];
  last = Date.now();
}
clearInterval(timer);
while ((await call("requeue_orphaned", { worker, reason: "nothing to do" })).length) continue;
process.exit(0);
