// Messages at the bottom right. One that reports an error stays until it is closed; others leave after a while, but not
// while they are pointed at.
const SECONDS = 8;
const LATER = "holdfast-message"; // in the storage of the tab: what the page says once it is loaded again

export function showToast(text, { more = "", failed = false, link = null } = {}) {
  const kind = failed ? "failed" : "succeeded";
  const toast = make("div", `toast ${kind}`);
  toast.setAttribute("role", failed ? "alert" : "status");
  const words = make("p", "", text);
  if (more) words.append(" ", make("span", "", more));
  if (link) {
    const anchor = make("a", "", link.text);
    anchor.href = link.address;
    words.append(" ", anchor);
  }
  toast.append(shape("glyph " + kind, kind), words);
  document.querySelector("[data-toasts]").append(toast);
  adopt(toast);
}

export function showToastLater(text) {
  sessionStorage.setItem(LATER, text);
}

export function adoptToasts() {
  document.querySelectorAll("[data-toasts] > .toast").forEach(adopt);
  const text = sessionStorage.getItem(LATER);
  sessionStorage.removeItem(LATER);
  if (text) showToast(text);
}

function adopt(toast) {
  const close = make("button", "btn quiet small square");
  close.type = "button";
  close.setAttribute("aria-label", "Close the message");
  close.append(shape("ico", "close"));
  close.addEventListener("click", () => toast.remove());
  toast.append(close);
  if (toast.getAttribute("role") === "alert") return;
  let timer;
  const leave = () => { timer = setTimeout(() => toast.remove(), SECONDS * 1000); };
  toast.addEventListener("pointerenter", () => clearTimeout(timer));
  toast.addEventListener("pointerleave", leave);
  leave();
}

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function shape(className, name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", className);
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#${name}`);
  svg.append(use);
  return svg;
}
