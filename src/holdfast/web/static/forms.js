// Actions without a new page: a form with `data-act` is sent by fetch, says what happened in a toast, and what it changed
// is shown in place. One that leads to another page, or is on a page without live parts, is sent by the browser.
import { isLive, showAction } from "./live.js";
import { showToast } from "./toasts.js";

export function startForms() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-act]") || !staysHere(form)) return;
    event.preventDefault();
    if (!form.hasAttribute("aria-busy")) send(form, event.submitter);
  });
}

function staysHere(form) {
  if (!isLive()) return false;
  const next = form.elements.namedItem("_next")?.value;
  return !next || new URL(next, location.href).pathname === location.pathname;
}

async function send(form, submitter) {
  const fields = new FormData(form, submitter);
  const message = fields.get("_message") || "Done.";
  fields.delete("_next");
  form.setAttribute("aria-busy", "true");
  try {
    const action = submitter?.hasAttribute("formaction") ? submitter.formAction : form.action;
    const response = await fetch(action, {
      method: "POST", body: new URLSearchParams(fields), headers: { Accept: "application/json" },
    });
    if (response.ok) {
      showToast(decodeURIComponent(response.headers.get("Holdfast-Message") ?? "") || message);
      (submitter ?? form).closest("details.menu")?.removeAttribute("open");
      await showAction();
    } else {
      const problem = await response.json().catch(() => ({}));
      showToast(problem.detail || `Not done: the server answered ${response.status}.`, {
        failed: true, more: problem.code ? `${problem.code}, ${response.status}` : "",
      });
    }
  } catch {
    showToast("Not sent: the server cannot be reached.", { failed: true });
  } finally {
    form.removeAttribute("aria-busy");
  }
}
