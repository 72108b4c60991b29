// Draws the charts of a Twofold page. Every <figure data-chart="id"> is filled from the JSON blob of the page by the
// function in `kinds` that its description names. A kind takes (figure, description) and returns draw(width), which is
// called again whenever the figure changes its width. Colours are CSS variables, so light and dark need no redrawing.
// Text enters the page through textContent only. This file is ASCII, as the whole page is.
(() => {
  "use strict";

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

  // As many digits as asked for, but whole numbers in full; powers of ten where zeros would fill the label.
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

  // ------------------------------------------------------------------------------------------ scales

  // Where the values of an axis end: [low, high], a little beyond the data where `margin` says so.
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
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const pad = (high - low) * margin;
    return [axis.zero && low === 0 ? 0 : low - pad, high + pad];
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
    // null where a log axis has no place for the value
    const place = (value) => (scale === "log" && value <= 0 ? null : from + ((warp(value) - start) / span) * (to - from));
    const ticks = (scale === "log" ? logTicks : linearTicks)(low, high, most, axis.whole);
    // Powers of ten and plain numbers do not mix well on one axis.
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
      const value = html("span", { class: "last" }, show(line.y[line.y.length - 1], description.y.unit));
      const title = description.latest ? "with its last value; click to hide or show" : "click to hide or show";
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

  // ------------------------------------------------------------------------------------------ line charts

  kinds.line = (figure, description) => {
    const hidden = new Set(), scales = { x: description.x.scale, y: description.y.scale };
    const plot = html("div", { class: "plot" });
    const tooltip = html("div", { class: "tooltip" });
    tooltip.hidden = true;
    const redraw = () => draw(plot.clientWidth);
    const lines = html("div", { class: "legend" }, ...legend(description, hidden, redraw));
    figure.append(switches(description, scales, redraw), lines, plot);

    function draw(width) {
      const shown = description.series.filter((line) => !hidden.has(line));
      const root = svg("svg", { role: "img", "aria-label": description.title, class: description.ramp ? "crowd" : "" });
      plot.replaceChildren(root, tooltip);
      tooltip.hidden = true;
      const height = Math.round(Math.max(230, Math.min(320, width * 0.58)));
      root.setAttribute("height", height);
      const x = extent(description.x, scales.x, shown.flatMap((line) => line.x), 0);
      const y = extent(description.y, scales.y, shown.flatMap((line) => line.y), 0.05);
      if (!x || !y) {
        root.append(svg("text", { x: 0, y: 40 }, shown.length ? "no value above 0" : "all lines are hidden"));
        return;
      }
      const box = { top: 24, bottom: height - 44, right: width - 18 };
      const yScale = makeScale(description.y, scales.y, y, [box.bottom, box.top], Math.floor((box.bottom - box.top) / 30));
      const longest = Math.max(...yScale.labels.map((label) => label.length));
      box.left = 14 + 7 * longest;
      const xScale = makeScale(description.x, scales.x, x, [box.left, box.right], Math.floor((box.right - box.left) / 64));
      drawAxes(root, description, box, xScale, yScale);
      const lines = drawLines(root, description, shown, box, xScale, yScale);
      listen(root, plot, tooltip, description, lines, box);
    }
    return draw;
  };

  // The lines with their points in pixels, for the hover: [{ line, path, stroke, points: [{ x, y, at }] }].
  function drawLines(root, description, shown, box, xScale, yScale) {
    const clip = `clip-${description.id}`;
    const area = { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 4 };
    root.append(svg("clipPath", { id: clip }));
    root.lastChild.append(svg("rect", area));
    const group = svg("g", { "clip-path": `url(#${clip})` });
    root.append(group);
    const drawn = shown.map((line) => {
      const stroke = colour(description, description.series.indexOf(line));
      const points = [];
      let d = "", pen = "M";
      line.x.forEach((value, at) => {
        const x = xScale.place(value), y = yScale.place(line.y[at]);
        if (x === null || y === null) {
          pen = "M";
          return;
        }
        points.push({ x, y, at });
        d += `${pen}${x.toFixed(1)},${y.toFixed(1)}`;
        pen = "L";
      });
      const path = svg("path", { class: "line", d, style: `stroke: ${stroke}` });
      const dots = line.dots || points.length === 1 ? points : [];
      const marks = dots.map(({ x, y }) => svg("circle", { cx: x, cy: y, r: 2.6, style: `fill: ${stroke}` }));
      return { line, path, stroke, points, marks };
    });
    // The first line is the one that matters most, so it lies on top.
    for (const { path, marks } of drawn.slice().reverse()) group.append(path, ...marks);
    return drawn;
  }

  // Under the pointer: of a ramp, the nearest point of all; else the nearest point of each line.
  function listen(root, plot, tooltip, description, lines, box) {
    const cross = svg("line", { class: "cross", y1: box.top, y2: box.bottom });
    const marks = svg("g", {});
    cross.style.display = "none";
    root.append(cross, marks);

    function nearest(points, pointer, weight) {
      const distance = (point) => Math.hypot(point.x - pointer.x, weight * (point.y - pointer.y));
      return points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    }

    function select(pointer) {
      const found = lines
        .map((drawn) => ({ ...drawn, points: drawn.points.filter((point) => point.y <= box.bottom + 1) }))
        .filter((drawn) => drawn.points.length)
        .map((drawn) => ({ ...drawn, point: nearest(drawn.points, pointer, description.ramp ? 1 : 0) }));
      if (!found.length) return [];
      const best = nearest(found.map((drawn) => drawn.point), pointer, description.ramp ? 1 : 0);
      if (description.ramp) return found.filter((drawn) => drawn.point === best);
      return found.filter((drawn) => Math.abs(drawn.point.x - best.x) < 12);
    }

    function hover(event) {
      const frame = root.getBoundingClientRect();
      const pointer = { x: event.clientX - frame.left, y: event.clientY - frame.top };
      const selected = select(pointer);
      if (!selected.length) {
        leave();
        return;
      }
      const { line, point } = selected.reduce((a, b) => (Math.abs(b.point.x - pointer.x) < Math.abs(a.point.x - pointer.x) ? b : a));
      const at = line.x[point.at];
      cross.setAttribute("x1", point.x);
      cross.setAttribute("x2", point.x);
      cross.style.display = "";
      root.classList.add("hovered");
      for (const drawn of lines) drawn.path.classList.toggle("near", selected.some(({ path }) => path === drawn.path));
      marks.replaceChildren(...selected.map(({ point, stroke }) =>
        svg("circle", { class: "mark", cx: point.x, cy: point.y, r: 4, style: `fill: ${stroke}` })));
      const rows = selected.map(({ line, point, stroke }) => {
        const elsewhere = line.x[point.at] === at ? "" : ` (${description.x.label} ${show(line.x[point.at])})`;
        const value = html("i", {}, show(line.y[point.at], description.y.unit) + elsewhere);
        return html("div", {}, html("span", { class: "swatch", style: `background: ${stroke}` }), line.name, value);
      });
      tooltip.replaceChildren(html("b", {}, `${description.x.label} ${show(at)}`), ...rows);
      // Of several lines it stands where they are not: low where they are high.
      const height = selected.reduce((sum, { point }) => sum + point.y, 0) / selected.length;
      const clear = height < (box.top + box.bottom) / 2 ? box.bottom : box.top;
      placeTooltip(tooltip, plot, { x: point.x, y: description.ramp ? point.y : clear });
    }

    function leave() {
      cross.style.display = "none";
      marks.replaceChildren();
      root.classList.remove("hovered");
      for (const { path } of lines) path.classList.remove("near");
      tooltip.hidden = true;
    }

    // A transparent sheet, so that the pointer is felt between the lines too.
    const sheet = svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
    sheet.setAttribute("fill", "transparent");
    root.append(sheet);
    root.addEventListener("pointermove", hover);
    root.addEventListener("pointerdown", hover);
    root.addEventListener("pointerleave", leave);
  }

  // ------------------------------------------------------------------------------------------ the page

  const descriptions = JSON.parse(document.getElementById("charts").textContent);
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const description = descriptions[figure.dataset.chart];
    const draw = kinds[description.kind](figure, description);
    let width = 0;
    const fit = () => {
      if (figure.clientWidth === width) return;
      width = figure.clientWidth;
      draw(width);
    };
    fit();
    new ResizeObserver(fit).observe(figure);
  }
})();
