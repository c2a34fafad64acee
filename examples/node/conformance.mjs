// Runs the cases of Holdfast's protocol with the client of this folder: how a client in another language is tested.
//
//   holdfast conformance --export data
//   node conformance.mjs redis://127.0.0.1:6379 data [area or area/case ...]
//
// docs/conformance.md describes the format of the cases and vectors.

import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { Client, connect, named, Refusal } from "./client.mjs";
import { checkVectors } from "./vectors.mjs";

const [address, folder, ...wanted] = process.argv.slice(2);
const send = connect(address);
const run = `conformance-${crypto.randomBytes(8).toString("hex")}`;
const states = ["scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled"];
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !Buffer.isBuffer(value);

class Difference extends Error {}

function differ(place, expected, actual) {
  const show = (value) => (value instanceof Error ? value.message : JSON.stringify(readable(value)));
  throw new Difference(`${place}: expected ${show(expected)}, got ${show(actual)}`);
}

// A reply as a case writes it.
function readable(value) {
  if (Buffer.isBuffer(value)) return value.toString();
  return Array.isArray(value) ? value.map(readable) : value;
}

// The bytes of a blob, or of a part of a command.
function encode(value) {
  if (!isObject(value)) return Buffer.from(String(value));
  if ("$hex" in value) return Buffer.from(value.$hex, "hex");
  if ("$repeat" in value) return Buffer.from(value.$repeat[0].repeat(value.$repeat[1]));
  return Buffer.from(JSON.stringify(value.$json));
}

// Replaces ${name} by the values of variables, and in arguments also what is written shorter.
function fill(value, variables) {
  if (typeof value === "string") {
    const whole = /^\$\{(\w+)\}$/.exec(value);
    if (whole && whole[1] in variables) return variables[whole[1]];
    return value.replace(/\$\{(\w+)\}/g, (text, name) => variables[name] ?? text);
  }
  if (Array.isArray(value)) return value.map((each) => fill(each, variables));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [fill(name, variables), fill(each, variables)]));
}

function expand(value) {
  if (Array.isArray(value)) return value.map(expand);
  if (!isObject(value)) return value;
  if ("$repeat" in value || "$json" in value) return encode(value).toString();
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, expand(each)]));
}

// Compares a reply with what a case expects; throws the first difference.
function compare(expected, actual, variables, place) {
  if (typeof expected === "string") {
    const unknown = /^\$\{(\w+)\}$/.exec(expected);
    if (unknown && !(unknown[1] in variables)) return void (variables[unknown[1]] = readable(actual));
    const text = fill(expected, variables);
    if (typeof text !== "string") return compare(text, actual, variables, place);
    if (text !== readable(actual)) differ(place, text, actual);
  } else if (Array.isArray(expected)) compareList(expected, actual, variables, place);
  else if (isObject(expected)) compareObject(expected, actual, variables, place);
  else if (expected !== actual) differ(place, expected, actual);
}

function compareList(expected, actual, variables, place) {
  const rest = expected.at(-1)?.$rest;
  const isOpen = rest || expected.at(-1) === "...";
  const size = expected.length - (isOpen ? 1 : 0);
  if (!Array.isArray(actual)) differ(place, expected, actual);
  for (let at = 0; at < size; at++) {
    if (at === actual.length) differ(`${place}[${at}]`, expected[at], "the end of the list");
    compare(expected[at], actual[at], variables, `${place}[${at}]`);
  }
  if (actual.length > size && !isOpen) differ(`${place}[${size}]`, "the end of the list", actual[size]);
  if (rest) compare(rest, actual.slice(size), variables, place);
}

function compareObject(expected, actual, variables, place) {
  if ("$any" in expected) return;
  if ("$json" in expected) return compare(expected.$json, JSON.parse(actual), variables, place);
  if ("$hex" in expected || "$repeat" in expected) {
    if (!Buffer.isBuffer(actual) || !encode(expected).equals(actual)) differ(place, expected, actual);
    return;
  }
  if (!Array.isArray(actual) && !isObject(actual)) differ(place, expected, actual);
  if ("$set" in expected) return compareSet(expected.$set, actual, variables, place);
  const object = Array.isArray(actual) ? named(actual) : actual;
  for (const [name, each] of Object.entries(expected)) {
    if (!(fill(name, variables) in object)) differ(`${place}.${name}`, each, "no such name");
    compare(each, object[fill(name, variables)], variables, `${place}.${name}`);
  }
}

function compareSet(expected, actual, variables, place) {
  const left = [...actual];
  for (const each of expected) {
    const at = left.findIndex((other) => isSame(each, other, variables, place));
    if (at < 0) differ(place, each, actual);
    left.splice(at, 1);
  }
  if (left.length) differ(place, "no more", left);
}

