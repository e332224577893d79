// The page of a run: summary and end, curves, a breakdown of its time, checkpoints, settings.

const updates = data.updates, count = updates.step.length, merged = updates.first.some((first, i) => first !== updates.step[i]);
const points = key => updates.step.map((step, i) => [step, updates[key][i]]);
const total = list => list.reduce((sum, value) => sum + (value || 0), 0);
const known = list => list.some(value => value !== null);
const METRIC_COLORS = ["gradient", "recomputed", "input", "output", "scratch"];

// Metrics of evaluations; those of averaged weights come last.
const metrics = [...new Set(data.evaluations.flatMap(row => Object.keys(row)))].filter(key => key.includes("eval_"))
  .sort((a, b) => a.startsWith("ema_") - b.startsWith("ema_"));
const metricName = key => key.replace(/^(ema_)?eval_/, (all, ema) => ema ? "averaged " : "");
const evaluationPoints = key => data.evaluations.map(row => [row.step, row[key] ?? null]);
const bestMark = key => data.best && data.best.metric === key && data.best.value !== null ? [[data.best.step, data.best.value]] : [];

function overviewSection() {
  const times = data.times, all = total(TIMES.map(([key]) => times[key]));
  const seconds = total(updates.seconds), samples = total(updates.samples), tokens = total(updates.tokens);
  const rows = [
    figure("state", el("span", { class: `state ${data.state.split(" ")[0]}` }, data.state), data.state_text),
    figure("updates", data.steps.toLocaleString("en-US"), data.epoch ? `in epoch ${data.epoch}` : ""),
    ...(count && phased ? data.phases.map(name => figure(`last loss of ${shorten(name, 24)}`, valueText(points(`loss.${name}`).findLast(point => point[1] !== null)?.[1] ?? null), "of its last update")) : []),
    count && !phased ? figure("last loss", valueText(updates.loss[count - 1]), merged ? `mean of ${updates.step[count - 1] - updates.first[count - 1] + 1} updates` : "of the last update") : null,
    data.best ? figure(`best ${metricName(data.best.metric)}`, valueText(data.best.value), `after update ${data.best.step.toLocaleString("en-US")}`) : null,
    seconds ? figure("throughput", `${Number(((tokens || samples) / seconds).toPrecision(4)).toLocaleString("en-US")}/s`, tokens ? "tokens, evaluation and checkpoints left out" : "samples, evaluation and checkpoints left out") : null,
    figure("time recorded", secondsText(all), "updates, evaluations and waits; start-up is not in it"),
    data.parameters ? figure("parameters", data.parameters.toLocaleString("en-US"), "trained by the plan") : null
  ];
  const warnings = [...data.problems];
  if (data.unreadable_lines) warnings.push(`${countText(data.unreadable_lines, "line")} of metrics.jsonl cannot be read, as after a crash, and left out.`);
  if (data.superseded) warnings.push(`A resume from an earlier update repeated later ones ${data.superseded === 1 ? "once" : `${data.superseded} times`}: their lines are in superseded/.`);
  if (data.damaged_samples) warnings.push(`${countText(data.damaged_samples, "damaged sample")} left out.`);
  return el("section", { id: "overview", "aria-label": "Overview", style: "margin-top: 0" }, figures(rows), timeBar(all), warnings.map(text => el("p", { class: "note" }, text)));
}

const TIMES = [["compute", "compute", "saved"], ["data", "waiting for data", "gradient"], ["ranks", "waiting for other ranks", "output"], ["checkpoints", "waiting for checkpoints", "recomputed"], ["evaluations", "evaluations", "input"]];
function timeBar(all) {
  if (!all) return null;
  const parts = TIMES.filter(([key]) => data.times[key] > 0);
  return [el("div", { class: "stack", role: "img", "aria-label": "Where the time went" },
    parts.map(([key, name, color]) => el("i", { style: `flex: ${1000 * data.times[key] / all} 0 0; background: var(--${color})`, title: `${name} ${secondsText(data.times[key])}` }))),
    el("div", { class: "keys" }, parts.map(([key, name, color]) => el("span", {}, el("span", { class: "swatch", style: `background: var(--${color})` }),
      `${name} ${secondsText(data.times[key])}, ${percentText(data.times[key] / all)}`)),
    known(updates.data_seconds) ? null : el("span", {}, "waits for data were not recorded by the version that trained"))];
}

