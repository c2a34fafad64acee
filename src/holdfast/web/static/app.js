// Scripts of all pages. Every page works without them; they keep it current, and save time.
import { tickAges } from "./ages.js";
import { continueCheck } from "./check.js";
import { startCopying } from "./copy.js";
import { startForms } from "./forms.js";
import { startKeys } from "./keys.js";
import { followStore } from "./live.js";
import { followLogs } from "./log.js";
import { startPicking } from "./picking.js";
import { startTheme } from "./theme.js";
import { adoptToasts } from "./toasts.js";

function showSection() {
  const nav = document.querySelector(".nav"), current = nav?.querySelector("[aria-current]");
  if (current) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
}

for (const start of [showSection, adoptToasts, startTheme, startKeys, startCopying, startForms, startPicking, tickAges, followLogs, followStore, continueCheck]) {
  try {
    start();
  } catch (error) {
    console.error(error); // the others still work
  }
}
