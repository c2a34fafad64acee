// Ages grow while a page is open: `<time datetime="..." data-age="ago">38 s ago</time>`. The words are those of
// pages/formats.py. The clock is the server's: what it showed when the page was made, and the time since then.

let ahead = 0; // milliseconds by which the server's clock is ahead of this one's

export function readClock(page = document) {
  const shown = Date.parse(page.body.dataset.now);
  if (shown) ahead = shown - Date.now();
}

export function serverNow() {
  return Date.now() + ahead;
}

export function shortDuration(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (Math.abs(seconds) >= size) return `${Math.trunc(seconds / size)} ${unit}`;
  }
  return `${Math.trunc(seconds)} s`;
}

export function ageText(kind, time, now) {
  const seconds = (now - time) / 1000;
  if (kind === "span") return shortDuration(Math.abs(seconds));
  if (kind === "due") return Math.trunc(-seconds) > 0 ? `in ${shortDuration(Math.trunc(-seconds))}` : "now";
  return Math.trunc(seconds) >= 0 ? `${shortDuration(Math.trunc(seconds))} ago` : `in ${shortDuration(-Math.trunc(seconds))}`;
}

export function updateAges() {
  const now = serverNow();
  for (const each of document.querySelectorAll("time[data-age]")) {
    const text = ageText(each.dataset.age, Date.parse(each.dateTime), now);
    if (each.textContent !== text && !isSelected(each)) each.textContent = text;
  }
}

export function isSelected(node) {
  const selection = getSelection();
  return !!selection && !selection.isCollapsed && selection.containsNode(node, true);
}

export function tickAges() {
  readClock();
  setInterval(() => document.hidden || updateAges(), 1000);
}
