// ------------------------------------------------------------------------------------------ sortable tables

// A click on a column title of <table class="sortable"> sorts by that column, and a second click reverses the order.
// Cells that have a data-value are sorted by that number, others by their text. Empty cells stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = html("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = [...body.rows].some((row) => row.cells[column].dataset.value);
      const before = head.getAttribute("aria-sort");
      const falling = before ? before === "ascending" : numeric;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const key = (row) => (numeric ? row.cells[column].dataset.value : row.cells[column].textContent.trim());
      const order = (a, b) => (numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true }));
      const rows = [...body.rows].sort((a, b) => {
        const [first, second] = [key(a), key(b)];
        if (!first || !second) return !first - !second;
        return falling ? order(second, first) : order(first, second);
      });
      body.append(...rows);
    });
  });
}
