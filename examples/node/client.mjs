// A client of the protocol: RESP over a socket, and calls of functions. It needs only docs/protocol.md.

import fs from "node:fs";
import net from "node:net";

// An error that the server replied with; `code` is its first word.
export class Refusal extends Error {
  get code() {
    return this.message.split(" ", 1)[0];
  }
}

// RESP: returns a value and the offset of the next one, or null if the reply is incomplete.
function read(bytes, at) {
  const end = bytes.indexOf("\r\n", at);
  if (end < 0) return null;
  const kind = String.fromCharCode(bytes[at]);
  const line = bytes.toString("utf8", at + 1, end);
  if (kind === "-") return [new Refusal(line), end + 2];
  if ("$*".includes(kind) && line === "-1") return [null, end + 2];
  if (kind === "$") {
    const size = Number(line);
    return bytes.length < end + 4 + size ? null : [bytes.subarray(end + 2, end + 2 + size), end + 4 + size];
  }
  if (kind !== "*") return [kind === ":" ? Number(line) : Buffer.from(line), end + 2];
  const list = [];
  for (let next = end + 2, left = Number(line); ; left--) {
    if (left <= 0) return [list, next];
    const part = read(bytes, next);
    if (!part) return null;
    list.push(part[0]);
    next = part[1];
  }
}

// Returns a function that sends a command, and returns its reply: a number, a buffer, a list, null or a `Refusal`.
export function connect(address) {
  const url = new URL(address);
  const socket = url.protocol === "unix:" ? net.connect(url.pathname) : net.connect(url.port || 6379, url.hostname);
  const waiting = [];
  let bytes = Buffer.alloc(0);
  socket.on("data", (more) => {
    bytes = Buffer.concat([bytes, more]);
    for (let part; (part = read(bytes, 0)); bytes = bytes.subarray(part[1])) waiting.shift()(part[0]);
  });
  socket.on("close", () => process.exit(1)); // what a worker holds is requeued when the leases expire
  return (...parts) => {
    const buffers = parts.map((part) => (Buffer.isBuffer(part) ? part : Buffer.from(String(part))));
    const framed = buffers.flatMap((buffer) => [Buffer.from(`$${buffer.length}\r\n`), buffer, Buffer.from("\r\n")]);
    socket.write(Buffer.concat([Buffer.from(`*${parts.length}\r\n`), ...framed]));
    return new Promise((resolve) => waiting.push(resolve));
  };
}

// Calls functions of the library, and loads it if the server does not have it.
export class Client {
  constructor(send, namespace, file = "holdfast.lua") {
    this.send = send;
    this.key = `hf:{${namespace}}:meta`;
    this.library = fs.readFileSync(file);
    this.digest = /name=holdfast_(\w+)/.exec(this.library)[1];
  }

  // Returns the reply; throws a `Refusal`.
  async call(name, args, ...blobs) {
    const parts = ["FCALL", `hf_${this.digest}_${name}`, 1, this.key, JSON.stringify(args), ...blobs];
    let reply = await this.send(...parts);
    if (reply instanceof Refusal && reply.message.includes("Function not found")) {
      await this.send("FUNCTION", "LOAD", this.library); // an error: another client was faster
      reply = await this.send(...parts);
    }
    if (reply instanceof Refusal) throw reply;
    return reply;
  }
}

// Reads a list of names and values.
export function named(list) {
  const object = {};
  for (let at = 0; at < list.length; at += 2) object[list[at]] = list[at + 1];
  return object;
}
