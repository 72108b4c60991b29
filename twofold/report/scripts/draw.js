// Draws the charts of a Twofold page. The JSON object of the page describes each <figure data-chart="id">, and the
// function in `kinds` that the description names draws it. A kind takes (figure, description) and returns draw(width),
// which is called again whenever the width of the figure changes. Colours are CSS variables, so a change between light
// and dark needs no redrawing. Text is set through textContent only, which cannot inject HTML. The script files are
// ASCII, like the whole page, and are joined into one function.

const kinds = {};

// ------------------------------------------------------------------------------------------ elements

function html(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// ------------------------------------------------------------------------------------------ numbers

const MINUS = "\u2212";
const SUPERSCRIPT = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074", 5: "\u2075",
  6: "\u2076", 7: "\u2077", 8: "\u2078", 9: "\u2079" };

function power(exponent) {
  return "10" + Array.from(String(exponent), (sign) => SUPERSCRIPT[sign]).join("");
}

// Format a value with `digits` significant digits. Integers are shown in full; very small and very large values become
// powers of ten.
function show(value, unit = "", digits = 4) {
  const size = Math.abs(value);
  let text;
  if (value !== 0 && (size < 1e-3 || size >= 1e7)) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    const front = Number(mantissa);
    text = (front === 1 ? "" : front === -1 ? "-" : front + "\u00d7") + power(Number(exponent));
  } else {
    const options = Number.isInteger(value) ? {} : { maximumSignificantDigits: digits };
    text = value.toLocaleString("en-US", options);
  }
  return text.replace(/^-/, MINUS) + (unit && "\u202f" + unit);
}

// Format a value of an axis, with a fixed number of decimals if the axis has one.
function showOn(axis, value) {
  if (axis.decimals === null) return show(value, axis.unit);
  return value.toFixed(axis.decimals).replace(/^-/, MINUS) + (axis.unit && "\u202f" + axis.unit);
}

// ------------------------------------------------------------------------------------------ scales

// The range of an axis, [low, high]. `margin` extends it beyond the data.
function extent(axis, scale, values, margin) {
  const log = scale === "log";
  const usable = log ? values.filter((value) => value > 0) : values;
  if (!usable.length) return null;
  let high = usable.reduce((a, b) => Math.max(a, b));
  let low = usable.reduce((a, b) => Math.min(a, b));
  if (log) {
    low = Math.max(low, high * axis.floor);
    if (low === high) [low, high] = [low / 2, high * 2];
    const stretch = Math.pow(high / low, margin);
    return [low / stretch, high * stretch];
  }
  if (axis.zero) low = Math.min(low, 0);
  if (low === high && !axis.span) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const pad = Math.max((high - low) * margin, (axis.span - (high - low)) / 2);
  return within(axis.limits, [axis.zero && low === 0 ? 0 : low - pad, high + pad]);
}

// Move a range between the limits. Its length changes only if it does not fit.
function within(limits, [low, high]) {
  if (!limits) return [low, high];
  const [least, most] = limits;
  const shift = low < least ? least - low : Math.min(0, most - high);
  return [Math.max(least, low + shift), Math.min(most, high + shift)];
}

function linearTicks(low, high, most, whole) {
  const rough = (high - low) / Math.max(most, 1);
  const unit = Math.pow(10, Math.floor(Math.log10(rough)));
  let step = unit * [1, 2, 5, 10].find((multiple) => unit * multiple >= rough * 0.999);
  if (whole) step = Math.max(1, step);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high, most, whole) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const candidates = [[1, 2, 5], [1, 3], [1]].map((multiples) => {
    const ticks = [];
    for (let k = first; k <= last; k++) {
      for (const multiple of multiples) ticks.push(Number(multiple + "e" + k));
    }
    return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  });
  if (candidates[0].length < 2) return linearTicks(low, high, most, whole);
  const decades = candidates[2];
  const stride = Math.ceil(decades.length / Math.max(most, 1));
  return candidates.find((ticks) => ticks.length <= most && ticks.length > 1)
    || decades.filter((tick) => Math.round(Math.log10(tick)) % stride === 0);
}

