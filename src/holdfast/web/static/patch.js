// Bring a part of the page up to date in place. Nothing moves: rows of tables are not added, removed or reordered, and
// what is focused, selected, opened or typed stays.
import { isSelected } from "./ages.js";

const OWN = new Set(["open", "checked", "aria-busy", "hidden"]); // attributes that belong to the reader
const APART = "input:not([type=hidden]), textarea, select, [data-live], [data-log], .news"; // not patched with what is around

// Patch a live part, and return what it could not show: how many rows came or left, and whether others moved. Rows are
// elements with `data-key`, in tables and lists; a part without them is patched as a whole.
export function patch(current, fresh) {
  const rows = byKey(current), freshRows = byKey(fresh);
  if (!rows.size && !freshRows.size) {
    patchAttributes(current, fresh);
    patchChildren(current, fresh);
    return { came: 0, changed: 0, moved: false };
  }
  for (const [key, row] of rows) {
    const freshRow = freshRows.get(key);
    row.classList.toggle("gone", !freshRow && !("grows" in current.dataset));
    if (freshRow) patchChildren(row, freshRow);
  }
  const came = [...freshRows.keys()].filter((key) => !rows.has(key)).length;
  const left = [...rows.keys()].filter((key) => !freshRows.has(key)).length;
  const order = (some, others) => JSON.stringify([...some.keys()].filter((key) => others.has(key)));
  return { came, changed: came + left, moved: order(rows, freshRows) !== order(freshRows, rows) };
}

function byKey(part) {
  const rows = [...part.querySelectorAll("[data-key]")].filter((row) => row.closest("[data-live]") === part);
  return new Map(rows.map((row) => [row.dataset.key, row]));
}

function patchNode(current, fresh) {
  if (current.isEqualNode(fresh)) return;
  if (current.nodeType === Node.TEXT_NODE) {
    if (!isSelected(current)) current.data = fresh.data;
    return;
  }
  if (current.nodeType !== Node.ELEMENT_NODE || current.matches(APART)) return;
  patchAttributes(current, fresh);
  patchChildren(current, fresh);
}

function patchAttributes(current, fresh) {
  for (const { name, value } of [...fresh.attributes]) {
    if (!OWN.has(name) && current.getAttribute(name) !== value) current.setAttribute(name, value);
  }
  for (const { name } of [...current.attributes]) {
    if (!OWN.has(name) && !fresh.hasAttribute(name)) current.removeAttribute(name);
  }
}

function patchChildren(current, fresh) {
  const [before, after] = [[...current.childNodes], [...fresh.childNodes]];
  if (before.length === after.length && before.every((each, place) => isAlike(each, after[place]))) {
    before.forEach((each, place) => patchNode(each, after[place]));
  } else if (!isHeld(current)) {
    current.replaceChildren(...after.map((each) => document.importNode(each, true)));
  }
}

function isAlike(one, other) {
  return one.nodeName === other.nodeName && one.id === other.id && one.dataset?.key === other.dataset?.key;
}

function isHeld(element) {
  return element.contains(document.activeElement) && element !== document.activeElement
    || isSelected(element) || !!element.querySelector("details[open], dialog[open], input:checked");
}
