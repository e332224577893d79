// Puts the page together: the program that is shown, the instruction and the buffer that are chosen.

const onProgram = []; // called when another program is shown
const timeline = new Timeline(), map = new AddressMap();
const inspector = el("aside", { class: "inspector", "aria-live": "polite", "aria-label": "Details" });
const rangeText = el("output"), liveTitle = el("span"), liveNote = el("small");

const liveTable = new Table({
  rows: [], noun: "buffer", shown: 15, label: "what lives", sort: { column: 2, down: true }, pick: buffer => select(buffer), columns: [
    { label: "kind", value: row => row.purpose, text: row => PURPOSE_TEXT[row.purpose], cell: row => el("span", {}, swatch(row.purpose), PURPOSE_TEXT[row.purpose]) },
    { label: "name", kind: "name", value: row => row.name },
    { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
    { label: "node", kind: "name", value: row => row.node, hide: "small" },
    { label: "type", value: row => row.type, hide: "middle" },
    { label: "offset", kind: "number", value: row => row.offset, text: row => row.offset.toLocaleString("en-US"), hide: "middle" },
    { label: "birth", kind: "number", value: row => row.first, text: row => view.program.stepText(row.first) },
    { label: "death", kind: "number", value: row => row.last, text: row => view.program.stepText(row.last) },
    { label: "why alive", kind: "long", value: row => row.why }]
});

// Selects a buffer, or none, and the instruction that the table shows.
function select(buffer, step = view.cursor) {
  view.selected = buffer;
  if (buffer && (step < buffer.first || step > buffer.last)) step = Math.min(Math.max(step, buffer.first, 0), buffer.last, view.program.count - 1);
  moveCursor(step);
  liveTable.choose(buffer);
  inspect();
  redraw();
}
function setCursor(step) {
  moveCursor(step);
  if (view.selected && (view.cursor < view.selected.first || view.cursor > view.selected.last)) view.selected = null;
  const margin = (view.to - view.from) * 0.05;
  if (view.cursor < view.from + margin) { view.to -= view.from + margin - view.cursor; view.from = view.cursor - margin; }
  if (view.cursor + 1 > view.to - margin) { view.from += view.cursor + 1 - view.to + margin; view.to = view.cursor + 1 + margin; }
  clampView();
  inspect();
  redraw();
}
function moveCursor(step) {
  const next = Math.min(Math.max(step, 0), Math.max(0, view.program.count - 1));
  const fresh = next !== view.cursor || liveTable.program !== view.program;
  view.cursor = next;
  if (!fresh) return;
  liveTable.program = view.program;
  liveTable.chosen = view.selected;
  const live = view.program.liveAt(next), peak = next === view.program.peakStep;
  liveTitle.textContent = peak ? "What lives at the peak" : `What lives at #${next}`;
  liveNote.textContent = view.program.count ? `instruction ${next} of ${view.program.count.toLocaleString("en-US")}, ${shorten(view.program.node(next) || kernelText(view.program.kernel(next)), 80)}: ` +
    `${bytesText(view.program.live[next] - memory.resident_bytes)} in the arena, ${bytesText(view.program.live[next])} with the state` : "";
  liveTable.setRows(live);
}

function stepList(title, steps) {
  if (!steps.length) return null;
  const shown = steps.slice(0, 12);
  return [el("div", { class: "quiet" }, title), el("ul", {}, shown.map(step => el("li", {}, el("button", { type: "button", onclick: () => setCursor(step) }, view.program.where(step)))),
    steps.length > shown.length ? el("li", {}, `and ${steps.length - shown.length} more`) : null)];
}

function inspect() {
  const program = view.program, buffer = view.selected, step = view.cursor;
  if (buffer) {
    inspector.replaceChildren(el("h3", {}, shorten(buffer.name, 600)), el("p", { class: "why" }, shorten(buffer.why, 600)), facts(bufferFacts(buffer)),
      el("p", { style: "margin: 8px 0" }, el("button", { type: "button", onclick: () => zoomTo(buffer) }, "zoom to it"), " ", el("button", { type: "button", onclick: () => select(null) }, "clear")),
      ...[stepList("made by", buffer.writers), stepList("read by", buffer.readers)].flat().filter(Boolean));
    return;
  }
  if (!program.count) return inspector.replaceChildren(el("p", {}, "This program has no instructions."));
  const raw = program.raw, link = id => {
    const target = program.buffers[id], text = `${shorten(target.name, 60)}, ${bytesText(target.bytes)}`;
    return el("li", {}, swatch(target.purpose), target.purpose === "state" ? text : el("button", { type: "button", onclick: () => select(target) }, text));
  };
  const list = (title, ids) => ids.length ? [el("div", { class: "quiet" }, title), el("ul", {}, ids.slice(0, 12).map(link), ids.length > 12 ? el("li", {}, `and ${ids.length - 12} more`) : null)] : [];
  inspector.replaceChildren(el("h3", {}, `${program.stepText(step)} ${shorten(program.node(step), 300)}`),
    facts([["phase", PHASE_TEXT[raw.phase[step]]], ["kernel", kernelText(program.kernel(step))], ["live", bytesText(program.live[step])],
           ["operations", flopsText(raw.flops[step])], ["traffic", bytesText(raw.bytes[step])], ["cost", raw.cost[step] ? timeText(raw.cost[step]) : ""], ["runs beside", raw.beside[step] ? program.besideText(step) : ""],
           ["nodes", raw.nodes[step].length > 1 ? program.nodes(step).slice(0, 12).map(name => shorten(name, 60)).join(", ") + (raw.nodes[step].length > 12 ? " …" : "") : ""]]),
    el("div", { style: "height: 8px" }), ...list("reads", raw.reads[step]), ...list("writes", raw.writes[step]));
}

function legend() {
  const buttons = ["saved", "recomputed", "gradient", "activation", "input", "output", "scratch"].map(purpose => el("button", {
    type: "button", "aria-pressed": "false", title: "show this kind alone", onclick: () => {
      view.purpose = view.purpose === purpose ? null : purpose;
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(button.purpose === view.purpose)));
      redraw();
    }
  }, swatch(purpose), PURPOSE_TEXT[purpose]));
  buttons.forEach((button, index) => { button.purpose = ["saved", "recomputed", "gradient", "activation", "input", "output", "scratch"][index]; });
  return el("div", { class: "legend", role: "group", "aria-label": "Kinds of buffers" }, buttons);
}

