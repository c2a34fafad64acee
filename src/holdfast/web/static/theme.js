// The theme, switched without leaving the page. The form beside it does the same without scripts.

export function startTheme() {
  const form = document.querySelector("[data-theme-switch]");
  const system = matchMedia("(prefers-color-scheme: dark)");
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    const next = event.submitter.value;
    const chosen = (next === "dark") === system.matches ? "system" : next;
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    offer(form, event.submitter, next === "dark" ? "light" : "dark");
    fetch(form.action, { method: "POST", body: new URLSearchParams({ theme: chosen }), redirect: "manual" }).catch(() => {});
  });
}

function offer(form, button, theme) {
  for (const each of form.querySelectorAll("button")) if (each !== button) each.remove();
  button.value = theme;
  button.title = `${theme === "dark" ? "Dark" : "Light"} theme`;
  button.setAttribute("aria-label", button.title);
  button.classList.remove("in-light", "in-dark");
}
