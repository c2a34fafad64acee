// Buttons that copy: `<button data-copy="text">`. Over plain http a browser has no clipboard for scripts, but an old
// command that copies the selection.
import { showToast } from "./toasts.js";

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    if (await copy(button.dataset.copy)) confirmCopy(button);
    else showToast("The browser does not let this page copy. Select the text instead.", { failed: true });
  });
}

async function copy(text) {
  if (window.isSecureContext && navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // not allowed; the other way may be
    }
  }
  return copySelection(text);
}

function copySelection(text) {
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.className = "sr";
  area.value = text;
  area.readOnly = true;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  before?.focus?.({ preventScroll: true });
  return copied;
}

function confirmCopy(button) {
  const use = button.querySelector("use");
  use?.setAttribute("href", "#succeeded");
  button.dataset.copied = "";
  setTimeout(() => {
    use?.setAttribute("href", "#copy");
    delete button.dataset.copied;
  }, 1500);
}
