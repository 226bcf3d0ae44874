// Numbers as words, elements, and the one tooltip: what every picture needs.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `attributes` may hold `style` (an object) and listeners (onclick, ...). */
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Seconds in a readable unit; other units are only named. */
function time(value, unit = "s") {
  if (unit !== "s") return `${digits(value, 4)} ${unit}`;
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${digits(value * 1e6, 3)} µs`;
  if (size < 1) return `${digits(value * 1e3, 3)} ms`;
  return size < 1000 ? `${digits(value, 4)} s` : `${digits(value / 60, 4)} min`;
}

function digits(value, count) {
  if (value === 0) return "0";
  const before = Math.floor(Math.log10(Math.abs(value))) + 1;
  return whole(value, Math.max(0, count - before));
}

/** Ticks as words: all with the same places, no more than they need. */
function timeTicks(values, unit) {
  const largest = Math.max(...values.map(Math.abs));
  const [factor, name] = unit !== "s" || largest >= 1 ? [1, unit] :
    largest >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  const step = values.length > 1 ? (values[1] - values[0]) * factor : largest * factor;
  const places = Math.min(6, Math.max(0, -Math.floor(Math.log10(step || 1) + 1e-9)));
  return values.map((value) => `${whole(value * factor, places)} ${name}`);
}

/** With separators of thousands, and `places` behind the point. */
function whole(value, places = 0) {
  return value.toLocaleString("en-US", {
    minimumFractionDigits: places, maximumFractionDigits: places,
  });
}

function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`;
}

/** About `count` round values between two. */
function ticks(from, to, count) {
  const raw = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9 * step; i++) found.push(i * step || 0);
  return found;
}

/** Black or white, whichever is readable on `#rrggbb`. */
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 150 ? "#1c2733" : "#ffffff";
}

function mix(colour, other, share) {
  const part = (at) => {
    const [a, b] = [colour, other].map((c) => parseInt(c.slice(at, at + 2), 16));
    return Math.round(a + (b - a) * share).toString(16).padStart(2, "0");
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}

/** The CSS background of idle time: hatched, so that it never looks like work. */
function hatched(colour) {
  const pale = mix(colour, "#ffffff", 0.55);
  return `repeating-linear-gradient(135deg, ${colour} 0 3px, ${pale} 3px 7px)`;
}

function legendEntry(background, text, title = "") {
  return make("span", { title }, make("i", { style: { background } }), text);
}

function origin(name) {
  return make("span", { class: `origin ${name}` }, name);
}

const tooltip = {
  /** A bold first line and further lines, beside the pointer. */
  show(event, [title, ...lines]) {
    const box = document.getElementById("tooltip");
    box.replaceChildren(make("b", {}, title), ...lines.map((line) => make("div", {}, line)));
    box.hidden = false;
    const left = Math.min(event.clientX + 16, window.innerWidth - box.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + box.offsetHeight < window.innerHeight - 8;
    box.style.left = `${Math.max(8, left)}px`;
    box.style.top = `${fits ? below : event.clientY - box.offsetHeight - 12}px`;
  },
  hide() {
    document.getElementById("tooltip").hidden = true;
  },
};
