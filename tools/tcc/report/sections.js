// The parts of the page besides the charts of memory. Each returns a section, or null where a plan has nothing to show.

function overview() {
  const total = memory.arena_bytes + memory.resident_bytes, recompute = report.recompute;
  const largest = programs.find(program => program.name === memory.program);
  const packed = largest && largest.peak > memory.resident_bytes ? largest.arena / (largest.peak - memory.resident_bytes) : 0;
  const rows = [
    figure("trun allocates", bytesText(total), `${total.toLocaleString("en-US")} B, once`),
    figure("resident", bytesText(memory.resident_bytes), "state, common to all programs"),
    figure("arena", bytesText(memory.arena_bytes), "transient; all programs share it"),
    figure("peak", bytesText(memory.peak_bytes), largest ? `live at once, in ${largest.name}` : ""),
    packed ? figure("packed ÷ live", packed.toFixed(3), "1.000 cannot be bettered in this order") : null,
    memory.budget_bytes !== null ? figure("budget", bytesText(memory.budget_bytes), `${percentText(total / memory.budget_bytes)} of it used`) : null,
    recompute.tensors.length ? figure("without recomputation", bytesText(memory.without_recompute_bytes), `+${percentText(recompute.extra_cost_fraction)} time instead`) : null,
    report.flops_per_step ? figure("one update", flopsText(report.flops_per_step), recompute.cost_ns ? `${timeText(recompute.cost_ns)} on the nominal machine` : "all micro-batches") : null,
    figure("host", bytesText(memory.host_bytes), "header and code of the plan")
  ];
  const parts = ROLES.map(role => [role, memory.resident[role]]).concat([["arena", memory.arena_bytes]]).filter(([, bytes]) => bytes > 0);
  const colors = { parameters: "saved", optimizer: "recomputed", accumulators: "output", frozen: "scratch", constants: "state", arena: "gradient" };
  return el("section", { id: "overview", "aria-label": "Overview", style: "margin-top: 0" }, figures(rows),
    el("div", { class: "stack", role: "img", "aria-label": "What trun allocates, by kind" },
      parts.map(([role, bytes]) => el("i", { style: `flex: ${bytes} 0 0; background: var(--${colors[role]})`, title: `${role} ${bytesText(bytes)}` }))),
    el("div", { class: "keys" }, parts.map(([role, bytes]) => el("span", {}, el("span", { class: "swatch", style: `background: var(--${colors[role]})` }),
      `${role} ${bytesText(bytes)}, ${percentText(bytes / total)}`))));
}