function memorySection() {
  const chooser = el("fieldset", { class: "segments" }, el("legend", {}, "program"), programs.map((program, index) => el("label", {},
    el("input", { type: "radio", name: "program", value: program.name, checked: program === view.program, onchange: () => show(program) }),
    program.name, el("span", {}, bytesText(program.peak)))));
  const find = el("input", { type: "search", placeholder: "find a node or buffer", "aria-label": "Find a node or buffer in the map" });
  const found = el("span", { class: "quiet" });
  const search = () => {
    const query = find.value.trim().toLowerCase();
    view.match = query ? new Set(view.program.placed.filter(buffer => buffer.name.toLowerCase().includes(query) || buffer.node.toLowerCase().includes(query)).map(buffer => buffer.id)) : null;
    found.textContent = view.match ? countText(view.match.size, "buffer") : "";
    redraw();
  };
  find.addEventListener("input", search);
  find.addEventListener("keydown", event => {
    const first = event.key === "Enter" && view.match && view.program.placed.filter(buffer => view.match.has(buffer.id)).sort((a, b) => b.bytes - a.bytes)[0];
    if (first) { select(first); zoomTo(first); }
  });
  onProgram.push(search);
  const scaled = el("input", { type: "checkbox", onchange: () => { timeline.toScale = scaled.checked; redraw(); } });
  const button = (text, title, action) => el("button", { type: "button", title, onclick: action }, text);
  const middle = () => (view.from + view.to) / 2;
  const about = el("span");
  onProgram.push(program => {
    about.textContent = `${program.name}: ${countText(program.count, "instruction")}, ${countText(program.placed.length, "buffer")}, ${program.raw.shape || `batch ${program.raw.batch}`}, arena ${bytesText(program.arena)}`;
  });
  return section("memory", "Memory over time", "", el("div", { class: "tools" }, chooser, el("span", { class: "quiet" }, about)),
    el("div", { class: "tools" }, legend(), find, found, el("span", { class: "hint", style: "margin-left: auto" }),
      button("peak", "to the peak (p)", () => setCursor(view.program.peakStep)), button("+", "zoom in (+)", () => zoomTime(0.6, middle())), button("−", "zoom out (-)", () => zoomTime(1 / 0.6, middle())),
      button("fit", "all of it (0)", fitView)),
    el("div", { class: "charts" },
      el("div", { class: "plots" },
        el("figure", {}, el("figcaption", {}, el("b", {}, "Live bytes"), el("span", {}, "at each instruction, by kind"), el("label", { class: "check", style: "margin-left: auto" }, scaled, "resident to scale")), timeline.canvas),
        el("figure", {}, el("figcaption", {}, el("b", {}, "Addresses"), el("span", {}, "instructions from left to right, the arena's bytes upwards"), rangeText), map.canvas)),
      inspector),
    el("p", { class: "help" }, el("kbd", {}, "wheel"), " zoom time, ", el("kbd", {}, "shift"), "+", el("kbd", {}, "wheel"), " zoom addresses, drag to move, double click to zoom to a buffer. With a chart in focus: ",
      el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " instruction, ", el("kbd", {}, "↑"), " ", el("kbd", {}, "↓"), " buffer, ", el("kbd", {}, "+"), " ", el("kbd", {}, "−"), " time, ", el("kbd", {}, "["), " ", el("kbd", {}, "]"), " addresses, ",
      el("kbd", {}, "z"), " zoom to it, ", el("kbd", {}, "p"), " peak, ", el("kbd", {}, "0"), " all"),
    el("h3", {}, liveTitle), el("p", { class: "note", style: "margin-top: 0" }, liveNote), liveTable.element);
}

function show(program) {
  Object.assign(view, { program, selected: null, hover: null, cursor: Math.max(0, program.peakStep) });
  fitView();
  moveCursor(view.cursor);
  inspect();
  onProgram.forEach(action => action(program));
  redraw();
}

// The visible range, for users and for tests.
const paintMap = map.paint.bind(map);
map.paint = () => {
  paintMap();
  const text = `#${Math.max(0, Math.floor(view.from))}–#${Math.min(view.program.count, Math.ceil(view.to))} · ${bytesText(Math.round(view.low))}–${bytesText(Math.round(view.high))}`;
  if (rangeText.textContent !== text) rangeText.textContent = text;
};

const parts = programs.length
  ? [overview(), memorySection(), recomputation(), onTheHost(), frontierSection(), kernels(), overlap(), communication(), workers(), fusion(), attention(), parameters(), elision(), notes()]
  : [overview(), parameters(), notes()];
showPage(`${report.model} · plan`, report.model, `for ${report.target} · ${report.entries.join(", ")}`, parts);
if (programs.length) show(programs.find(program => program.name === memory.program && program.entry === "train") || programs.find(program => program.entry === "train") || programs[0]);