// One series for each phase, of the updates in which it ran; one series for a plan with one optimizer.
const PHASE_COLORS = ["saved", "output", "input", "scratch"];
const phased = data.phases.length > 0;
const phaseSeries = (key, title) => phased
  ? data.phases.map((name, i) => ({ name, color: PHASE_COLORS[i % PHASE_COLORS.length], dash: i < PHASE_COLORS.length ? [] : [4, 3], points: points(`${key}.${name}`).filter(point => point[1] !== null) }))
  : [{ name: title, color: "saved", points: points(key) }];

// The training curve, with a smoothed one if it is long, and the evaluations of `metric`.
const busy = count > 60, smoothed = [];
const smoothAll = by => smoothed.forEach(line => { line.points = smooth(line.raw, by); });
function lossSeries(training, metric) {
  const lines = training.map(line => ({ ...line, raw: line.points }));
  smoothed.push(...lines);
  return [...(busy ? lines.map(line => ({ ...line, name: "raw", faint: true, hidden: true })) : []), ...lines,
    ...metrics.filter(key => key.replace(/^ema_/, "") === metric).map(key => ({
      name: key.startsWith("ema_") ? "evaluation, averaged weights" : "evaluation", color: key.startsWith("ema_") ? "recomputed" : "gradient", points: evaluationPoints(key), dots: true }))];
}

// One chart for each of several losses with one sum.
function partCurves() {
  return data.losses.map((loss, i) => curveFigure(
    new Curve(`part-${i}`, `Loss ${loss.name} by update`, lossSeries([{ name: "training", color: "saved", points: points(`loss/${loss.name}`) }], `eval_loss/${loss.name}`)),
    `Loss ${shorten(loss.name, 40)}`, loss.scale === null ? "" : `× ${loss.scale} in the sum`, { logarithm: true }));
}

function lossCurve() {
  const series = lossSeries(phaseSeries("loss", "training"), "eval_loss");
  if (merged && !phased) series[0].band = updates.step.map((step, i) => [updates.first[i], step, updates.loss_least[i], updates.loss_greatest[i]]);
  const best = data.best && data.best.metric.endsWith("eval_loss") ? bestMark(data.best.metric) : [];
  const curve = new Curve("loss-curve", "Loss of training and evaluations by update", series, { marks: best });
  const weight = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0.9, oninput: () => { smoothAll(Number(weight.value)); redraw(); } });
  weight.setAttribute("aria-label", "Smoothing");
  return curveFigure(curve, data.losses.length ? "Loss: the sum" : "Loss", best.length ? "◆ best" : "", { wide: true, logarithm: true, more: busy ? [el("label", { class: "check" }, "smoothing ", weight)] : [] });
}

function metricCurves() {
  const shown = ["eval_loss", ...data.losses.map(loss => `eval_loss/${loss.name}`)];
  const names = [...new Set(metrics.map(key => key.replace(/^ema_/, "")))].filter(key => !shown.includes(key));
  return names.filter(key => known(data.evaluations.flatMap(row => [row[key] ?? null, row[`ema_${key}`] ?? null]))).map((key, index) => {
    const series = [key, `ema_${key}`].filter(one => metrics.includes(one)).map((one, i) => ({
      name: i ? "averaged weights" : "weights", color: i ? "recomputed" : METRIC_COLORS[0], points: evaluationPoints(one), dots: true }));
    const mark = [key, `ema_${key}`].flatMap(bestMark);
    return curveFigure(new Curve(`metric-${index}`, `${metricName(key)} by update`, series, { marks: mark }), shorten(metricName(key), 60), mark.length ? "◆ best" : "");
  });
}

