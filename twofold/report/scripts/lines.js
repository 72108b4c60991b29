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
      root.append(svg("text", { x: 0, y: 40 }, shown.length ? "No value is above 0." : "All lines are hidden. Click a name above."));
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

// Draw the lines and return them with their points in pixels: [{ line, path, stroke, points: [{ x, y, at }] }].
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
  // The first line matters most, so it is drawn last, on top of the others.
  for (const { path, marks } of drawn.slice().reverse()) group.append(path, ...marks);
  return drawn;
}

// Show values under the pointer: on a ramp the nearest point of all lines, otherwise the nearest point of each line.
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
      const value = html("i", {}, showOn(description.y, line.y[point.at]) + elsewhere);
      return html("div", {}, html("span", { class: "swatch", style: `background: ${stroke}` }), line.name, value);
    });
    tooltip.replaceChildren(html("b", {}, `${description.x.label} ${show(at)}`), ...rows);
    // With several lines, keep the tooltip away from them: at the bottom if the lines are high, otherwise at the top.
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

  // A transparent rectangle receives pointer events between the lines, too.
  const sheet = svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  sheet.setAttribute("fill", "transparent");
  root.append(sheet);
  root.addEventListener("pointermove", hover);
  root.addEventListener("pointerdown", hover);
  root.addEventListener("pointerleave", leave);
}
