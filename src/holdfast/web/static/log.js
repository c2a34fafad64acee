// The log of a job, followed: `<ol class="log" data-log="address of the stream" data-log-at="attempt.bytes">`. New lines
// are appended while the end is in view; otherwise a button tells how many there are. While the tab is hidden, nothing is
// read; the stream is resumed where it was. Without `data-log-at`, the stream begins with the lines that the page has.
import { make } from "./toasts.js";

const MAX_LINES = 5000; // kept on the page; older ones leave
const MAX_LINE = 4000; // characters of a line
const TAIL = 1000; // lines to begin with
const AGAIN = 3000; // milliseconds until a broken stream is opened again

export function followLogs() {
  for (const list of document.querySelectorAll(".log")) list.scrollTop = list.scrollHeight; // the end tells how it went
  const known = new WeakSet();
  const follow = () => {
    for (const list of document.querySelectorAll("[data-log]")) {
      if (!known.has(list)) new Log(list);
      known.add(list);
    }
  };
  follow();
  document.addEventListener("holdfast:refreshed", follow); // a job may have started since the page was loaded
}

class Log {
  constructor(list) {
    this.list = list;
    this.at = list.dataset.logAt ?? ""; // the id of the last part: where to resume
    this.attempt = Number(this.at.split(".")[0]);
    this.rest = ""; // of a line that is not complete
    this.open = null; // its item
    this.button = make("button", "btn small morelines");
    this.button.type = "button";
    this.button.addEventListener("click", () => this.toEnd());
    list.after(this.button);
    list.addEventListener("scroll", () => this.isAtEnd() && this.count(0));
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop("Paused") : this.start()));
    this.toEnd();
    if (!document.hidden) this.start();
  }

  isAtEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 24;
  }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
    this.count(0);
  }

  count(news) {
    this.news = news; // lines that have not been in view
    this.button.hidden = !news;
    this.button.textContent = `${news.toLocaleString("en")} new ${news === 1 ? "line" : "lines"}`;
  }

  stop(word) {
    this.abort?.abort();
    this.abort = null;
    this.say(word);
  }

  // Tell beside the title whether the log is followed.
  say(word) {
    const sign = this.list.closest("section")?.querySelector("[data-log-state]");
    if (!sign) return;
    sign.hidden = false;
    sign.classList.toggle("off", word !== "Following");
    sign.lastElementChild.textContent = word;
  }

  async start() {
    if (this.ended) return;
    const { signal } = (this.abort = new AbortController());
    try {
      const url = new URL(this.list.dataset.log, location.href);
      if (!this.at && !url.searchParams.has("tail")) url.searchParams.set("tail", TAIL);
      const headers = { Accept: "text/event-stream", ...(this.at && { "Last-Event-ID": this.at }) };
      const response = await fetch(url, { headers, signal });
      if (!response.ok) return this.say("Not followed");
      this.say("Following");
      await this.read(response.body.pipeThrough(new TextDecoderStream()));
    } catch {
      // the connection broke
    }
    if (signal.aborted || this.ended) return;
    this.say("Not connected");
    setTimeout(() => this.abort?.signal === signal && this.start(), AGAIN);
  }

  // Read server-sent events: fields in lines, and an empty line after each event.
  async read(stream) {
    let text = "";
    for await (const part of chunks(stream)) {
      const events = (text + part).split("\n\n");
      text = events.pop();
      for (const event of events) this.take(Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s))));
    }
  }

  take({ event, id, data }) {
    if (event === "end") {
      this.ended = true;
      this.stop("Ended");
    } else if (data) {
      const { attempt, text, left_out_bytes: leftOut } = JSON.parse(data); // text, and small numbers
      const replaces = !this.at;
      const lines = [];
      if (this.attempt && attempt !== this.attempt) lines.push(mark(`Attempt ${attempt}`));
      if (leftOut && !replaces) lines.push(mark(`${leftOut.toLocaleString("en")} bytes are left out here`));
      if (lines.length) [this.rest, this.open] = ["", null]; // that line stays as it is
      const plain = (this.rest + text).split("\n");
      this.rest = lastWritten(plain.pop()).slice(0, MAX_LINE);
      [this.at, this.attempt] = [id, attempt];
      this.append([...lines, ...plain.slice(-MAX_LINES).map(item)], replaces);
    }
  }

  append(items, replaces) {
    const follows = this.isAtEnd();
    this.open?.remove();
    this.open = this.rest ? item(this.rest) : null;
    if (replaces) this.list.replaceChildren(...items);
    else this.list.append(...items);
    if (this.open) this.list.append(this.open);
    for (let many = this.list.children.length - MAX_LINES; many > 0; many--) this.list.firstElementChild.remove();
    if (follows) this.toEnd();
    else if (!replaces) this.count(this.news + items.length);
  }
}

async function* chunks(stream) {
  const reader = stream.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    yield value;
  }
}

function item(text) {
  const line = make("li");
  line.append(make("span", "", visible(withoutColours(lastWritten(text).replace(/\r+$/, "")).slice(0, MAX_LINE))));
  return line;
}

// Return what a terminal would still show of a line: a carriage return begins it again, as progress bars do.
function lastWritten(text) {
  return text.slice(text.replace(/\r+$/, "").lastIndexOf("\r") + 1);
}

function withoutColours(text) {
  return text.replace(/\x1b\[[\d;:]*m/g, "");
}

function mark(text) {
  const line = make("li");
  line.append(make("span", "mark-line", text));
  return line;
}

// Escape what is invisible (bidi marks, other escape sequences), as the server does.
function visible(text) {
  return text.replace(/(?!\t)[\p{C}\p{Zl}\p{Zp}]/gu, (each) => {
    const code = each.codePointAt(0), [sign, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${sign}${code.toString(16).padStart(digits, "0")}`;
  });
}