function makeScale(axis, scale, [low, high], [from, to], most) {
  const warp = scale === "log" ? Math.log10 : (value) => value;
  const start = warp(low), span = warp(high) - start;
  // null if a log axis cannot show the value
  const place = (value) => (scale === "log" && value <= 0 ? null : from + ((warp(value) - start) / span) * (to - from));
  const ticks = (scale === "log" ? logTicks : linearTicks)(low, high, most, axis.whole);
  // Label all ticks as powers of ten or none, because a mix is hard to read.
  const exponents = ticks.map((tick) => Math.round(Math.log10(tick)));
  const decades = ticks.every((tick, i) => tick === Number("1e" + exponents[i]));
  const powers = decades && exponents.some((exponent) => exponent < -3 || exponent > 5);
  const labels = ticks.map((tick, i) => (powers && tick !== 1 ? power(exponents[i]) : show(tick, axis.unit)));
  return { place, ticks, labels };
}

function colour(description, index) {
  if (!description.ramp) {
    const named = description.series[index].colour;
    if (named) return `var(--${named})`;
    return `var(--series-${description.series.slice(0, index).filter((line) => !line.colour).length % 6})`;
  }
  const place = (4 * index) / Math.max(description.series.length - 1, 1);
  const below = Math.min(Math.floor(place), 3), part = Math.round(100 * (place - below));
  return `color-mix(in oklab, var(--ramp-${below + 1}) ${part}%, var(--ramp-${below}))`;
}

// ------------------------------------------------------------------------------------------ the parts of a chart

// Grid lines, tick labels and axis titles.
function drawAxes(root, description, box, x, y) {
  y.ticks.forEach((tick, i) => {
    const at = y.place(tick);
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }));
    root.append(svg("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, y.labels[i]));
  });
  x.ticks.forEach((tick, i) => {
    const at = x.place(tick);
    root.append(svg("line", { class: "grid", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }));
    root.append(svg("text", { x: at, y: box.bottom + 18, "text-anchor": "middle" }, x.labels[i]));
  });
  root.append(svg("text", { x: 0, y: 11 }, description.y.label));
  root.append(svg("text", { x: box.right, y: box.bottom + 36, "text-anchor": "end" }, description.x.label));
}

function legend(description, hidden, redraw) {
  if (description.ramp) {
    const names = description.series.map((line) => line.name);
    const bar = html("span", { class: "ramp" });
    return [html("span", { class: "ramp-legend" }, names[0], bar, names[names.length - 1])];
  }
  return description.series.map((line, index) => {
    const swatch = html("span", { class: "swatch", style: `background: ${colour(description, index)}` });
    const value = html("span", { class: "last" }, showOn(description.y, line.y[line.y.length - 1]));
    const title = description.latest ? "Shows the last value. Click to hide or show the line." : "Click to hide or show the line.";
    const button = html("button", { class: "series", type: "button", "aria-pressed": true, title });
    button.append(swatch, line.name, description.latest ? value : "");
    button.addEventListener("click", () => {
      if (!hidden.delete(line)) hidden.add(line);
      button.setAttribute("aria-pressed", !hidden.has(line));
      redraw();
    });
    return button;
  });
}

function switches(description, scales, redraw) {
  const buttons = ["x", "y"].filter((name) => description[name].switch).map((name) => {
    const button = html("button", { class: "switch", type: "button" }, "log " + description[name].label);
    const tell = () => button.setAttribute("aria-pressed", scales[name] === "log");
    button.addEventListener("click", () => {
      scales[name] = scales[name] === "log" ? "linear" : "log";
      tell();
      redraw();
    });
    tell();
    return button;
  });
  return html("div", { class: "switches" }, ...buttons);
}

function placeTooltip(tooltip, plot, at) {
  tooltip.hidden = false;
  const room = plot.clientWidth - tooltip.offsetWidth;
  const beside = at.x + 14 <= room ? at.x + 14 : at.x - 14 - tooltip.offsetWidth;
  tooltip.style.left = `${Math.max(0, Math.min(beside, room))}px`;
  tooltip.style.top = `${Math.max(0, at.y - tooltip.offsetHeight - 10)}px`;
}
