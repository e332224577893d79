// What the page holds: the report, and for each program columns of numbers whose texts are indices into one list.

const report = data.report, memory = report.memory, strings = data.strings;
const PURPOSES = ["activation", "saved", "recomputed", "gradient", "input", "output", "scratch", "state"];
const PURPOSE_TEXT = {
  saved: "saved for backward", activation: "forward value", gradient: "gradient", recomputed: "recomputed",
  input: "input", output: "output", scratch: "scratch", state: "state"
};
const PHASE_TEXT = { F: "forward", B: "backward", U: "update", R: "recomputation" };
// From the bottom of the timeline upwards, the longest-lived first.
const STACK = ["saved", "recomputed", "output", "gradient", "input", "activation", "scratch"];
const ROLES = ["parameters", "optimizer", "accumulators", "frozen", "constants"];

// The range of instructions that may run concurrently with one, from the next to the last.
const besideText = (step, until, first, last) => until <= step ? "" : until === step + 1 ? `#${until} ${shorten(first, 60)}` : `#${step + 1} ${shorten(first, 60)} … #${until} ${shorten(last, 60)}`;
// A generated kernel is named by a hash of its code, whose start is enough for a person.
const kernelText = name => name.replace(/(^| )(k[0-9a-f]{12})[0-9a-f]{20}$/, "$1$2");

// One program, with the queries of the charts.
class Program {
  constructor(raw) {
    this.raw = raw;
    Object.assign(this, { name: raw.name, entry: raw.entry, arena: raw.arena_bytes, peak: raw.peak_bytes, peakStep: raw.peak_step });
    this.count = raw.live.length;
    this.live = raw.live;
    const columns = raw.buffers;
    this.buffers = columns.bytes.map((bytes, id) => ({
      id, bytes, name: strings[columns.name[id]], node: strings[columns.node[id]], type: strings[columns.type[id]],
      why: strings[columns.why[id]], offset: columns.offset[id], first: columns.first[id], last: columns.last[id],
      purpose: PURPOSES[columns.purpose[id]], writers: [], readers: []
    }));
    raw.reads.forEach((ids, step) => ids.forEach(id => this.buffers[id].readers.push(step)));
    raw.writes.forEach((ids, step) => ids.forEach(id => this.buffers[id].writers.push(step)));
    this.placed = this.buffers.filter(buffer => buffer.purpose !== "state" && buffer.last >= buffer.first && buffer.last >= -1 && buffer.first <= this.count);
    this.indexByTime();
    this.stackBytes();
  }

  node(step) { return strings[this.raw.node[step]]; }
  kernel(step) { return strings[this.raw.kernel[step]]; }
  nodes(step) { return this.raw.nodes[step].map(id => strings[id]); }
  // Instructions are counted from 0; -1 is the entry's start, their number its end.
  stepText(step) { return step < 0 ? "entry" : step >= this.count ? "exit" : `#${step}`; }
  where(step) { return step < 0 || step >= this.count ? this.stepText(step) : `#${step} ${shorten(this.node(step) || kernelText(this.kernel(step)), 60)}`; }

  // The instructions that may run concurrently with one: those after it, up to the last; empty if there are none.
  besideText(step) { return besideText(step, step + this.raw.beside[step], this.node(step + 1), this.node(step + this.raw.beside[step])); }

  // Buckets of instructions, each with what lives in one of them: a hit test looks at one bucket.
  indexByTime() {
    this.bucketSize = Math.max(8, Math.ceil((this.count + 2) / 512));
    this.buckets = Array.from({ length: Math.ceil((this.count + 2) / this.bucketSize) }, () => []);
    for (const buffer of this.placed) {
      const from = Math.floor((Math.max(-1, buffer.first) + 1) / this.bucketSize);
      const to = Math.floor((Math.min(this.count, buffer.last) + 1) / this.bucketSize);
      for (let bucket = from; bucket <= to; ++bucket) this.buckets[bucket].push(buffer);
    }
  }

  liveAt(step) {
    const bucket = this.buckets[Math.floor((step + 1) / this.bucketSize)] || [];
    return bucket.filter(buffer => buffer.first <= step && buffer.last >= step);
  }

  // If a result takes over the memory of its operand, the result is found.
  hit(step, offset) {
    let found = null;
    for (const buffer of this.liveAt(step))
      if (offset >= buffer.offset && offset < buffer.offset + buffer.bytes && (!found || buffer.first >= found.first))
        found = buffer;
    return found;
  }

  // Bytes of each purpose at each instruction; places that overlap count once, for the one at the lower address.
  stackBytes() {
    const times = this.count + 2, born = Array.from({ length: times }, () => []);
    this.placed.forEach(buffer => born[Math.max(-1, buffer.first) + 1].push(buffer));
    this.stack = Object.fromEntries(STACK.map(purpose => [purpose, new Float64Array(Math.max(1, this.count))]));
    let active = [];
    const sums = time => {
      const sum = Object.fromEntries(STACK.map(purpose => [purpose, 0]));
      let end = 0, total = 0;
      for (const buffer of active) {
        const stop = buffer.offset + buffer.bytes, more = stop - Math.max(end, buffer.offset);
        if (more > 0) { sum[buffer.purpose] += more; total += more; }
        end = Math.max(end, stop);
      }
      return { sum, total };
    };
    for (let time = 0; time < times; ++time) {
      if (born[time].length) {
        const added = born[time].sort((a, b) => a.offset - b.offset || a.id - b.id), merged = [];
        let i = 0;
        for (const buffer of active) {
          while (i < added.length && added[i].offset < buffer.offset) merged.push(added[i++]);
          merged.push(buffer);
        }
        active = merged.concat(added.slice(i));
      }
      // Inputs that nobody reads and outputs live outside the instructions: the first and the last stand for them.
      const step = Math.min(Math.max(time - 1, 0), Math.max(0, this.count - 1)), now = sums(time);
      const before = STACK.reduce((sum, purpose) => sum + this.stack[purpose][step], 0);
      if (now.total >= before) STACK.forEach(purpose => { this.stack[purpose][step] = now.sum[purpose]; });
      active = active.filter(buffer => buffer.last > time - 1);
    }
  }
}
const programs = data.programs.map(raw => new Program(raw));
