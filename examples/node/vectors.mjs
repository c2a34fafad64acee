// Checks what a client encodes and decodes by itself, against the vectors of docs/conformance.md.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const units = { w: 604800000, d: 86400000, h: 3600000, m: 60000, s: 1000, ms: 1 };

// A new job's id: 45 bits of milliseconds, 50 random bits.
export function idOf(milliseconds, random) {
  let number = (BigInt(milliseconds) << 50n) | BigInt(random);
  let id = "";
  for (; id.length < 16; number /= 62n) id = digits[Number(number % 62n)] + id;
  return id;
}

// The milliseconds of a duration such as 1h30m; undefined if the text is none.
export function milliseconds(text) {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[wdhms])/g)];
  const sizes = parts.map(([, , unit]) => units[unit]);
  const isOrdered = sizes.every((size, at) => at === 0 || size < sizes[at - 1]);
  if (!parts.length || !isOrdered || parts.map(([part]) => part).join("") !== text) return undefined;
  return Math.round(parts.reduce((sum, [, number], at) => sum + Number(number) * sizes[at], 0));
}

// The hash slot of a key in a cluster: CRC-16 of what is inside its braces.
export function slotOf(key) {
  let crc = 0;
  for (const byte of Buffer.from(/\{(.+?)\}/.exec(key)?.[1] ?? key)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc % 16384;
}

// The value of a result; one that does not fit its type begins with a space, which JSON ignores.
const decode = (text) => JSON.parse(text);

const checks = {
  payloads: {
    arguments: (each) => checkJson(each.arguments, each.payload, each.also),
    values: (each) => checkJson(each.value, each.text),
    results: (each) => assert.deepEqual(decode(each.text), each.value),
  },
  ids: { ids: (each) => assert.equal(idOf(each.milliseconds, each.random), each.id) },
  keys: {
    namespaces: (each) => assert.deepEqual([`hf:{${each.namespace}}:meta`, slotOf(each.key)], [each.key, each.slot]),
    executors: ({ namespace, executor, worker, wake, inbox }) => {
      assert.equal(executor.slice(0, executor.lastIndexOf(".")), worker);
      assert.deepEqual([`hf:{${namespace}}:wake:${executor}`, `hf:{${namespace}}:inbox:${worker}`], [wake, inbox]);
    },
  },
  durations: {
    durations: (each) => assert.equal(milliseconds(each.text), each.milliseconds),
    invalid: (text) => assert.equal(milliseconds(text), undefined),
  },
};

// What this client writes of a value is read as the same value, and so is what others write.
function checkJson(value, ...texts) {
  for (const text of [JSON.stringify(value), ...texts.flat()]) {
    if (text !== undefined) assert.deepEqual(decode(text), value);
  }
}

// Checks all files of a folder; returns the number of vectors, and adds what differs to `failures`.
export function checkVectors(folder, failures) {
  let count = 0;
  for (const [file, kinds] of Object.entries(checks)) {
    const content = JSON.parse(fs.readFileSync(path.join(folder, `${file}.json`)));
    for (const [kind, check] of Object.entries(kinds)) {
      for (const [at, vector] of content[kind].entries()) {
        count++;
        try {
          check(vector);
        } catch (error) {
          failures.push(`${file}.${kind}[${at}]: ${error.message.replace(/\s+/g, " ")}`);
        }
      }
    }
  }
  return count;
}
