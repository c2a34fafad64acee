// A check that runs in parts: the form of the next part is sent by itself, until there is none or somebody stops it.
export function continueCheck() {
  const part = document.getElementById("check");
  if (!part?.querySelector("form[data-continue]")) return;
  const stopping = new AbortController();
  part.addEventListener("click", (event) => {
    if (event.target.closest("[data-stop]")) stopping.abort();
  });
  addEventListener("pagehide", () => stopping.abort());
  go(part, stopping.signal);
}

async function go(part, signal) {
  for (let form; !signal.aborted && (form = part.querySelector("form[data-continue]")); ) {
    try {
      const response = await fetch(form.action, {
        method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "text/html" }, signal,
      });
      if (!response.ok) return; // the button stays, and shows the problem
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("check");
      part.replaceChildren(...[...fresh.childNodes].map((each) => document.importNode(each, true)));
    } catch {
      return;
    }
  }
}
