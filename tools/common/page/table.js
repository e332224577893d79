// Tables of any length: a filter, headers that sort, and only as many rows in the page as were requested.

const tables = [];

class Table {
  // columns: { label, value: row → number or string that sorts, text: row → string, cell: row → node, kind: number | name |
  // long | text, hide: "small" or "middle" widths, down: first sort is descending }.
  constructor({ rows, columns, shown = 40, noun = "row", filter = true, sort = null, pick = null, label = "" }) {
    Object.assign(this, { rows, columns, shown, noun, pick, limit: shown, query: "", sorted: sort, chosen: null });
    this.head = el("tr", {}, columns.map((column, index) => el("th", { class: this.classOf(column) },
      el("button", { type: "button", onclick: () => this.sortBy(index) }, column.label))));
    this.body = el("tbody");
    this.foot = el("div", { class: "foot" });
    this.search = el("input", {
      type: "search", placeholder: `filter ${noun}s`, oninput: () => { this.query = this.search.value.toLowerCase(); this.limit = this.shown; this.draw(); }
    });
    this.search.setAttribute("aria-label", `Filter ${label || noun + "s"}`);
    this.element = el("div", { class: "table" }, filter ? el("div", { class: "tools" }, this.search) : null,
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, this.head), this.body)), this.foot);
    tables.push(this);
    this.draw();
  }

  classOf(column) { return `${column.kind || ""}${column.hide ? ` hide-${column.hide}` : ""}`; }
  textOf(column, row) { return String(column.text ? column.text(row) : column.value(row)); }
  setRows(rows) { this.rows = rows; this.limit = this.shown; this.draw(); }

  sortBy(index) {
    const column = this.columns[index], numbers = column.kind === "number";
    const same = this.sorted && this.sorted.column === index;
    this.sorted = { column: index, down: same ? !this.sorted.down : numbers };
    this.draw();
  }

  wanted() {
    let rows = this.rows;
    if (this.query) {
      // The search also covers the sort key, which is the whole name; the cell may show only a part of it.
      rows = rows.filter(row => this.columns.some(column =>
        this.textOf(column, row).toLowerCase().includes(this.query) ||
        (typeof column.value(row) === "string" && column.value(row).toLowerCase().includes(this.query))));
    }
    if (this.sorted) {
      const { column, down } = this.sorted, value = this.columns[column].value;
      const keyed = rows.map((row, order) => ({ row, order, key: value(row) }));
      keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * (down ? -1 : 1) || a.order - b.order);
      rows = keyed.map(entry => entry.row);
    }
    return rows;
  }

  draw() {
    const rows = this.wanted(), visible = rows.slice(0, this.limit);
    this.visible = visible;
    [...this.head.children].forEach((cell, index) => {
      if (this.sorted && this.sorted.column === index) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...visible.map(row => this.rowOf(row)));
    const more = rows.length - visible.length;
    const button = (limit, text) => el("button", { type: "button", onclick: () => { this.limit = limit; this.draw(); } }, text);
    const found = countText(rows.length, this.noun) + (this.query ? ` of ${this.rows.length.toLocaleString("en-US")}` : "");
    this.foot.replaceChildren(more ? `${visible.length} of ${found}` : found);
    if (more) this.foot.append(button(this.limit + 200, `${Math.min(200, more)} more`), button(Infinity, "all"));
    if (visible.length > this.shown) this.foot.append(button(this.shown, "fewer"));
  }

  rowOf(row) {
    const cells = this.columns.map(column => {
      const cell = el("td", { class: this.classOf(column) });
      if (column.cell) cell.append(column.cell(row, cell));
      else {
        const text = this.textOf(column, row);
        cell.append(column.kind === "name" || column.kind === "long" ? shorten(text) : text);
        if (text.length > 24 && column.kind !== "text") cell.title = shorten(text, 1200);
      }
      return cell;
    });
    if (!this.pick) return el("tr", {}, cells);
    const line = el("tr", { class: "pick" + (row === this.chosen ? " chosen" : ""), tabIndex: 0, onclick: () => this.pick(row) }, cells);
    line.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.pick(row); }
      if (event.key === "ArrowDown" && line.nextSibling) { event.preventDefault(); line.nextSibling.focus(); }
      if (event.key === "ArrowUp" && line.previousSibling) { event.preventDefault(); line.previousSibling.focus(); }
    });
    return line;
  }

  choose(row) {
    this.chosen = row;
    [...this.body.children].forEach((line, index) => line.classList.toggle("chosen", this.visible[index] === row));
  }
}

let beforePrinting = null; // restored afterwards

// Names of ONNX nodes: the first few, and the rest on demand.
function namesCell(names, shown = 3) {
  return (row, cell) => {
    const list = names(row), holder = el("span");
    const draw = open => {
      cell.classList.toggle("open", open);
      holder.replaceChildren((open ? list : list.slice(0, shown)).map(name => shorten(name, open ? 400 : 60)).join(", "),
        list.length > shown ? el("button", { type: "button", class: "link", onclick: event => { event.stopPropagation(); draw(!open); } },
          open ? "\u2002fewer" : `\u2002+${list.length - shown}`) : "");
    };
    draw(beforePrinting !== null);
    return holder;
  };
}

// Paper is not interactive: all rows are printed, in light colours.
addEventListener("beforeprint", () => {
  if (beforePrinting) return;
  beforePrinting = { theme: document.documentElement.dataset.theme, limits: tables.map(table => table.limit) };
  document.documentElement.dataset.theme = "light";
  tables.forEach(table => { table.limit = Infinity; table.draw(); });
  redrawNow();
});
addEventListener("afterprint", () => {
  if (!beforePrinting) return;
  document.documentElement.dataset.theme = beforePrinting.theme;
  const limits = beforePrinting.limits;
  beforePrinting = null;
  tables.forEach((table, index) => { table.limit = limits[index]; table.draw(); });
  redrawNow();
});