function curvesSection() {
  if (!count && !data.evaluations.length) return section("curves", "Curves", "", el("p", { class: "note" }, "No update is recorded yet."));
  const one = (id, title, key, options = {}) => known(updates[key]) ? curveFigure(new Curve(id, `${title} by update`, options.shared ? [{ name: title, color: "saved", points: points(key) }] : phaseSeries(key, title), options), title, options.note || "", { logarithm: options.logarithm }) : null;
  const losses = [lossCurve(), partCurves()];
  if (busy) smoothAll(0.9);
  const skipped = data.skipped_updates ? `${countText(data.skipped_updates, "update")} skipped${phased ? `: ${Object.entries(data.skipped_by_phase).map(([name, number]) => `${name} ${number}`).join(", ")}` : ""}` : "";
  return section("curves", "Curves", merged ? `by update; ${countText(data.steps, "update")} in ${countText(count, "point")}` : "by update",
    el("div", { class: "curves" }, losses, metricCurves(),
      one("rate", "Learning rate", "lr", { zero: true, logarithm: true }), one("norm", "Gradient norm", "grad_norm", { note: "before clipping", zero: true, logarithm: true }),
      one("scale", "Loss scale", "loss_scale", { note: skipped, logarithm: true, shared: true })),
    el("p", { class: "help" }, "drag to zoom, double click or ", el("kbd", {}, "0"), " to see all, ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " from update to update with a chart in focus",
      data.resumed_after.length ? "; a dashed line is where a process went on with the run" : "",
      data.stages.length > 1 ? "; a dotted line is where a stage begins" : ""));
}

function stagesSection() {
  if (!data.stages.length) return null;
  const now = data.stages.findLast(row => row.first <= Math.max(1, data.steps));
  return section("stages", "Stages", now ? `${data.state === "running" ? "now" : "it ended"} in ${now.name}` : "", new Table({
    rows: data.stages, noun: "stage", filter: false, columns: [
      { label: "stage", kind: "name", value: row => row.name },
      { label: "first update", kind: "number", value: row => row.first, text: row => row.first.toLocaleString("en-US") },
      { label: "last", kind: "number", value: row => row.last ?? Infinity, text: row => row.last === null ? "the run's end" : row.last.toLocaleString("en-US") },
      { label: "rate ×", kind: "number", value: row => row.lr_scale },
      { label: "tensors", kind: "number", value: row => row.parameters.length },
      { label: "trains", kind: "long", value: row => row.parameters.join(", "), cell: row => shorten(row.parameters.join(", "), 200) }]
  }).element);
}

function timeSection() {
  if (!count) return null;
  const width = i => updates.step[i] - updates.first[i] + 1, each = key => updates.step.map((step, i) => [step, updates[key][i] === null ? null : updates[key][i] / width(i)]);
  const rate = key => updates.step.map((step, i) => [step, updates[key][i] === null || !updates.seconds[i] ? null : updates[key][i] / updates.seconds[i]]);
  const key = known(updates.tokens) ? "tokens" : "samples", rates = rate(key), busy = rates.length > 60;
  const speed = [{ name: `${key}/s`, color: "saved", points: busy ? smooth(rates, 0.9) : rates }];
  if (busy) speed.unshift({ name: "raw", color: "saved", points: rates, faint: true, hidden: true });
  const seconds = [{ name: "an update", color: "saved", points: each("seconds") }];
  if (known(updates.data_seconds)) seconds.push({ name: "of it, waiting for data", color: "gradient", points: each("data_seconds") });
  const inSeconds = { zero: true, format: (value, step) => step ? axisSeconds(value, step) : secondsText(value) };
  const ranks = known(updates.communication_seconds) ? curveFigure(new Curve("communication", "Communication of an update", [
    { name: "collectives", color: "output", points: each("communication_seconds") },
    { name: "of it exposed: rank 0 waits", color: "gradient", points: each("exposed_seconds") }], inSeconds), "Communication", "seconds of an update on rank 0") : null;
  return section("time", "Throughput and time", "",
    el("div", { class: "curves" }, curveFigure(new Curve("throughput", "Throughput by update", speed, { zero: true }), key === "tokens" ? "Tokens a second" : "Samples a second", busy ? "smoothed" : ""),
      curveFigure(new Curve("seconds", "Seconds of an update", seconds, inSeconds), "Seconds", ""), ranks));
}
// All ticks of an axis use one unit.
function axisSeconds(value, step) {
  const [unit, factor] = step >= 1 ? ["s", 1] : step >= 1e-3 ? ["ms", 1e3] : ["µs", 1e6];
  return value === 0 ? "0" : `${valueText(value * factor, step * factor)} ${unit}`;
}

