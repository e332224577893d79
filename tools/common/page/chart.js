// Code of all charts: a canvas in device pixels, colours of the style sheet, ticks, the tooltip, one redraw per frame.

const charts = [];
let frame = 0;
function redraw() { if (!frame) frame = requestAnimationFrame(redrawNow); }
function redrawNow() {
  cancelAnimationFrame(frame);
  frame = 0;
  Chart.readColors();
  charts.forEach(chart => chart.paint());
}

const tip = document.getElementById("tip");
function showTip(event, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), gap = 14;
  const x = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
  const y = event.clientY + gap + box.height > innerHeight ? event.clientY - gap - box.height : event.clientY + gap;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}
function hideTip() { tip.hidden = true; }
const facts = rows => el("dl", { class: "facts" }, rows.filter(([, value]) => value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

// Values at round distances: powers of two for bytes, 1, 2 and 5 for the rest.
function ticks(from, to, most, binary) {
  const raw = (to - from) / Math.max(1, most);
  let step;
  if (binary) step = 2 ** Math.ceil(Math.log2(Math.max(1, raw)));
  else {
    const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-300)));
    step = power * [1, 2, 5, 10].find(factor => factor * power >= raw * 0.999999);
  }
  const list = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9; value += step) list.push(value);
  return list;
}

class Chart {
  constructor(id, label) {
    this.canvas = el("canvas", { id, tabIndex: 0, role: "img", "aria-label": label });
    this.context = this.canvas.getContext("2d");
    new ResizeObserver(redraw).observe(this.canvas);
    charts.push(this);
  }

  static readColors() {
    const style = getComputedStyle(document.documentElement);
    Chart.colors = new Proxy({}, { get: (known, name) => known[name] ||= style.getPropertyValue(`--${name}`).trim() });
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.width = width;
    this.height = height;
    this.draw(this.context, Chart.colors);
  }

  text(text, x, y, { color = "soft", align = "left", font = "11px system-ui, sans-serif", halo = false } = {}) {
    const context = this.context;
    context.font = font;
    context.textAlign = align;
    context.textBaseline = "middle";
    if (halo && text) { // lines behind a text make it hard to read
      const width = context.measureText(text).width + 4, left = align === "right" ? x - width + 2 : align === "center" ? x - width / 2 : x - 2;
      context.globalAlpha = 0.85;
      context.fillStyle = Chart.colors.surface;
      context.fillRect(left, y - 7, width, 14);
      context.globalAlpha = 1;
    }
    context.fillStyle = Chart.colors[color];
    context.fillText(text, x, y);
  }

  line(x1, y1, x2, y2, color, { dash = [], width = 1 } = {}) {
    const context = this.context;
    context.beginPath();
    context.setLineDash(dash);
    context.lineWidth = width;
    context.strokeStyle = Chart.colors[color];
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    context.setLineDash([]);
  }
}