function isSame(expected, actual, variables, place) {
  try {
    compare(expected, actual, variables, place);
    return true;
  } catch (error) {
    if (error instanceof Difference) return false;
    throw error;
  }
}

// A namespace of its own, for one case.
class Session {
  constructor(number) {
    const namespace = `${run}-${number}`;
    this.client = new Client(send, namespace, path.join(folder, "holdfast.lua"));
    this.prefix = `hf:{${namespace}}:`;
    this.variables = { namespace, prefix: this.prefix, digest: this.client.digest };
  }

  async step(step) {
    const { args = {}, blobs = [], command } = fill(step, this.variables);
    if (command) return send(...command.map(encode));
    this.now = step.now;
    return this.client.call(step.call, { ...expand(args), now: this.now }, ...blobs.map(encode));
  }

  async compareState({ jobs, counts, keys }) {
    if (jobs) compare(jobs, await this.jobs(Object.keys(jobs)), this.variables, "jobs");
    if (counts) {
      const found = await this.counts();
      if (Object.keys(found).sort().join() !== Object.keys(counts).sort().join()) differ("counts", counts, found);
      compare(counts, found, this.variables, "counts");
    }
    for (const [name, each] of Object.entries(keys ?? {})) {
      compare(each, await this.key(fill(name, this.variables)), this.variables, `keys.${name}`);
    }
  }

  async jobs(ids) {
    const found = ids.length ? await this.client.call("get", { ids, now: this.now }) : [];
    return Object.fromEntries(ids.map((id, at) => [id, found[at]]));
  }

  async counts() {
    const counts = {};
    for (let cursor; cursor !== ""; ) {
      const [next, ...rows] = await this.client.call("queues", { cursor, now: this.now });
      for (const [queue, , , ...numbers] of rows) {
        const found = states.map((state, at) => [state, numbers[at]]).filter(([, number]) => number);
        if (found.length) counts[queue] = Object.fromEntries(found);
      }
      cursor = next.toString();
    }
    return counts;
  }

  async key(name) {
    const key = this.prefix + name;
    const type = (await send("TYPE", key)).toString();
    if (type === "none") return null;
    if (type === "string") return { string: await send("GET", key) };
    if (type === "hash") return { hash: named(await send("HGETALL", key)) };
    if (type === "list") return { list: await send("LRANGE", key, 0, -1) };
    if (type === "set") return { set: (await send("SMEMBERS", key)).sort(Buffer.compare) };
    const scores = await send("ZRANGE", key, 0, -1, "WITHSCORES");
    return { zset: scores.map((each, at) => (at % 2 ? Number(each) : each)) };
  }
}

async function isPossible({ needs }) {
  if (needs === "few keys") await cleanUp();
  if (needs === "few keys") return (await send("DBSIZE")) <= 100;
  return needs !== "no cluster" || (await send("CLUSTER", "INFO")) instanceof Refusal;
}

async function runCase({ steps, after }, number) {
  const session = new Session(number);
  for (const [at, step] of steps.entries()) {
    const reply = await session.step(step).catch((error) => error);
    const place = `step ${at + 1}, ${step.call ?? step.command[0]}`;
    if (reply instanceof Error && !(reply instanceof Refusal)) throw reply;
    if (step.error ? !(reply instanceof Refusal) || reply.code !== step.error : reply instanceof Refusal) {
      differ(place, step.error ?? step.reply, reply);
    }
    if (!step.error) compare(step.reply, reply, session.variables, place);
  }
  if (after) await session.compareState(after);
}

async function fail(message) {
  failures.push(message);
  await send("DISCARD"); // the case may have ended inside a transaction
}

async function cleanUp() {
  for (let cursor = "0", keys; ; ) {
    [cursor, keys] = await send("SCAN", cursor, "MATCH", `hf:{${run}-*}:*`, "COUNT", 1000);
    if (keys.length) await send("UNLINK", ...keys);
    if (cursor.toString() === "0") return;
  }
}

const failures = [];
let count = 0;
try {
  for (const file of fs.readdirSync(path.join(folder, "cases")).sort()) {
    const area = path.basename(file, ".json");
    for (const each of JSON.parse(fs.readFileSync(path.join(folder, "cases", file))).cases) {
      const name = `${area}/${each.name}`;
      if (wanted.length && !wanted.includes(area) && !wanted.includes(name)) continue;
      if (!(await isPossible(each))) console.log(`${name}: skipped, as it needs ${each.needs}`);
      else await runCase(each, ++count).catch((error) => fail(`${name}: ${error.message}`));
    }
  }
} finally {
  await cleanUp();
}
const vectors = checkVectors(path.join(folder, "vectors"), failures);
for (const each of failures) console.log(each);
console.log(`${count} cases and ${vectors} vectors, ${failures.length} failed`);
process.exit(failures.length ? 1 : 0);
