// Actions without a new page: a form with `data-act` that returns to its page is sent by fetch, and a toast says what
// happened. What it changed is shown in place if the form is in a live part; else the page is loaded again. Other forms
// are sent by the browser. Each is sent once, however often its button is pressed.
import { showAction } from "./live.js";
import { showToast, showToastLater } from "./toasts.js";

export function startForms() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    const isBusy = form.hasAttribute("aria-busy"), stays = form.matches("[data-act]") && staysHere(form);
    if (isBusy || stays) event.preventDefault();
    if (isBusy) return;
    form.setAttribute("aria-busy", "true");
    if (stays) send(form, event.submitter);
  });
  addEventListener("pageshow", (event) => { // the browser shows a page again that it had left
    if (event.persisted) document.querySelectorAll("form[aria-busy]").forEach((form) => form.removeAttribute("aria-busy"));
  });
}

function staysHere(form) {
  const next = form.elements.namedItem("_next")?.value;
  return !next || new URL(next, location.href).pathname === location.pathname;
}

async function send(form, submitter) {
  const fields = new FormData(form, submitter);
  const message = fields.get("_message") || "Done.";
  fields.delete("_next");
  try {
    const action = submitter?.hasAttribute("formaction") ? submitter.formAction : form.action;
    const response = await fetch(action, {
      method: "POST", body: new URLSearchParams(fields), headers: { Accept: "application/json" },
    });
    if (response.ok) await show(form, submitter, decodeURIComponent(response.headers.get("Holdfast-Message") ?? "") || message);
    else {
      const problem = await response.json().catch(() => ({}));
      showToast(problem.detail || `Not done: the server answered ${response.status}.`, {
        failed: true, more: problem.code ? `${problem.code}, ${response.status}` : "",
        link: response.status === 401 ? { text: "Sign in", address: location.href } : null,
      });
    }
  } catch {
    showToast("Not sent: the server cannot be reached.", { failed: true });
  } finally {
    form.removeAttribute("aria-busy");
  }
}

// Show what an action did. What was typed for it is no longer in its form.
async function show(form, submitter, message) {
  for (const each of form.elements) {
    if (each.matches("input:not([type=hidden], [type=checkbox], [type=radio]), textarea") && !each.defaultValue) each.value = "";
  }
  const isOfRows = form.id && document.querySelector(`[data-picked="${CSS.escape(form.id)}"]`); // those of a live table
  if (!form.closest("[data-live]") && !isOfRows) {
    showToastLater(message);
    location.reload();
    return;
  }
  showToast(message);
  (submitter ?? form).closest("details.menu")?.removeAttribute("open");
  const focused = document.activeElement, isTyping = form.contains(focused) && focused.matches("input, textarea");
  if (isTyping) focused.blur(); // what is around a field that is typed in does not change
  await showAction();
  const again = isTyping && [...document.forms].find((each) => each.action === form.action)?.elements.namedItem(focused.name);
  if (again && document.activeElement === document.body) again.focus({ preventScroll: true });
}
