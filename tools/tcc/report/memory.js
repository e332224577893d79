// The two charts of memory over time: how many bytes live, and at which addresses.

const BAND = 20, AXIS = 18; // the resident base line, which is not drawn to scale; room for the numbers of instructions

class Timeline extends TimeChart {
  constructor() { super("timeline", "Live bytes at each instruction"); this.toScale = false; }

  // Bytes of the arena → pixels. The resident arena is a band below, or, to scale, the space under the transient one.
  scale() {
    const program = view.program, resident = memory.resident_bytes;
    const most = Math.max(program.arena, program.peak - resident, 1);
    const top = 12, bottom = this.height - AXIS - (this.toScale ? 0 : BAND);
    const base = this.toScale ? resident : 0;
    return { most, top, bottom, base, y: bytes => bottom - (base + bytes) / ((base + most) * 1.13) * (bottom - top) };
  }

  draw(context, colors) {
    const program = view.program, { most, bottom, base, y } = this.scale();
    const levels = ticks(0, base + most, Math.floor((bottom - 12) / 30), true);
    for (const tick of levels) {
      const at = y(tick - base);
      this.line(LEFT, Math.round(at) + 0.5, this.width - RIGHT, Math.round(at) + 0.5, "line");
      this.text(tickText(tick, levels[1] - levels[0] || 1), LEFT - 7, at, { align: "right" });
    }
    this.drawStack(context, colors, y);
    if (this.toScale) this.fill(context, colors.state, LEFT, y(0), this.width - LEFT - RIGHT, bottom - y(0));
    else this.fill(context, colors.state, LEFT, bottom + 3, this.width - LEFT - RIGHT, BAND - 5);
    const residentY = this.toScale ? (y(0) + bottom) / 2 : bottom + BAND / 2 + 0.5;
    if (!this.toScale || bottom - y(0) > 14)
      this.text(`resident ${bytesText(memory.resident_bytes)}, at every instruction${this.toScale ? "" : " (not to scale)"}`, LEFT + 8, residentY, { color: "on-state" });
    this.drawLimits(y);
    this.drawCursor(12, bottom);
    this.drawPeak(context, y);
    this.drawTimeAxis(this.height - AXIS / 2);
  }

  fill(context, color, x, y, width, height) {
    context.fillStyle = color;
    context.fillRect(x, y, width, height);
  }

  // One column per pixel shows the instruction with the most live bytes among those that share it.
  drawStack(context, colors, y) {
    const program = view.program, end = this.width - RIGHT;
    const height = step => program.live[step];
    const column = (step, x, width) => {
      let sum = 0;
      for (const purpose of STACK) {
        const bytes = program.stack[purpose][step];
        if (!bytes) continue;
        context.globalAlpha = view.purpose && view.purpose !== purpose ? 0.22 : 1;
        const low = y(sum), high = y(sum += bytes);
        this.fill(context, colors[purpose], x, high, width, Math.max(0.5, low - high));
      }
      context.globalAlpha = 1;
    };
    const perPixel = (view.to - view.from) / (end - LEFT);
    if (perPixel < 1) {
      for (let step = Math.max(0, Math.floor(view.from)); step < Math.min(program.count, Math.ceil(view.to)); ++step) {
        const left = Math.max(LEFT, this.x(step)), right = Math.min(end, this.x(step + 1));
        if (right > left) column(step, left, right - left - (right - left > 6 ? 1 : 0));
      }
      return;
    }
    for (let x = LEFT; x < end; ++x) {
      const from = Math.max(0, Math.floor(this.time(x))), to = Math.min(program.count, Math.floor(this.time(x + 1)));
      let best = -1;
      for (let step = from; step < Math.max(to, from + 1) && step < program.count; ++step) if (best < 0 || height(step) > height(best)) best = step;
      if (best >= 0 && this.time(x + 1) > 0) column(best, x, 1);
    }
  }

