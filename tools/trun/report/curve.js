// Curves over updates: all charts show the same range and the same update under the pointer.

const LEFT = 64, RIGHT = 14, TOP = 12, BOTTOM = 24;
const lastStep = Math.max(1, data.steps, ...data.evaluations.map(row => row.step));
const range = { from: 0, to: lastStep, at: null, drag: null };

// The shortest text that distinguishes neighbouring ticks.
function valueText(value, step = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(step && step / size < 0.05 ? 2 : 1).replace("e+", "e");
  if (!step) return String(Number(value.toPrecision(5)));
  const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(step) - 1e-9)));
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
function secondsText(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds >= 60) return `${(seconds / 60).toFixed(1)} min`;
  return seconds >= 0.1 ? `${seconds.toFixed(2)} s` : `${(seconds * 1000).toPrecision(3)} ms`;
}

// An exponential moving average with bias correction; `weight` is that of the past.
function smooth(points, weight) {
  let sum = 0, total = 0;
  return points.map(([x, y]) => {
    if (y === null) return [x, null];
    sum = weight * sum + (1 - weight) * y;
    total = weight * total + (1 - weight);
    return [x, sum / total];
  });
}

class Curve extends Chart {
  // series: { name, color, points: [[step, value or null]…], dots, faint, dash, band: [[step, low, high]…], hidden: not in the tip }.
  constructor(id, label, series, { format = valueText, zero = false, marks = [] } = {}) {
    super(id, label);
    this.canvas.className = "curve";
    Object.assign(this, { series, format, zero, marks, logarithmic: false });
    const canvas = this.canvas, place = event => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("pointermove", event => this.hover(event, place(event)));
    canvas.addEventListener("pointerleave", () => { range.at = null; range.drag = null; hideTip(); redraw(); });
    canvas.addEventListener("pointerdown", event => { if (!event.button && event.pointerType !== "touch") range.drag = this.stepAt(place(event)); });
    canvas.addEventListener("pointerup", event => {
      const from = range.drag, to = this.stepAt(place(event));
      range.drag = null;
      if (from !== null && Math.abs(this.px(from) - this.px(to)) > 6) Object.assign(range, { from: Math.min(from, to), to: Math.max(from, to) });
      redraw();
    });
    canvas.addEventListener("dblclick", showAll);
    canvas.addEventListener("keydown", event => this.key(event));
  }

  px(step) { return LEFT + (step - range.from) / (range.to - range.from || 1) * (this.width - LEFT - RIGHT); }
  stepAt(x) { return Math.min(range.to, Math.max(range.from, range.from + (x - LEFT) / Math.max(1, this.width - LEFT - RIGHT) * (range.to - range.from))); }
  inView(step) { return step >= range.from && step <= range.to; }

  limits() {
    let low = Infinity, high = -Infinity;
    const take = value => { if (value !== null && (!this.logarithmic || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); } };
    for (const series of this.series) for (const [step, value] of series.points) if (this.inView(step)) take(value);
    if (this.zero && !this.logarithmic) low = Math.min(0, low);
    if (low > high) return null;
    if (this.logarithmic) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
    const room = (high - low || Math.abs(high) * 0.1 || 1) * 0.06;
    return [this.zero && low >= 0 ? 0 : low - room, high + room];
  }

  draw(context) {
    const bottom = this.height - BOTTOM, right = this.width - RIGHT, limits = this.limits();
    if (!limits) return this.text("no values in this range", this.width / 2, this.height / 2, { align: "center", color: "faint" });
    const [low, high] = limits, scale = this.logarithmic ? Math.log : value => value;
    this.py = value => bottom - (scale(value) - scale(low)) / (scale(high) - scale(low)) * (bottom - TOP);
    for (const [tick, text] of this.levels(low, high)) {
      this.line(LEFT, this.py(tick), right, this.py(tick), "line");
      this.text(text, LEFT - 7, this.py(tick), { align: "right" });
    }
    for (const tick of ticks(range.from, range.to, Math.max(2, Math.floor((right - LEFT) / 80)), false))
      if (Number.isInteger(tick)) this.text(tick.toLocaleString("en-US"), Math.min(this.px(tick), right - 8), bottom + 13, { align: "center", color: "faint" });
    this.line(LEFT, bottom, right, bottom, "strong");
    context.save();
    context.beginPath();
    context.rect(LEFT - 4, 0, right - LEFT + 8, bottom + 4);
    context.clip();
    data.resumed_after.forEach(step => {
      this.line(this.px(step), TOP, this.px(step), bottom, "faint", { dash: [3, 3] });
      if (data.resumed_after.length < 6) this.text("resumed", this.px(step) + 4, TOP + 5, { color: "faint" });
    });
    data.stages.slice(1).forEach(stage => {
      this.line(this.px(stage.first), TOP, this.px(stage.first), bottom, "faint", { dash: [1, 3] });
      this.text(stage.name, this.px(stage.first) + 4, TOP + (data.resumed_after.length ? 17 : 5), { color: "faint" });
    });
    this.series.forEach(series => this.drawSeries(context, series));
    for (const [step, value] of this.marks) if (value > 0 || !this.logarithmic) this.diamond(context, this.px(step), this.py(value));
    if (range.at !== null) this.line(this.px(range.at), TOP, this.px(range.at), bottom, "accent");
    if (range.drag !== null && range.at !== null) {
      context.globalAlpha = 0.12;
      context.fillStyle = Chart.colors.accent;
      context.fillRect(this.px(range.drag), TOP, this.px(range.at) - this.px(range.drag), bottom - TOP);
      context.globalAlpha = 1;
    }
    context.restore();
  }

