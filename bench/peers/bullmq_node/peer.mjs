// BullMQ on Node with 100 jobs at once. The words are those of ../common.py.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(process.env.BENCH_MODULES + '/');
const { Queue, Worker } = require('bullmq');

const url = process.env.BENCH_URL ?? 'redis://127.0.0.1:6379/0';
const connection = url.startsWith('unix://')
  ? { path: url.slice('unix://'.length), maxRetriesPerRequest: null }
  : { host: new URL(url).hostname, port: Number(new URL(url).port), maxRetriesPerRequest: null };
const now = () => process.hrtime.bigint(); // nanoseconds of the same clock as Python's time.monotonic_ns

let marks = -1;
function mark(text) {
  if (marks < 0) marks = fs.openSync(process.env.BENCH_MARKS, 'a+');
  fs.writeSync(marks, text);
}

async function run(job) {
  const value = job.data.value;
  if (job.name === 'count') mark('.');
  if (job.name === 'stamp') mark(`${now() - BigInt(value)}\n`);
  if (job.name === 'stay') {
    mark(`${value}\n`);
    const begun = fs.readFileSync(process.env.BENCH_MARKS, 'utf8').split('\n').filter((line) => line === `${value}`);
    if (begun.length === 1) await new Promise((resolve) => setTimeout(resolve, 3600_000));
  }
  return value;
}

async function speak(word, numbers) {
  const queue = new Queue('bench', { connection });
  const [jobs, pause] = numbers;
  if (word !== 'stay') await queue.add('count', { value: 0 });
  if (word === 'enqueue' || word === 'bulk') {
    const began = now();
    for (let first = 0; word === 'bulk' && first < jobs; first += 1000) {
      const size = Math.min(1000, jobs - first);
      await queue.addBulk(Array.from({ length: size }, (_, at) => ({ name: 'count', data: { value: first + at } })));
    }
    for (let value = 0; word === 'enqueue' && value < jobs; value += 1) await queue.add('count', { value });
    console.log(JSON.stringify({ jobs, seconds: Number(now() - began) / 1e9 }));
  } else {
    for (let value = 0; value < jobs; value += 1) {
      if (pause) await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
      await queue.add(word, { value: word === 'stamp' ? `${now()}` : value });
    }
  }
  await queue.close();
}

const [word, ...rest] = process.argv.slice(2);
if (word === 'work') new Worker('bench', run, { connection, concurrency: 100 });
else await speak(word, rest.map(Number));