  drawLimits(y) {
    const arena = view.program.arena, limits = [[arena, `arena ${bytesText(arena)}`, "soft"]];
    if (memory.budget_bytes !== null) {
      const room = memory.budget_bytes - memory.resident_bytes;
      // One line stands for both if they are equal, or nearly.
      const near = Math.abs(y(arena) - y(room)) < 15, text = `budget ${bytesText(room)} for it`;
      if (near) limits[0][1] += `, ${text}`;
      if (y(room) > 4) limits.push([room, near ? "" : text, "warn"]);
    }
    const texts = [];
    for (const [bytes, text, color] of limits) {
      const at = Math.round(y(bytes)) + 0.5;
      this.line(LEFT, at, this.width - RIGHT, at, color, { dash: [4, 3] });
      texts.push(() => this.text(text, this.width - RIGHT - 4, Math.min(...limits.filter(limit => limit[1] === text || !limit[1]).map(limit => y(limit[0]))) - 7, { align: "right", color, halo: true }));
    }
    texts.forEach(draw => draw());
  }

  drawPeak(context, y) {
    const program = view.program;
    if (program.peakStep < 0) return;
    const x = this.x(program.peakStep + 0.5), at = y(program.peak - memory.resident_bytes);
    if (x < LEFT || x > this.width - RIGHT) return;
    context.beginPath();
    context.arc(x, at, 3.5, 0, 7);
    context.fillStyle = Chart.colors.surface;
    context.fill();
    context.lineWidth = 2;
    context.strokeStyle = Chart.colors.ink;
    context.stroke();
    const right = x > this.width - 330;
    this.text(`peak ${bytesText(program.peak)} at ${program.stepText(program.peakStep)}`, x + (right ? -7 : 7), Math.max(at - 8, 8), { align: right ? "right" : "left", color: "ink", halo: true });
  }

  hover(event, { x }) {
    const step = Math.min(Math.max(this.stepAt(x), 0), view.program.count - 1), program = view.program;
    if (x < LEFT || step < 0) return hideTip();
    showTip(event, el("b", {}, `${program.stepText(step)} ${shorten(program.node(step) || "")}`),
      facts([["live", bytesText(program.live[step])], ["in the arena", bytesText(program.live[step] - memory.resident_bytes)],
             ["kernel", kernelText(program.kernel(step))], ["phase", PHASE_TEXT[program.raw.phase[step]]],
             ...STACK.filter(purpose => program.stack[purpose][step]).map(purpose => [PURPOSE_TEXT[purpose], bytesText(program.stack[purpose][step])])]));
  }
  click({ x }) { select(null, Math.min(Math.max(this.stepAt(x), 0), view.program.count - 1)); }
  open() { fitView(); }
}

class AddressMap extends TimeChart {
  constructor() { super("map", "Places of buffers in the arena over time"); }

  get bottom() { return this.height - AXIS; }
  y(offset) { return this.bottom - (offset - view.low) / (view.high - view.low) * (this.bottom - 8); }
  offset(y) { return view.low + (this.bottom - y) / (this.bottom - 8) * (view.high - view.low); }
  zoomVertically(factor, y) { zoomAddress(factor, this.offset(y)); }
  panVertically(y) {
    const bytes = y / (this.bottom - 8) * (view.high - view.low);
    view.low += bytes;
    view.high += bytes;
  }

  dim(buffer) {
    return (view.purpose && buffer.purpose !== view.purpose) || (view.match && !view.match.has(buffer.id));
  }