function recomputation() {
  const recompute = report.recompute;
  if (!recompute.tensors.length)
    return section("recomputation", "Recomputation", "", el("p", { class: "note" }, "Nothing is recomputed: every instruction is executed once."));
  return section("recomputation", "Recomputation", `${countText(recompute.tensors.length, "tensor")} made twice in ${data.counted}`,
    el("div", { style: "margin-top: 10px" }, figures([
      figure("arena saved", bytesText(recompute.saved_bytes), `${bytesText(memory.without_recompute_bytes)} in total without`),
      figure("extra operations", percentText(recompute.extra_flops_fraction), `of ${flopsText(report.flops_per_step)}`),
      figure("extra time", percentText(recompute.extra_cost_fraction), "in the model of cost"),
      figure("least possible", percentText(recompute.bound_fraction), "extra time, by the lower bound"),
      figure("gap", percentText(recompute.gap), "above the bound")])),
    new Table({
      rows: recompute.tensors, noun: "tensor", shown: 20, sort: { column: 2, down: true }, columns: [
        { label: "node", kind: "name", value: row => row.node || row.name },
        { label: "buffer", kind: "name", value: row => row.name, hide: "small" },
        { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
        { label: "operations", kind: "number", value: row => row.flops, text: row => row.flops ? flopsText(row.flops) : "–" },
        { label: "time", kind: "number", value: row => row.cost_ns, text: row => row.cost_ns ? timeText(row.cost_ns) : "–" },
        { label: "program", value: row => row.program, hide: "small" },
        { label: "given up after", kind: "number", value: row => row.given_up === null ? -1 : row.given_up, text: row => row.given_up === null ? "–" : `#${row.given_up}` },
        { label: "made again", kind: "number", value: row => row.step, text: row => `#${row.step}` },
        { label: "absent for", kind: "number", value: row => row.given_up === null ? -1 : row.step - row.given_up, text: row => row.given_up === null ? "–" : countText(row.step - row.given_up, "instruction"), hide: "small" }]
    }).element);
}

function onTheHost() {
  const moved = report.offload;
  if (!moved.values.length) return null;
  return section("on-the-host", "On the host", `${countText(moved.values.length, "tensor")} of the card in ${data.counted}`,
    el("div", { style: "margin-top: 10px" }, figures([
      figure("state", bytesText(moved.state_bytes), "fetched by updates, and stored"),
      figure("values", bytesText(moved.value_bytes), "between forward and backward pass"),
      figure("stored", bytesText(moved.stored_bytes), `and ${bytesText(moved.fetched_bytes)} fetched`),
      figure("transfers", timeText(moved.transfer_ns), "by the plan's rate"),
      figure("waited for", timeText(moved.waited_ns), "the rest is beside other work")])),
    new Table({
      rows: moved.values, noun: "tensor", shown: 20, sort: { column: 2, down: true }, columns: [
        { label: "variable, or node of a value", kind: "name", value: row => row.name },
        { label: "kind", value: row => row.kind },
        { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
        { label: "program", value: row => row.program, hide: "small" },
        { label: "stores", kind: "number", value: row => row.stores, text: row => String(row.stores) },
        { label: "fetches", kind: "number", value: row => row.fetches, text: row => String(row.fetches) }]
    }).element);
}

// A section about the program that is shown; filled again when another one is shown.
function frontierSection() {
  if (!programs.some(program => program.raw.frontier.length > 1) && !memory.variants.length) return null;
  const chart = new Frontier(), plot = el("div", { class: "plots" }, el("figure", {}, el("figcaption", {}, el("b", {}, "Time and memory"),
    el("span", {}, "● packed plans"), programs.some(program => program.raw.frontier.some(point => point.host_bytes)) ? el("span", {}, "■ with memory on the host") : null,
    el("span", {}, "– – no schedule within these bytes costs less")), chart.canvas));
  const least = () => Math.max(1, Math.min(...view.program.raw.frontier.map(point => point.cost_ns)));
  const table = new Table({
    rows: [], noun: "point", filter: false, columns: [
      { label: "arena", kind: "number", value: row => row.arena_bytes, text: row => bytesText(row.arena_bytes) },
      { label: "trun allocates", kind: "number", value: row => row.device_bytes, text: row => bytesText(row.device_bytes), hide: "middle" },
      { label: "on the host", kind: "number", value: row => row.host_bytes, text: row => row.host_bytes ? bytesText(row.host_bytes) : "–", hide: "middle" },
      { label: "cost", kind: "number", value: row => row.cost_ns, text: row => timeText(row.cost_ns, 3) },
      { label: "more than the least", kind: "number", value: row => row.cost_ns, text: row => percentText(row.cost_ns / least() - 1), hide: "small" },
      { label: "lower bound", kind: "number", value: row => row.lower_bound_cost_ns, text: row => row.lower_bound_cost_ns ? timeText(row.lower_bound_cost_ns, 3) : "–" },
      { label: "gap", kind: "number", value: row => row.lower_bound_cost_ns ? row.cost_ns / row.lower_bound_cost_ns - 1 : 0, text: row => row.lower_bound_cost_ns ? percentText(row.cost_ns / row.lower_bound_cost_ns - 1) : "–" },
      { label: "", value: row => row.chosen ? "this plan" : "" }]
  });
  const variants = memory.variants.length ? new Table({
    rows: memory.variants, noun: "plan", filter: false, columns: [
      { label: "trun allocates", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
      { label: "arena", kind: "number", value: row => row.arena_bytes, text: row => bytesText(row.arena_bytes) },
      { label: "cost of one update", kind: "number", value: row => row.cost_ns, text: row => timeText(row.cost_ns, 3) },
      { label: "", value: row => row.reported ? "shown here" : "" }]
  }).element : null;
  const none = el("p", { class: "note" }, "One plan of this program is known: there is nothing to choose from.");
  const part = section("time-memory", "Frontier", "from no recomputation to least memory", el("div", { class: "columns", style: "margin-top: 10px" }, plot, table.element), none,
    variants ? [el("h3", {}, "Plans in this file: trun takes the fastest that fits"), variants] : null);
  onProgram.push(program => {
    plot.hidden = table.element.hidden = program.raw.frontier.length < 2;
    none.hidden = !plot.hidden;
    table.setRows(program.raw.frontier);
  });
  return part;
}

function kernels() {
  const rows = report.kernels, flops = rows.reduce((sum, row) => sum + row.flops, 0), bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
  const share = (part, whole) => () => el("span", { class: "share", style: `width: ${whole ? Math.round(52 * part / whole) : 0}px` });
  const bar = (value, whole, text) => row => el("span", {}, share(value(row), whole)(), text(value(row)));
  return section("kernels", "Kernels", `${countText(rows.reduce((sum, row) => sum + row.count, 0), "call")} in ${data.counted}: ${flopsText(flops)}, ${bytesText(bytes)} read and written`,
    new Table({
      rows, noun: "kernel", shown: 25, sort: { column: 2, down: true }, columns: [
        { label: "kernel", kind: "name", value: row => row.name, text: row => kernelText(row.name) },
        { label: "calls", kind: "number", value: row => row.count, text: row => row.count.toLocaleString("en-US") },
        { label: "operations", kind: "number", value: row => row.flops, text: row => flopsText(row.flops), cell: bar(row => row.flops, flops, flopsText) },
        { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes), cell: bar(row => row.bytes, bytes, bytesText) },
        { label: "operations ÷ byte", kind: "number", value: row => row.bytes ? row.flops / row.bytes : 0, text: row => row.bytes ? (row.flops / row.bytes).toFixed(2) : "–", hide: "small" },
        { label: "nodes", kind: "long", value: row => row.nodes.join(", "), cell: (row, cell) => namesCell(row => row.nodes)(row, cell) }]
    }).element);
}

// Memory-bound updates that run concurrently with later products.
function overlap() {
  const rows = report.kernels.flatMap(kernel => kernel.beside.map(call => ({ ...call, kernel: kernel.name })));
  if (!rows.length) return null;
  return section("overlap", "Overlap", `${countText(rows.length, "instruction")} may still run while what follows does`,
    new Table({
      rows, noun: "instruction", shown: 10, sort: { column: 0, down: false }, columns: [
        { label: "instruction", kind: "number", value: row => row.step, text: row => `#${row.step}` },
        { label: "program", value: row => row.program, hide: "small" },
        { label: "kernel", kind: "name", value: row => row.kernel, text: row => kernelText(row.kernel), hide: "small" },
        { label: "updates", kind: "name", value: row => row.variable || row.node },
        { label: "runs beside", kind: "long", value: row => besideText(row.step, row.until, row.first_node, row.last_node) }]
    }).element);
}

// The collectives of the program that is shown, and the time for which ranks wait for them.
function communication() {
  if (!report.communication) return null;
  const all = report.communication, part = section("communication", "Communication", "");
  const table = new Table({
    rows: [], noun: "collective", shown: 20, sort: { column: 0, down: false }, columns: [
      { label: "instruction", kind: "number", value: row => row.step, text: row => `#${row.step}` },
      { label: "collective", value: row => row.collective },
      { label: "tensors", kind: "number", value: row => row.tensors, hide: "small" },
      { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
      { label: "a rank sends", kind: "number", value: row => row.sent_bytes, text: row => bytesText(row.sent_bytes), hide: "middle" },
      { label: "runs beside", kind: "number", value: row => row.beside_ns, text: row => row.beside ? `${countText(row.beside, "instruction")}, ${timeText(row.beside_ns)}` : "nothing" },
      { label: "exposed", kind: "number", value: row => row.exposed_ns, text: row => row.exposed_ns ? timeText(row.exposed_ns) : "0" },
      { label: "node", kind: "name", value: row => row.node, hide: "small" }]
  });
  const sums = el("div", { style: "margin-top: 10px" }), none = el("p", { class: "note" }, "Ranks tell each other nothing in this program.");
  part.append(sums, table.element, none, el("p", { class: "help" }, `Times are nominal: the planner's costs, and a link of ${all.link_bytes_per_second / 1e9} GB/s for each rank. `, el("code", {}, "trun profile --nproc N --all"), " measures them."));
  onProgram.push(program => {
    const entry = all.programs.find(one => one.program === program.name);
    none.hidden = !!entry;
    sums.hidden = table.element.hidden = !entry;
    table.setRows(entry ? entry.collectives : []);
    part.querySelector("h2").replaceChildren("Communication", el("small", {}, `${program.name}, mode ${all.mode}${all.ranks ? `, state sharded over ${countText(all.ranks, "rank")}` : ""}`));
    if (entry) sums.replaceChildren(figures([
      figure("a rank sends", bytesText(entry.sent_bytes), `in ${countText(entry.collectives.length, "collective")}`),
      figure("computing", timeText(entry.compute_ns), "by the planner's costs"),
      figure("exposed", timeText(entry.exposed_ns), `${percentText(entry.exposed_ns / Math.max(1, entry.compute_ns + entry.exposed_ns))} of the program on that link`)]));
  });
  return part;
}

// Memory and parallel efficiency by the number of workers, for the program that is shown.
function workers() {
  if (!report.workers.programs.length) return null;
  const part = section("workers", "Workers", "");
  const percent = value => `${(100 * value).toFixed(1)} %`;
  const counts = new Table({
    rows: [], noun: "number", filter: false, shown: 8, columns: [
      { label: "workers", kind: "number", value: row => row.workers },
      { label: "arena", kind: "number", value: row => row.arena_bytes, text: row => bytesText(row.arena_bytes) },
      { label: "parallel efficiency", kind: "number", value: row => row.efficiency, text: row => percent(row.efficiency) }]
  });
  const limiting = new Table({
    rows: [], noun: "instruction", filter: false, shown: 8, columns: [
      { label: "instruction", kind: "number", value: row => row.step, text: row => `#${row.step}` },
      { label: "kernel", kind: "name", value: row => row.instruction, text: row => kernelText(row.instruction) },
      { label: "node", kind: "name", value: row => row.node },
      { label: "tiles", kind: "number", value: row => row.tiles, text: row => row.tiles.toLocaleString("en-US") },
      { label: "of the idle time", kind: "number", value: row => row.idle_share, text: row => percent(row.idle_share) }]
  });
  part.append(counts.element, el("h3", {}, "Instructions that leave most of 128 workers idle"), limiting.element);
  onProgram.push(program => {
    const entry = report.workers.programs.find(one => one.program === program.name);
    part.querySelector("h2").replaceChildren("Workers", el("small", {}, `arena of ${program.name}, and efficiency by tile counts and planned costs; memory was planned for ${countText(report.workers.planned, "worker")}`));
    counts.setRows(entry ? entry.counts : []);
    limiting.setRows(entry ? entry.limiting : []);
  });
  return part;
}

function fusion() {
  const part = section("fusion", "Fusion", "");
  const table = new Table({
    rows: [], noun: "kernel call", shown: 20, sort: { column: 3, down: true }, columns: [
      { label: "instruction", kind: "number", value: row => row.step, text: row => `#${row.step}` },
      { label: "kernel", kind: "name", value: row => row.kernel, text: row => kernelText(row.kernel) },
      { label: "phase", value: row => PHASE_TEXT[row.phase] },
      { label: "nodes", kind: "number", value: row => row.nodes.length },
      { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
      { label: "which run as one", kind: "long", value: row => row.nodes.join(" + "), cell: (row, cell) => namesCell(row => row.nodes, 5)(row, cell) }]
  });
  part.append(table.element);
  onProgram.push(program => {
    const rows = [];
    for (let step = 0; step < program.count; ++step)
      if (program.raw.nodes[step].length > 1)
        rows.push({ step, kernel: program.kernel(step), nodes: program.nodes(step), phase: program.raw.phase[step], bytes: program.raw.bytes[step] });
    part.querySelector("h2").replaceChildren("Fusion", el("small", {}, `${countText(rows.length, "instruction")} of ${program.count.toLocaleString("en-US")} of ${program.name} ${rows.length === 1 ? "stands" : "stand"} for more than one node: values between them never reach memory`));
    table.setRows(rows);
  });
  return part;
}

function parameters() {
  const list = report.parameters, elements = row => row.elements;
  const byName = new Map(data.variables.map(row => [row.name, row]));
  const groups = list.groups.map(group => ({ ...group, bytes: group.parameters.reduce((sum, name) => sum + ((byName.get(name) || {}).bytes || 0), 0) }));
  const parts = [];
  if (groups.length) parts.push(el("h3", {}, "Optimizer groups"), new Table({
    rows: groups, noun: "group", filter: groups.length > 8, shown: 12, columns: [
      { label: "group", kind: "long", value: row => row.name },
      { label: "rate ×", kind: "number", value: row => row.lr_scale },
      { label: "weight decay", kind: "number", value: row => row.weight_decay },
      { label: "tensors", kind: "number", value: row => row.parameters.length },
      { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
      { label: "members", kind: "long", value: row => row.parameters.join(", "), cell: (row, cell) => namesCell(row => row.parameters, 3)(row, cell) }]
  }).element);
  if (report.losses.length) parts.push(el("h3", {}, "Losses of the sum"), new Table({
    rows: report.losses, noun: "loss", filter: false, columns: [
      { label: "loss", kind: "name", value: row => row.name },
      { label: "scale", kind: "number", value: row => row.scale },
      { label: "sample weights", kind: "name", value: row => row.sample_weight ?? "" }]
  }).element);
  if (list.stages.length) parts.push(el("h3", {}, "Stages of the run"), new Table({
    rows: list.stages, noun: "stage", columns: [
      { label: "stage", kind: "name", value: row => row.name },
      { label: "first update", kind: "number", value: row => row.first },
      { label: "last", kind: "number", value: row => row.last, text: row => row.last === null ? "the run's end" : row.last },
      { label: "rate ×", kind: "number", value: row => row.lr_scale },
      { label: "trains", kind: "long", value: row => row.parameters.join(", "), cell: (row, cell) => namesCell(row => row.parameters, 3)(row, cell) }]
  }).element);
  if (list.unused.length) parts.push(el("h3", {}, "Without a gradient, and not trained"), new Table({
    rows: list.unused, noun: "parameter", filter: list.unused.length > 8, shown: 12, columns: [
      { label: "parameter", kind: "name", value: row => row.name }, { label: "node", kind: "name", value: row => row.node }, { label: "reason", kind: "text", value: row => row.reason }]
  }).element);
  const stops = report.stop_gradient;
  if (stops.length) parts.push(el("h3", {}, "Stopped gradients"), new Table({
    rows: stops, noun: "node", filter: stops.length > 8, shown: 12, columns: [
      { label: "node", kind: "name", value: row => row.node }, { label: "marked by", kind: "text", value: row => row.source }]
  }).element);
  parts.push(el("h3", {}, "State: the resident arena"), new Table({
    rows: data.variables, noun: "variable", shown: 15, sort: { column: 3, down: true }, columns: [
      { label: "name", kind: "name", value: row => row.name },
      { label: "role", value: row => row.role },
      { label: "type", value: row => row.type },
      { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
      { label: "offset", kind: "number", value: row => row.offset, text: row => row.offset.toLocaleString("en-US"), hide: "small" },
      { label: "read by", kind: "name", value: row => row.node, hide: "small" }]
  }).element);
  if (list.decisions.length) parts.push(el("h3", {}, "Floating-point initializers: trained, frozen, buffer or constant"), new Table({
    rows: list.decisions, noun: "initializer", filter: list.decisions.length > 8, shown: 15, columns: [
      { label: "name", kind: "name", value: row => row.name },
      { label: "list", value: row => row.decision },
      { label: "reason", kind: "long", value: row => row.sign },
      { label: "read by", kind: "name", value: row => row.node, hide: "small" }]
  }).element);
  if (list.ties.length) parts.push(el("h3", {}, "Tied"), new Table({
    rows: list.ties, noun: "tie", filter: false, columns: [
      { label: "initializer", kind: "name", value: row => row.name }, { label: "is", kind: "name", value: row => row.of },
      { label: "", value: row => row.permutation.length ? `axes ${row.permutation.join(", ")}` : "" }]
  }).element);
  return section("parameters", "Parameters and state", `${countText(list.trainable.length, "trained tensor")}, ${list.frozen.length} frozen, ${list.unused.length} without a gradient`, parts);
}

function elision() {
  const { elided, kept } = report.zero_fill;
  if (!elided.length && !kept.length) return null;
  const sum = rows => bytesText(rows.reduce((total, row) => total + row.bytes, 0));
  const table = rows => new Table({
    rows, noun: "buffer", filter: rows.length > 12, shown: 10, columns: [
      { label: "parameter", kind: "name", value: row => row.parameter }, { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
      { label: "reason", kind: "text", value: row => row.reason }]
  }).element;
  return section("elision", "Elision", "gradient buffers that start as zeros",
    el("h3", {}, `Left out: ${countText(elided.length, "buffer")}, ${sum(elided)}`), elided.length ? table(elided) : null,
    el("h3", {}, `Kept: ${kept.length ? `${countText(kept.length, "buffer")}, ${sum(kept)}` : "none"}`), kept.length ? table(kept) : null);
}

function attention() {
  const { fused, near_misses: misses, weights_elided: elided } = report.attention;
  if (!fused.length && !misses.length && !elided.length) return null;
  const rows = [...fused.map(row => ({ kind: "fused", node: row.nodes.join(", "), text: Object.entries(row).filter(([key]) => key !== "nodes").map(([key, value]) => `${key} ${value}`).join(", ") })),
    ...misses.map(row => ({ kind: "not fused", node: row.node, text: row.reason })), ...elided.map(row => ({ kind: "weights not stored", node: row.node, text: bytesText(row.bytes) }))];
  return section("attention", "Attention", "", new Table({
    rows, noun: "pattern", shown: 20, columns: [{ label: "", value: row => row.kind }, { label: "node", kind: "long", value: row => row.node }, { label: "", kind: "text", value: row => row.text }]
  }).element);
}

function notes() {
  return section("notes", "Notes and recipe", "", report.notes.map(note => el("p", { class: "note" }, `${note.subject ? `${note.subject}: ` : ""}${note.text}`)),
    data.recipe ? el("pre", {}, data.recipe) : el("p", { class: "note" }, "Compiled without a recipe."),
    el("p", { class: "note quiet" }, `${report.producer}, ${report.library}, for ${report.target}, at most ${countText(report.max_workers, "worker")}`));
}
