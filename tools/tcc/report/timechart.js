// A chart over time: instructions from left to right, with the range, the cursor and the selection in `view`.
const LEFT = 68, RIGHT = 10;
const view = { program: programs[0], from: -1, to: 0, low: 0, high: 1, cursor: 0, selected: null, hover: null, match: null, purpose: null };

function clampView() {
  const program = view.program, first = -1, last = program.count + 1;
  const span = Math.min(Math.max(view.to - view.from, Math.min(6, last - first)), last - first);
  view.from = Math.min(Math.max(view.from, first), last - span);
  view.to = view.from + span;
  const top = Math.max(1, program.arena), room = Math.min(Math.max(view.high - view.low, Math.min(256, top)), top);
  view.low = Math.min(Math.max(view.low, 0), top - room);
  view.high = view.low + room;
}
function fitView() {
  Object.assign(view, { from: -1, to: view.program.count + 1, low: 0, high: Math.max(1, view.program.arena) });
  clampView();
  redraw();
}
const fitted = () => view.to - view.from >= view.program.count + 2 - 1e-6;
function zoomTime(factor, at) {
  view.from = at - (at - view.from) * factor;
  view.to = at + (view.to - at) * factor;
  clampView();
  redraw();
}
function zoomAddress(factor, at) {
  view.low = at - (at - view.low) * factor;
  view.high = at + (view.high - at) * factor;
  clampView();
  redraw();
}

class TimeChart extends Chart {
  constructor(id, label) {
    super(id, label);
    const canvas = this.canvas;
    canvas.addEventListener("wheel", event => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", event => this.down(event));
    canvas.addEventListener("pointermove", event => this.move(event));
    canvas.addEventListener("pointerup", event => this.up(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => { view.hover = null; hideTip(); redraw(); });
    canvas.addEventListener("dblclick", event => this.open(event));
    canvas.addEventListener("keydown", event => keyboard(event));
  }

  x(time) { return LEFT + (time - view.from) / (view.to - view.from) * (this.width - LEFT - RIGHT); }
  time(x) { return view.from + (x - LEFT) / (this.width - LEFT - RIGHT) * (view.to - view.from); }
  stepAt(x) { return Math.min(Math.max(Math.floor(this.time(x)), -1), view.program.count); }
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  wheel(event) {
    const { x, y } = this.place(event);
    // When the whole program is in view, the wheel scrolls the page.
    if (event.deltaY > 0 && !event.shiftKey && fitted() && Math.abs(event.deltaY) >= Math.abs(event.deltaX)) return;
    event.preventDefault();
    const delta = event.deltaMode === 1 ? 16 : 1, factor = Math.exp(0.0018 * delta * (event.deltaY || (event.shiftKey ? event.deltaX : 0)));
    if (!event.shiftKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(-event.deltaX, 0);
    else if (event.shiftKey) this.zoomVertically(factor, y);
    else zoomTime(factor, this.time(x));
  }
  zoomVertically() {}

  pan(x, y) {
    const time = x / (this.width - LEFT - RIGHT) * (view.to - view.from);
    view.from -= time;
    view.to -= time;
    this.panVertically(y);
    clampView();
    redraw();
  }
  panVertically() {}

  down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { ...this.place(event), moved: false };
  }
  move(event) {
    const at = this.place(event);
    if (this.drag) {
      if (Math.hypot(at.x - this.drag.x, at.y - this.drag.y) > 3 || this.drag.moved) {
        this.pan(at.x - this.drag.x, at.y - this.drag.y);
        this.drag = { ...at, moved: true };
        this.canvas.classList.add("dragging");
        hideTip();
      }
      return;
    }
    this.hover(event, at);
  }
  up(event) {
    const drag = this.drag;
    this.drag = null;
    this.canvas.classList.remove("dragging");
    if (drag && !drag.moved) this.click(this.place(event));
  }
  open() {}

  drawTimeAxis(y) {
    const most = Math.max(2, Math.floor((this.width - LEFT - RIGHT) / 80));
    for (const tick of ticks(Math.max(0, view.from), Math.min(view.to, view.program.count), most, false))
      if (Number.isInteger(tick)) this.text(String(tick), Math.min(this.x(tick + 0.5), this.width - RIGHT - 8), y, { align: "center", color: "faint" });
  }
  drawCursor(top, bottom) {
    const left = this.x(view.cursor), right = this.x(view.cursor + 1);
    if (right < LEFT || left > this.width - RIGHT) return;
    if (right - left > 3) {
      this.context.globalAlpha = 0.12;
      this.context.fillStyle = Chart.colors.accent;
      this.context.fillRect(left, top, right - left, bottom - top);
      this.context.globalAlpha = 1;
    }
    this.line((left + right) / 2, top, (left + right) / 2, bottom, "accent");
  }
}

// The same keys in both charts.
function keyboard(event) {
  const program = view.program, middle = view.cursor + 0.5, width = view.to - view.from, height = view.high - view.low;
  const big = event.shiftKey ? 10 : 1;
  const keys = {
    ArrowLeft: () => setCursor(view.cursor - big), ArrowRight: () => setCursor(view.cursor + big),
    ArrowUp: () => nextBuffer(1), ArrowDown: () => nextBuffer(-1),
    Home: () => setCursor(0), End: () => setCursor(program.count - 1),
    PageUp: () => { view.from -= width / 2; view.to -= width / 2; clampView(); }, PageDown: () => { view.from += width / 2; view.to += width / 2; clampView(); },
    "+": () => zoomTime(0.7, middle), "=": () => zoomTime(0.7, middle), "-": () => zoomTime(1 / 0.7, middle),
    "]": () => zoomAddress(0.7, addressInView()), "[": () => zoomAddress(1 / 0.7, addressInView()),
    w: () => { view.low += height / 4; view.high += height / 4; clampView(); }, s: () => { view.low -= height / 4; view.high -= height / 4; clampView(); },
    0: fitView, p: () => setCursor(program.peakStep), z: () => view.selected && zoomTo(view.selected),
    Escape: () => select(null), Enter: () => view.selected && zoomTo(view.selected)
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
  redraw();
}
function addressInView() {
  const chosen = view.selected;
  return chosen ? chosen.offset + chosen.bytes / 2 : (view.low + view.high) / 2;
}
function zoomTo(buffer) {
  const life = Math.max(4, buffer.last - buffer.first + 1);
  Object.assign(view, { from: buffer.first - life * 0.15, to: buffer.last + 1 + life * 0.15, low: buffer.offset - buffer.bytes * 1.5, high: buffer.offset + buffer.bytes * 2.5 });
  clampView();
  redraw();
}
function nextBuffer(direction) {
  const live = view.program.liveAt(view.cursor).sort((a, b) => a.offset - b.offset || a.id - b.id);
  const at = live.indexOf(view.selected);
  const next = at < 0 ? (direction > 0 ? 0 : live.length - 1) : Math.min(Math.max(at + direction, 0), live.length - 1);
  if (live[next]) select(live[next]);
}