  levels(low, high) {
    if (this.logarithmic) {
      const list = [];
      const decades = Math.log10(high / low), factors = decades > 3 ? [1] : decades > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
        for (const factor of factors) if (factor * 10 ** power >= low && factor * 10 ** power <= high) list.push(factor * 10 ** power);
      return list.map(value => [value, this.format(value)]);
    }
    const list = ticks(low, high, Math.max(2, Math.floor((this.height - TOP - BOTTOM) / 38)), false), step = list.length > 1 ? list[1] - list[0] : 0;
    return list.map(value => [Math.abs(value) < step * 1e-9 ? 0 : value, this.format(Math.abs(value) < step * 1e-9 ? 0 : value, step)]);
  }

  drawSeries(context, series) {
    const good = value => value !== null && (!this.logarithmic || value > 0);
    if (series.band) {
      context.globalAlpha = 0.16;
      context.fillStyle = Chart.colors[series.color];
      for (const [from, to, low, high] of series.band) if (good(low) && good(high)) {
        const x = this.px(from), y = this.py(high);
        context.fillRect(x, y, Math.max(1, this.px(to) - x), Math.max(1, this.py(low) - y));
      }
      context.globalAlpha = 1;
    }
    context.globalAlpha = series.faint ? 0.35 : 1;
    context.strokeStyle = Chart.colors[series.color];
    context.lineWidth = series.faint ? 1 : 1.6;
    context.setLineDash(series.dash || []);
    context.lineJoin = "round";
    context.beginPath();
    let open = false;
    for (const [step, value] of series.points) {
      if (!good(value)) { open = false; continue; }
      if (open) context.lineTo(this.px(step), this.py(value));
      else context.moveTo(this.px(step), this.py(value));
      open = true;
    }
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
    const shown = series.points.filter(([step, value]) => good(value) && this.inView(step));
    if (!series.dots && shown.length > 1) return;
    if (shown.length > 120) return;
    context.fillStyle = Chart.colors[series.color];
    for (const [step, value] of shown) {
      context.beginPath();
      context.arc(this.px(step), this.py(value), 2.6, 0, 7);
      context.fill();
    }
  }

  diamond(context, x, y) {
    context.beginPath();
    [[0, -6], [6, 0], [0, 6], [-6, 0]].forEach(([dx, dy], index) => index ? context.lineTo(x + dx, y + dy) : context.moveTo(x + dx, y + dy));
    context.closePath();
    context.fillStyle = Chart.colors.gradient;
    context.strokeStyle = Chart.colors.surface;
    context.lineWidth = 1.5;
    context.fill();
    context.stroke();
  }

  // The point of a series that is nearest to an update; none if it is far away.
  near(series, step) {
    let best = null;
    for (const point of series.points) if (point[1] !== null && (!best || Math.abs(point[0] - step) < Math.abs(best[0] - step))) best = point;
    return best && Math.abs(best[0] - step) <= Math.max(1, (range.to - range.from) * 0.05) ? best : null;
  }

  hover(event, x) {
    const updates = this.series.flatMap(series => series.hidden ? [] : [this.near(series, this.stepAt(x))]).filter(Boolean);
    if (!updates.length) { range.at = null; hideTip(); return redraw(); }
    const step = updates.reduce((best, point) => Math.abs(point[0] - this.stepAt(x)) < Math.abs(best[0] - this.stepAt(x)) ? point : best)[0];
    range.at = range.drag === null ? step : this.stepAt(x);
    redraw();
    showTip(event, ...this.describe(step));
  }

  describe(step) {
    const rows = this.series.filter(series => !series.hidden).map(series => {
      const point = this.near(series, step);
      return point ? [series.name, this.format(point[1]) + (point[0] !== step ? ` (update ${point[0].toLocaleString("en-US")})` : "")] : [series.name, ""];
    });
    return [el("b", {}, `update ${step.toLocaleString("en-US")}`), facts(rows)];
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape" || event.key === "0") showAll();
    if (!step) return;
    event.preventDefault();
    const steps = this.series.flatMap(series => series.points.map(point => point[0])).filter(one => this.inView(one)).sort((a, b) => a - b);
    const now = range.at ?? (step > 0 ? -Infinity : Infinity);
    const next = step > 0 ? steps.find(one => one > now) : steps.findLast(one => one < now);
    if (next === undefined) return;
    range.at = next;
    const box = this.canvas.getBoundingClientRect();
    showTip({ clientX: box.left + this.px(next), clientY: box.top + TOP }, ...this.describe(next));
    redraw();
  }
}

function showAll() {
  Object.assign(range, { from: 0, to: lastStep, drag: null });
  redraw();
}

// A chart with its caption; the legend names the series.
function curveFigure(curve, title, subtitle, { wide = false, logarithm = false, more = [] } = {}) {
  const box = el("input", { type: "checkbox", onchange: () => { curve.logarithmic = box.checked; redraw(); } });
  const keys = curve.series.filter(series => !series.faint && !series.hidden && curve.series.length > 1);
  return el("div", { class: wide ? "plots wide" : "plots" }, el("figure", {}, el("figcaption", {}, el("b", {}, title), subtitle ? el("span", {}, subtitle) : null,
    keys.map(series => el("span", {}, el("span", { class: "swatch", style: `background: var(--${series.color})` }), series.name)), more,
    logarithm ? el("label", { class: "check" }, box, "log") : null), curve.canvas));
}
