// Time against memory: packed plans of the program that is shown, and the bound below which no schedule costs less.

class Frontier extends Chart {
  constructor() {
    super("frontier", "Cost of a call against bytes, for packed plans and the lower bound");
    this.canvas.addEventListener("pointermove", event => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.near = null; hideTip(); redraw(); });
  }

  get points() { return view.program.raw.frontier; }
  // With state on the host, arenas alone do not compare.
  get places() { return this.points.some(point => point.host_bytes) ? point => point.device_bytes : point => point.arena_bytes; }

  draw(context) {
    const points = this.points;
    if (!points.length) return;
    const at = this.places, onHost = points.filter(point => point.host_bytes);
    const left = 68, right = this.width - 18, top = 14, bottom = this.height - 34;
    const bytes = points.map(at), costs = points.flatMap(point => [point.cost_ns, point.lower_bound_cost_ns || point.cost_ns]);
    const padded = (low, high) => { const room = (high - low || high * 0.02 || 1) * 0.08; return [low - room, high + room]; };
    const [low, high] = padded(Math.min(...bytes), Math.max(...bytes)), [least, most] = padded(Math.min(...costs), Math.max(...costs));
    this.px = value => left + (value - low) / (high - low) * (right - left);
    this.py = value => bottom - (value - least) / (most - least) * (bottom - top);
    const levels = ticks(least, most, 6, false), unit = 1000 ** Math.max(0, Math.min(3, Math.floor(Math.log10(Math.max(1, most)) / 3)));
    const digits = levels.length > 1 ? Math.max(0, Math.ceil(-Math.log10((levels[1] - levels[0]) / unit) - 1e-9)) : 2;
    for (const tick of levels) {
      this.line(left, this.py(tick), right, this.py(tick), "line");
      this.text(timeText(tick, digits), left - 7, this.py(tick), { align: "right" });
    }
    const places = ticks(low, high, Math.floor((right - left) / 110), true);
    for (const tick of places) {
      this.line(this.px(tick), bottom, this.px(tick), bottom + 4, "strong");
      this.text(tickText(tick, places[1] - places[0] || 1), this.px(tick), bottom + 13, { align: "center" });
    }
    this.line(left, bottom, right, bottom, "strong");
    this.text(onHost.length ? "state and arena on the card" : `arena; with the state ${bytesText(memory.resident_bytes)} more`, right, bottom + 27, { align: "right", color: "faint" });
    const path = (value, color, dash) => {
      const known = points.filter(point => value(point) && !point.host_bytes);
      known.slice(1).forEach((point, i) => this.line(this.px(at(known[i])), this.py(value(known[i])), this.px(at(point)), this.py(value(point)), color, { dash, width: 1.5 }));
    };
    path(point => point.lower_bound_cost_ns, "faint", [4, 3]);
    path(point => point.cost_ns, "saved", []);
    for (const point of points) {
      context.beginPath();
      const size = point === this.near ? 6 : 4, x = this.px(at(point)), y = this.py(point.cost_ns);
      if (point.host_bytes) context.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2);
      else context.arc(x, y, size, 0, 7);
      context.fillStyle = Chart.colors[point.chosen ? "gradient" : point.host_bytes ? "input" : "saved"];
      context.fill();
      context.lineWidth = 1.5;
      context.strokeStyle = Chart.colors.surface;
      context.stroke();
      if (point.chosen) this.text("this plan", x, y - 13, { align: "center", color: "ink", halo: true });
    }
  }

  hover(event) {
    if (!this.px || !this.points.length) return;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const distance = point => Math.hypot(this.px(this.places(point)) - x, this.py(point.cost_ns) - y);
    const near = this.points.reduce((best, point) => distance(point) < distance(best) ? point : best);
    this.near = distance(near) < 30 ? near : null;
    redraw();
    if (!this.near) return hideTip();
    showTip(event, facts(frontierFacts(near, this.points)));
  }
}

function frontierFacts(point, points) {
  const least = Math.min(...points.map(other => other.cost_ns));
  return [["trun allocates", bytesText(point.device_bytes)], ["arena", bytesText(point.arena_bytes)], ...point.host_bytes ? [["on the host", bytesText(point.host_bytes)]] : [], ["cost", timeText(point.cost_ns, 3)],
    ["above the least", percentText(least ? point.cost_ns / least - 1 : 0)], ["lower bound", point.lower_bound_cost_ns ? timeText(point.lower_bound_cost_ns, 3) : "–"],
    ["gap", point.lower_bound_cost_ns ? percentText(point.cost_ns / point.lower_bound_cost_ns - 1) : "–"]];
}