function checkpointsSection() {
  const rows = data.checkpoints;
  if (!rows.length) return section("checkpoints", "Checkpoints", "", el("p", { class: "note" }, "None is recorded."));
  const waited = total(rows.map(row => row.waited_seconds)), longest = Math.max(...rows.map(row => row.waited_seconds || 0));
  return section("checkpoints", "Checkpoints", `${rows.length.toLocaleString("en-US")} written, ${rows.filter(row => row.kept).length} still there`,
    el("div", { style: "margin-top: 10px" }, figures([
      figure("bytes of one", bytesText(rows[rows.length - 1].bytes), `${bytesText(total(rows.filter(row => row.kept).map(row => row.bytes)))} on the disk now`),
      figure("training waited", secondsText(waited), `${secondsText(longest)} for one at most`),
      figure("writing", secondsText(total(rows.map(row => row.seconds))), "until they were durable, in all")])),
    new Table({
      rows, noun: "checkpoint", shown: 12, filter: false, sort: { column: 0, down: true }, columns: [
        { label: "update", kind: "number", value: row => row.step, text: row => row.step.toLocaleString("en-US") },
        { label: "bytes", kind: "number", value: row => row.bytes, text: row => bytesText(row.bytes) },
        { label: "training waited", kind: "number", value: row => row.waited_seconds ?? -1, text: row => secondsText(row.waited_seconds) },
        { label: "durable after", kind: "number", value: row => row.seconds ?? -1, text: row => secondsText(row.seconds) },
        { label: "", value: row => (row.best ? "best" : row.kept ? "there" : "removed") }]
    }).element);
}

function evaluationsSection() {
  if (!data.evaluations.length) return null;
  const shown = metrics.slice(0, 8);
  return section("evaluations", "Evaluations", metrics.length > 8 ? `8 of ${metrics.length} metrics` : "", new Table({
    rows: data.evaluations, noun: "evaluation", shown: 12, filter: false, sort: { column: 0, down: true }, columns: [
      { label: "update", kind: "number", value: row => row.step, text: row => row.step.toLocaleString("en-US") },
      ...shown.map(key => ({ label: shorten(metricName(key), 40), kind: "number", value: row => row[key] ?? -Infinity, text: row => valueText(row[key] ?? null) })),
      { label: "seconds", kind: "number", value: row => row.seconds ?? -1, text: row => secondsText(row.seconds) }]
  }).element);
}

function samplesSection() {
  return data.samples ? section("samples", "Samples", "samples.png of the run", el("img", { class: "samples", src: data.samples, alt: "samples of the data as training reads them" })) : null;
}

function settingsSection() {
  const run = data.facts, text = value => Array.isArray(value) ? value.join("  ") : String(value);
  const list = (title, rows) => rows.length ? el("div", {}, el("h3", {}, title), facts(rows.map(([name, value]) => [name, shorten(text(value), 600)]))) : null;
  const of = [["model", run.model], ["plan", run.plan], ["target", run.target], ["written by", run.producer], ["options", run.options], ["--set", run.set && run.set.length ? run.set : null], ["seed", run.seed],
    ["order", run.shuffle === undefined ? null : run.shuffle ? "shuffled" : "as in the file"]].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const source = run.data ? [["samples", run.data.samples.toLocaleString("en-US")], ["samples an epoch", run.data.samples_an_epoch.toLocaleString("en-US")], ["samples a batch", run.data.batch], ["batches an epoch", run.data.batches_an_epoch.toLocaleString("en-US")],
    ...Object.entries(run.data.columns)] : [];
  if (!of.length) return section("settings", "The run", "", el("p", { class: "note" }, "The run has no checkpoint yet, and no options that could be read."));
  return section("settings", "The run", "", el("div", { class: "facts-grid" }, list("Plan and options", of), list("Data", source)), settingsTable(Object.entries(run.training || {})));
}

function settingsTable(rows) {
  // Values are JSON: a text without its quotes reads better.
  const plain = value => { try { const read = JSON.parse(value); return typeof read === "string" ? read : value; } catch { return value; } };
  return rows.length ? el("div", {}, el("h3", {}, "Settings in force"), new Table({
    rows, noun: "setting", shown: 15, columns: [{ label: "key", kind: "name", value: row => row[0] }, { label: "value", kind: "text", value: row => plain(row[1]) }]
  }).element) : null;
}

function logSection() {
  return data.log.length ? section("log", "Log", "the last lines of log.txt; progress, evaluations and checkpoints left out", el("pre", { class: "log" }, data.log.join("\n"))) : null;
}

showPage(`${data.run} · run`, data.run, [data.facts && data.facts.model, data.facts && data.facts.target].filter(Boolean).join(" for ") || data.state,
  [overviewSection(), curvesSection(), stagesSection(), timeSection(), evaluationsSection(), checkpointsSection(), samplesSection(), settingsSection(), logSection()]);
