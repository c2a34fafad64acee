// The keyboard: one key without Ctrl, Alt or Meta, and not while something is typed. `?` lists them.
import { showChanges } from "./live.js";

const inText = "input:not([type=checkbox], [type=radio], [type=button]), textarea, select, [contenteditable]";

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return escape(event);
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || event.defaultPrevented) return;
    if (event.target.closest?.(inText) || document.querySelector("dialog:modal")) return;
    if (press(event.key)) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href="#keys"], [data-close]');
    if (link) {
      event.preventDefault();
      if (link.matches("[data-close]")) link.closest("dialog").close();
      else press("?");
    }
    closeMenus(event.target);
  });
}

function press(key) {
  const place = document.querySelector(`[data-shortcut="${CSS.escape(key)}"]`);
  if (place) place.click();
  else if (key === "/") focus("[data-filter]") || focus("[data-find]");
  else if (key === "?") document.getElementById("keys").showModal();
  else if (key === "r") showChanges();
  else if (key === "n") document.querySelector('a[rel="next"]')?.click();
  else if (key === "x") document.querySelector("[data-pick-all]")?.click();
  else return false;
  return true;
}

function focus(selector) {
  const field = [...document.querySelectorAll(selector)].find((each) => each.checkVisibility());
  field?.select();
  field?.focus();
  return field;
}

function escape(event) {
  const menu = event.target.closest?.("details.menu[open]") ?? document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  } else if (event.target.matches?.("[data-find], [data-filter]")) event.target.blur();
}

function closeMenus(target) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.open = false;
  }
}
