// Sort the table by a column, hide rows and columns, and show the note of a cell under the pointer or the keys.
(() => {
  "use strict";
  const table = document.querySelector(".ranking"), head = table.tHead.rows[0];
  const bodies = [...table.tBodies];
  const rows = new Map(bodies.map((body) => [body, body.rows[0]]));

  // Sort: equal cells keep their order, empty cells are last in both directions.
  function sort(header) {
    const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1, column = header.cellIndex;
    const key = (body) => rows.get(body).cells[column].dataset.sort;
    bodies.sort((a, b) => {
      if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
      const [x, y] = [Number(key(a)), Number(key(b))];
      return x === y ? 0 : sign * (x - y);
    });
    table.append(...bodies);
  }
  for (const header of head.querySelectorAll("[data-sorted]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(header));
    header.append(button);
  }

  // Filter: rows by a part of the name, columns by the pressed buttons.
  const filters = document.querySelector(".filters"), name = document.getElementById("name");
  const pressed = (kind) => new Set(
    [...filters.querySelectorAll(`[data-${kind}][aria-pressed="true"]`)].map((button) => button.dataset[kind]));
  function filter() {
    const text = name.value.trim().toLowerCase();
    for (const body of bodies) body.hidden = !body.dataset.label.toLowerCase().includes(text);
    const tasks = pressed("task"), data = pressed("data");
    for (const row of [head, ...rows.values()]) {
      for (const cell of row.cells) {
        if (cell.dataset.of === undefined) continue;
        cell.hidden = !(cell.classList.contains("part") ? data : tasks).has(cell.dataset.of);
      }
    }
    const columns = [...head.cells].filter((cell) => !cell.hidden).length;
    for (const body of bodies) body.rows[1].cells[0].colSpan = columns;
    const visible = bodies.filter((body) => !body.hidden).length;
    filters.querySelector("[role=status]").textContent = `${visible} of ${bodies.length} activations`;
    enter();
  }
  name.addEventListener("input", filter);
  for (const button of filters.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  filters.hidden = false;

  // Notes: the table has one stop of the Tab key, and the arrow keys move between its cells.
  const note = document.createElement("div");
  note.className = "note";
  note.hidden = true;
  document.body.append(note);
  const cells = () => bodies.filter((body) => !body.hidden)
    .map((body) => [...rows.get(body).querySelectorAll("td:not([hidden])")]);
  function enter(cell = cells()[0]?.[0]) {
    for (const old of table.querySelectorAll("td[tabindex='0']")) old.tabIndex = -1;
    if (cell) cell.tabIndex = 0;
  }
  function show(cell) {
    note.textContent = cell.dataset.note;
    note.hidden = false;
    const place = cell.getBoundingClientRect();
    const left = Math.min(place.left, innerWidth - note.offsetWidth - 8);
    const below = place.bottom + 6 + note.offsetHeight <= innerHeight;
    note.style.left = `${Math.max(8, left)}px`;
    note.style.top = `${below ? place.bottom + 6 : Math.max(8, place.top - 6 - note.offsetHeight)}px`;
  }
  const hide = () => { note.hidden = true; };
  // A cell that gets the focus may scroll into view.
  const follow = () => (document.activeElement.dataset.note && !note.hidden ? show(document.activeElement) : hide());
  const noted = (event) => event.target.closest("[data-note]");
  table.addEventListener("pointerover", (event) => (noted(event) ? show(noted(event)) : hide()));
  table.addEventListener("pointerleave", hide);
  table.addEventListener("focusin", (event) => {
    if (!noted(event)) return hide();
    enter(event.target);
    show(event.target);
  });
  table.addEventListener("focusout", hide);
  addEventListener("scroll", follow, true);
  table.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !noted(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const grid = cells(), line = grid.findIndex((row) => row.includes(event.target));
    const next = grid[line + step[0]]?.[grid[line].indexOf(event.target) + step[1]];
    if (!next) return;
    next.tabIndex = -1;
    next.focus();
  });
  for (const cell of table.querySelectorAll("[data-note]")) cell.tabIndex = -1;
  filter();
})();
