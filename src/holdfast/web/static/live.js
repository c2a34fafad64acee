// A page follows the store while it is looked at: its parts with `data-live` are fetched again, at most once a second,
// after an event of the store, or every few seconds without one. Nothing is fetched while the tab is hidden.
//
//   <main data-events="queue=mail" data-every="5">    which events matter, and seconds between refreshes without any
import { readClock, serverNow, updateAges } from "./ages.js";
import { patch } from "./patch.js";
import { make } from "./toasts.js";

const PAUSE = 1000; // milliseconds between two refreshes
const POLL = 2000; // between two questions for changes, where there is no stream of events
const LATER = 15000; // after an error

let session = null; // while the page follows the store: aborted when it stops
let timer = null; // of the next refresh
let refreshed = 0; // when the last refresh began
let running = null; // the refresh under way
let shownAt = 0; // when the store was as the page shows it
const main = () => document.getElementById("main");
const parts = (page) => [...page.querySelectorAll("[data-live]")];

export function followStore() {
  if (!isLive()) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && !document.hidden && start());
  readClock();
  shownAt = serverNow();
  if (document.hidden) show("paused");
  else listen();
}

function start() {
  stop();
  refresh();
  listen();
}

function stop() {
  session?.abort();
  session = null;
  clearTimeout(timer?.id);
  timer = null;
  show("paused");
}

function listen() {
  const { signal } = (session = new AbortController());
  show("live");
  later(every());
  const source = new EventSource(`${document.body.dataset.root}/api/v1/events?${main().dataset.events ?? ""}`);
  signal.addEventListener("abort", () => source.close());
  for (const type of ["message", "gap"]) source.addEventListener(type, () => later(0), { signal });
  source.addEventListener("open", () => {
    show("live");
    later(0); // what happened before the stream began, or while it was broken
  }, { signal });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) poll(signal); // there is no stream
    else show("waiting"); // it connects again by itself
  }, { signal });
}

function every() {
  return (Number(main().dataset.every) || 10) * 1000;
}

// Refresh in some milliseconds, or sooner if that is planned; never sooner than a second after the last time.
function later(wait) {
  if (!session) return;
  const due = Math.max(Date.now() + wait, refreshed + PAUSE);
  if (timer && timer.due <= due) return;
  clearTimeout(timer?.id);
  timer = { due, id: setTimeout(() => { timer = null; refresh(); }, due - Date.now()) };
}

// Ask again and again whether any queue has changed since the last time; an answer without content says no.
async function poll(signal, tag = "") {
  let wait = POLL;
  try {
    const response = await fetch(`${document.body.dataset.root}/api/v1/queues`, {
      headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store", signal,
    });
    signal.throwIfAborted();
    if (response.ok) {
      later(0);
      tag = response.headers.get("ETag");
    }
    show(response.ok || response.status === 304 ? "live" : "waiting");
    await response.body?.cancel();
  } catch {
    if (signal.aborted) return;
    show("waiting");
    wait = LATER;
  }
  setTimeout(() => signal.aborted || poll(signal, tag), wait);
}

// Fetch the page again and show what changed.
function refresh() {
  refreshed = running ? refreshed : Date.now();
  running ??= fetchPage().finally(() => {
    running = null;
    later(every());
  });
  return running;
}

// Show what an action has changed: by a refresh that begins after it.
export async function showAction() {
  await running;
  await refresh();
}

export function isLive() {
  return parts(document).length > 0;
}

async function fetchPage() {
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html", "Holdfast-Live": "1" }, cache: "no-store" });
    if (!response.ok || response.redirected) return fail(WHY[response.status] ?? `The server answered ${response.status}`);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    readClock(page);
    for (const current of parts(document)) {
      const fresh = page.querySelector(`[data-live="${CSS.escape(current.dataset.live)}"]`);
      if (fresh) offer(current, patch(current, fresh));
    }
    updateAges();
    shownAt = serverNow();
    document.querySelector("[data-away]")?.remove();
    if (session) show("live");
    document.dispatchEvent(new CustomEvent("holdfast:refreshed"));
  } catch {
    fail("The server cannot be reached");
  }
}

const WHY = { // by the status of an answer
  401: "You are no longer signed in; sign in again", 403: "You may not see this any more",
  404: "This no longer exists", 503: "The store cannot be reached",
};

// Say that the page is no longer current, and why, without moving what is read.
function fail(why) {
  if (!session) return;
  show("waiting", why);
  const text = `${why}. This is how it was at ${new Date(shownAt).toISOString().slice(11, 19)}.`;
  const line = document.querySelector("[data-away]") ?? makeNews();
  line.dataset.away = "";
  line.firstChild.textContent = text;
  if (!line.isConnected) main().before(line);
}

function makeNews() {
  const line = make("div", "news");
  line.setAttribute("role", "status");
  const link = make("a", "fresh");
  link.href = location.href;
  line.append(link);
  return line;
}

// Say above a part what it does not show yet.
function offer(table, { came, changed, moved }) {
  const noun = table.dataset.noun || "row";
  const text = "grows" in table.dataset ? (came ? `${came.toLocaleString("en")} new ${came === 1 ? noun : `${noun}s`}. Show ${came === 1 ? "it" : "them"}` : "")
    : changed ? `${changed.toLocaleString("en")} ${changed === 1 ? noun : `${noun}s`} changed. Show ${changed === 1 ? "it" : "them"}`
    : moved ? `The order of ${noun}s changed. Show it` : "";
  let line = table.previousElementSibling?.matches(".news") ? table.previousElementSibling : null;
  if (!text) return line?.remove();
  if (!line) table.before(line = makeNews());
  if (line.firstChild.textContent !== text) line.firstChild.textContent = text;
}

// Show all changes: the page anew.
export function showChanges() {
  location.reload();
}

const WORDS = { live: "Live", paused: "Paused", waiting: "Not connected" };

function show(state, why = "") {
  const sign = document.querySelector("[data-live-state]");
  if (!sign) return;
  sign.hidden = false;
  sign.classList.toggle("off", state !== "live");
  sign.lastElementChild.textContent = WORDS[state];
  sign.title = why || (state === "live" ? "Numbers on this page follow the store" : "");
}