  draw(context, colors) {
    const program = view.program, end = this.width - RIGHT;
    context.fillStyle = colors.page;
    context.fillRect(LEFT, 8, end - LEFT, this.bottom - 8);
    const levels = ticks(view.low, view.high, Math.floor((this.bottom - 8) / 34), true);
    for (const tick of levels) {
      const at = this.y(tick);
      this.line(LEFT, Math.round(at) + 0.5, end, Math.round(at) + 0.5, "line");
      if (at > 12) this.text(tickText(tick, levels[1] - levels[0] || 1), LEFT - 7, at, { align: "right" });
    }
    context.save();
    context.beginPath();
    context.rect(LEFT, 8, end - LEFT, this.bottom - 8);
    context.clip();
    const labels = [];
    for (const buffer of program.placed) {
      if (buffer.last < view.from - 1 || buffer.first > view.to || buffer.offset > view.high || buffer.offset + buffer.bytes < view.low) continue;
      const x = Math.max(this.x(buffer.first), LEFT - 2), right = Math.min(this.x(buffer.last + 1), end + 2);
      const y = this.y(buffer.offset + buffer.bytes), low = this.y(buffer.offset);
      const width = Math.max(1, right - x - (right - x > 3 ? 1 : 0)), height = Math.max(0.6, low - y - (low - y > 6 ? 1 : low - y > 3 ? 0.5 : 0));
      const dimmed = this.dim(buffer);
      context.globalAlpha = dimmed ? 0.13 : 1;
      context.fillStyle = colors[buffer.purpose];
      context.fillRect(x, y, width, height);
      if (buffer.purpose === "recomputed" && height > 2) this.hatch(context, x, y, width, height);
      if (!dimmed && width > 46 && height >= 11) labels.push({ buffer, x, y, width, height });
    }
    context.globalAlpha = 1;
    context.font = "10.5px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { buffer, x, y, width, height } of labels.slice(0, 1200)) {
      const room = Math.floor((width - 8) / 6.4), name = buffer.node || buffer.name;
      context.fillStyle = colors[`on-${buffer.purpose}`];
      context.fillText(name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name, x + 4, y + Math.min(height / 2, 40));
    }
    if (view.hover && view.hover !== view.selected) this.outline(context, view.hover, colors.ink, 1.5);
    if (view.selected) this.outline(context, view.selected, colors.ink, 2.5, true);
    this.drawCursor(8, this.bottom);
    context.restore();
    this.drawTimeAxis(this.height - AXIS / 2);
  }

  hatch(context, x, y, width, height) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.strokeStyle = "rgb(255 255 255 / .45)";
    context.lineWidth = 1;
    context.beginPath();
    for (let at = x - height; at < x + width; at += 5) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
    }
    context.stroke();
    context.restore();
  }

  // The chosen buffer, with a tick for each instruction that reads it.
  outline(context, buffer, color, width, readers = false) {
    const x = this.x(buffer.first), right = this.x(buffer.last + 1), y = this.y(buffer.offset + buffer.bytes), low = this.y(buffer.offset);
    context.strokeStyle = Chart.colors.surface;
    context.lineWidth = width + 2;
    context.strokeRect(x, y, Math.max(1, right - x), Math.max(1, low - y));
    context.strokeStyle = color;
    context.lineWidth = width;
    context.strokeRect(x, y, Math.max(1, right - x), Math.max(1, low - y));
    if (!readers) return;
    context.fillStyle = color;
    for (const step of buffer.readers) {
      const at = this.x(step + 0.5);
      context.beginPath();
      context.moveTo(at - 4, y - 8);
      context.lineTo(at + 4, y - 8);
      context.lineTo(at, y - 2);
      context.fill();
    }
  }

  bufferAt({ x, y }) {
    if (x < LEFT || x > this.width - RIGHT || y > this.bottom) return null;
    // A pixel may hold many buffers: a buffer thinner than a pixel is found within one pixel.
    const step = this.stepAt(x), found = view.program.hit(step, this.offset(y));
    return found || view.program.hit(step, this.offset(y + 1)) || view.program.hit(step, this.offset(y - 1));
  }

  hover(event, at) {
    const buffer = this.bufferAt(at), changed = buffer !== view.hover;
    view.hover = buffer;
    if (changed) redraw();
    if (!buffer) return hideTip();
    showTip(event, el("b", {}, shorten(buffer.name)), el("p", {}, shorten(buffer.why, 300)), facts(bufferFacts(buffer)));
  }
  click(at) { select(this.bufferAt(at), Math.min(Math.max(this.stepAt(at.x), 0), view.program.count - 1)); }
  open(event) {
    const buffer = this.bufferAt(this.place(event));
    if (buffer) zoomTo(buffer); else fitView();
  }
}

function bufferFacts(buffer) {
  const program = view.program;
  return [["kind", el("span", {}, swatch(buffer.purpose), PURPOSE_TEXT[buffer.purpose])], ["node", shorten(buffer.node)], ["type", buffer.type],
    ["bytes", `${bytesText(buffer.bytes)}${buffer.bytes >= 1024 ? ` (${buffer.bytes.toLocaleString("en-US")})` : ""}`], ["offset", buffer.offset.toLocaleString("en-US")],
    ["birth", program.where(buffer.first)], ["death", program.where(buffer.last)]];
}
