// The log of an attempt, followed: `<ol class="log" data-log="address of the stream">`. New lines are appended while the
// end is in view; otherwise a button tells how many there are. The stream is closed while the tab is hidden.
const MAX_LINES = 5000; // kept on the page; older ones leave
const AGAIN = 3000; // milliseconds until a broken stream is opened again

export function followLogs() {
  for (const list of document.querySelectorAll("[data-log]")) new Log(list);
}

class Log {
  constructor(list) {
    this.list = list;
    this.news = 0; // lines that have not been in view
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.className = "btn small morelines";
    this.button.hidden = true;
    this.button.addEventListener("click", () => this.toEnd());
    list.after(this.button);
    list.addEventListener("scroll", () => this.isAtEnd() && this.count(0));
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.resume()));
    this.toEnd();
    if (!document.hidden) this.start();
  }

  // Read on in a tab that is looked at again. It would replace the lines, which somebody who scrolled up is reading.
  resume() {
    if (this.isAtEnd()) return void this.start();
    this.button.hidden = false;
    this.button.textContent = "Follow again";
  }

  isAtEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 24;
  }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
    this.count(0);
    if (this.started && !this.abort) this.start();
  }

  count(news) {
    this.news = news;
    this.button.hidden = !news;
    this.button.textContent = `${news.toLocaleString("en")} new ${news === 1 ? "line" : "lines"}`;
  }

  stop() {
    this.abort?.abort();
    this.abort = null;
  }

  async start() {
    this.stop();
    this.started = true;
    const abort = (this.abort = new AbortController());
    try {
      const response = await fetch(this.list.dataset.log, { headers: { Accept: "text/plain" }, signal: abort.signal });
      if (!response.ok) return;
      await this.read(response.body.pipeThrough(new TextDecoderStream()));
    } catch {
      if (!abort.signal.aborted) setTimeout(() => this.abort === abort && !document.hidden && this.start(), AGAIN);
    }
  }

  // The stream begins with lines that the page has already: it replaces them.
  async read(stream) {
    const reader = stream.getReader();
    let rest = "", isFirst = true;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      if (!lines.length) continue;
      this.append(lines, isFirst);
      isFirst = false;
    }
    if (rest) this.append([rest], isFirst);
  }

  append(lines, replaces) {
    const follows = this.isAtEnd();
    const known = replaces ? this.list.children.length : 0;
    const items = lines.slice(-MAX_LINES).map((line) => {
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("span"), { textContent: visible(line) }));
      return item;
    });
    if (replaces) this.list.replaceChildren(...items);
    else this.list.append(...items);
    while (this.list.children.length > MAX_LINES) this.list.firstElementChild.remove();
    if (follows) this.toEnd();
    else this.count(this.news + Math.max(lines.length - known, 0));
  }
}

// Escape what is invisible (bidi marks, escape sequences), as the server does.
function visible(text) {
  return text.replace(/(?!\t)[\p{C}\p{Zl}\p{Zp}]/gu, (each) => {
    const code = each.codePointAt(0), [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
  });
}
