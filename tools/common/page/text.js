// Formats numbers, bytes, times and names for people; makes elements of the page.

const data = JSON.parse(document.getElementById("report").textContent);

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let value = bytes, unit = 0;
  for (; unit < 3 && value >= (unit ? 1023.95 : 1024); ++unit) value /= 1024;
  return unit ? `${value.toFixed(unit === 3 ? 2 : 1)} ${units[unit]}` : `${bytes} B`;
}

// Two ticks that are `step` bytes apart never get the same text.
function tickText(bytes, step) {
  const units = ["B", "KiB", "MiB", "GiB"], unit = Math.max(0, Math.min(3, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  const digits = Math.max(0, Math.min(3, Math.round(Math.log2(1024 ** unit / step)))); // of a power of two
  return `${(bytes / 1024 ** unit).toFixed(digits)} ${units[unit]}`;
}

function scaledText(value, step, units, digits = 1) {
  let unit = 0;
  for (; unit < units.length - 1 && value >= step; ++unit) value /= step;
  return `${unit || value % 1 ? value.toFixed(digits) : value} ${units[unit]}`;
}
const flopsText = flops => scaledText(flops, 1000, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]);
const timeText = (nanoseconds, digits = 2) => scaledText(nanoseconds, 1000, ["ns", "µs", "ms", "s"], digits);
const percentText = fraction => `${(100 * fraction).toFixed(Math.abs(fraction) < 0.0995 ? 2 : 1)} %`;
const countText = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

// Names may be long: the head and the tail distinguish them.
function shorten(text, most = 140) {
  return text.length <= most ? text : `${text.slice(0, most - 30)}…${text.slice(-29)}`;
}

// An element; children that are no elements become text, never markup.
function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties))
    if (key === "class") node.className = value;
    else if (key === "style" || key.startsWith("aria-") || key === "role" || key === "for") node.setAttribute(key, value);
    else node[key] = value;
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return node;
}
const swatch = purpose => el("span", { class: `swatch ${purpose}`, style: `background-color: var(--${purpose})` });
