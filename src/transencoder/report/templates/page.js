"use strict";
// A table whose heads have data-sort is sorted by a click on them, and shows its first rows until asked for more.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const status = table.parentElement.querySelector("[role=status]");
  const more = table.parentElement.querySelector(".more");
  const n_first = Number(table.dataset.first);
  let shows_all = false;

  const show = () => {
    [...body.rows].forEach((row, i) => { row.hidden = !shows_all && i >= n_first; });
    more.hidden = shows_all || body.rows.length <= n_first;
  };
  more.addEventListener("click", () => { shows_all = true; show(); });

  for (const head of table.querySelectorAll("th[data-sort]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const is_text = head.dataset.sort === "text";
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : !is_text;
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[head.cellIndex].dataset.value;
      const compare = (a, b) => is_text ? value(a).localeCompare(value(b)) : value(a) - value(b);
      body.append(...[...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b)));
      status.textContent = `Sorted by ${button.textContent.trim()}, ${down ? "highest" : "lowest"} first.`;
      show();
    });
  }
  show();
}
