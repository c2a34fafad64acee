// Rows picked for an action on several: the box in the title picks the page, Shift picks a range, and a line tells how many.
let last = null;

export function startPicking() {
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (box.matches?.("[data-pick-all]")) for (const each of boxes(box)) each.checked = box.checked;
    else if (box.matches?.("[data-pick]")) pickRange(box, event.shiftKey);
    else return;
    show();
  });
  addEventListener("pageshow", show); // the browser may have restored boxes
  show();
}

function boxes(inTable) {
  return [...inTable.closest("table").querySelectorAll("[data-pick]")];
}

function pickRange(box, isRange) {
  const all = boxes(box);
  const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
  if (isRange && from >= 0) for (const each of all.slice(from, to + 1)) each.checked = box.checked;
  last = box;
}

function show() {
  for (const each of document.querySelectorAll("[data-pick]")) each.closest("tr").classList.toggle("on", each.checked);
  for (const all of document.querySelectorAll("[data-pick-all]")) {
    const picked = boxes(all).filter((each) => each.checked).length;
    all.checked = picked > 0 && picked === boxes(all).length;
    all.indeterminate = picked > 0 && !all.checked;
  }
  for (const bar of document.querySelectorAll("[data-picked]")) {
    const picked = document.querySelectorAll(`[data-pick][form="${CSS.escape(bar.dataset.picked)}"]:checked`).length;
    bar.classList.toggle("some", picked > 0);
    const count = bar.querySelector("[data-picked-count]");
    const noun = picked === 1 ? bar.dataset.noun : `${bar.dataset.noun}s`;
    const text = `${picked.toLocaleString("en")} ${noun}`;
    if (count.textContent !== text) count.textContent = text;
  }
}
