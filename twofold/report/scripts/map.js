// ------------------------------------------------------------------------------------------ maps

const LEGEND_CLASSES = 24; // with more classes there is no legend; the tooltip names the class
const PALETTE = 10;

// The colour of a class. Up to ten classes use a palette; with more, the hue of each turns by the golden angle.
function classColour(label, classes) {
  if (label === null) return "var(--map-none)";
  if (classes <= PALETTE) return `var(--map-${label})`;
  return `oklch(calc(var(--map-light) + ${(0.09 * ((label % 3) - 1)).toFixed(2)}) 0.15 ${((label * 137.508) % 360).toFixed(1)})`;
}

function className(description, label) {
  if (label === null) return "no label";
  return description.classes ? description.classes[label] : `class ${label}`;
}

// The top left corner of a tile, in pixels of its sheet.
function corner(sheet, number) {
  const column = number % sheet.columns, row = Math.floor(number / sheet.columns);
  const step = sheet.side + 2 * sheet.gutter;
  return { x: column * step + sheet.gutter, y: row * step + sheet.gutter };
}

// An element that shows a tile of a sheet, `size` pixels wide.
function tile(sheet, number, size) {
  const { x, y } = corner(sheet, number), step = sheet.side + 2 * sheet.gutter;
  const share = (at, count) => `${(100 * at) / (count * step - sheet.side)}%`;
  const place = `${share(x, sheet.columns)} ${share(y, sheet.rows)}`;
  const style = `background-position: ${place}; width: ${size}px; height: ${size}px`;
  return html("span", { class: `sheet-${sheet.name}` }, html("i", { class: "tile", style }));
}

// Split places into those that have room for a square of this size and those that overlap an earlier one.
function apart(places, size) {
  const cells = new Map(), free = [], taken = [];
  for (const place of places) {
    const column = Math.floor(place.x / size), row = Math.floor(place.y / size);
    let room = true;
    for (let a = column - 1; a <= column + 1; a++) {
      for (let b = row - 1; b <= row + 1; b++) {
        const other = cells.get(`${a},${b}`);
        if (other && Math.abs(other.x - place.x) < size && Math.abs(other.y - place.y) < size) room = false;
      }
    }
    if (room) cells.set(`${column},${row}`, place);
    (room ? free : taken).push(place);
  }
  return { free, taken };
}

// Maps of one group share the hidden classes, the choice of dots or pictures, and the legend. A map without a group has
// its own.
const mapGroups = new Map();

function groupOf(description, pictures) {
  const name = description.group || description.id;
  if (!mapGroups.has(name)) {
    const side = document.querySelector(`[data-group="${name}"]`) || html("div", { class: "map-side" });
    mapGroups.set(name, { side, pictures, hidden: new Set(), members: [] });
  }
  return mapGroups.get(name);
}

kinds.map = (figure, description) => {
  const { points, sheet } = description;
  const count = points.x.length;
  const labels = [...new Set(points.labels)].sort((a, b) => (a === null) - (b === null) || a - b);
  const labelled = labels.some((label) => label !== null);
  const classes = Math.max(description.classes ? description.classes.length : 0, ...labels.map((label) => label + 1));
  const group = groupOf(description, !labelled), { hidden, side } = group;
  const pictured = () => group.pictures && sheet !== null;
  let width = 0, places = [];

  const plot = html("div", { class: "plot atlas" });
  const tooltip = html("div", { class: "tooltip picture" });
  const canvas = html("canvas", {});
  const ring = svg("circle", { class: "ring", r: 7 });
  if (sheet) figure.dataset.sheet = sheet.name;
  tooltip.hidden = true;
  if (sheet && !side.querySelector(".modes")) side.prepend(modes());
  if (!group.members.length) side.append(classesInWords());
  group.members.push({ draw, point });
  figure.append(html("div", { class: "map-box" }, plot, ...(description.group ? [] : [side])));

  function classesInWords() {
    if (!labelled) return "";
    if (labels.length <= LEGEND_CLASSES) return classLegend();
    return html("p", { class: "many" }, `${labels.length} classes. Point at an image to see its class.`);
  }

  function modes() {
    const buttons = [["dots", false], ["pictures", true]].map(([name, value]) => {
      const button = html("button", { class: "switch", type: "button" }, name);
      button.addEventListener("click", () => {
        group.pictures = value;
        tell();
        group.members.forEach((member) => member.draw());
      });
      return [button, value];
    });
    const tell = () => buttons.forEach(([button, value]) => button.setAttribute("aria-pressed", value === group.pictures));
    tell();
    return html("div", { class: "modes" }, ...buttons.map(([button]) => button));
  }

  function classLegend() {
    return html("div", { class: "classes" }, ...labels.map((label) => {
      const dot = html("span", { class: "dot", style: `background: ${classColour(label, classes)}` });
      const button = html("button", { class: "series", type: "button", "aria-pressed": true, title: "Click to hide or show the class." });
      button.append(dot, className(description, label));
      button.addEventListener("click", () => {
        if (!hidden.delete(label)) hidden.add(label);
        button.setAttribute("aria-pressed", !hidden.has(label));
        group.members.forEach((member) => member.draw());
      });
      button.addEventListener("pointerenter", () => group.members.forEach((member) => member.point(label)));
      button.addEventListener("pointerleave", () => group.members.forEach((member) => member.point(undefined)));
      return button;
    }));
  }

  // Fade all classes but one; undefined fades none.
  function point(label) {
    for (const path of plot.querySelectorAll(".points")) {
      path.classList.toggle("back", label !== undefined && path.dataset.label !== String(label));
    }
  }

  function draw() {
    width = plot.clientWidth;
    const margin = 22, reach = width / 2 - margin;
    // As high as the points need, but at least half as high as wide.
    const height = Math.round(2 * margin + 2 * reach * Math.max(0.5, description.tallest));
    const root = svg("svg", { role: "img", "aria-label": description.title, height });
    places = [];
    for (let i = 0; i < count; i++) {
      if (hidden.has(points.labels[i])) continue;
      places.push({ i, x: width / 2 + reach * points.x[i], y: height / 2 - reach * points.y[i] });
    }
    plot.replaceChildren(canvas, root, tooltip);
    tooltip.hidden = true;
    canvas.hidden = !pictured();
    if (pictured()) drawPictures();
    else drawDots(root);
    root.append(ring);
    mark(null);
    listen(root);
  }

  // Each class is one path: a line of length 0 with round ends is a dot.
  function drawDots(root) {
    const size = Math.max(3.5, Math.min(7, (width / Math.sqrt(count)) * 0.24));
    for (const label of labels) {
      const own = places.filter(({ i }) => points.labels[i] === label);
      const d = own.map(({ x, y }) => `M${x.toFixed(1)},${y.toFixed(1)}h0`).join("");
      const style = `stroke: ${labelled ? classColour(label, classes) : "var(--accent)"}; stroke-width: ${size.toFixed(1)}`;
      root.append(svg("path", { class: "points", d, style, "data-label": label }));
    }
  }

  const source = new Image();
  function drawPictures() {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(plot.clientHeight * ratio);
    if (!source.complete || !source.naturalWidth) return;
    const brush = canvas.getContext("2d");
    brush.scale(ratio, ratio);
    brush.imageSmoothingEnabled = sheet.side >= 40;
    const size = Math.max(16, Math.min(30, width / 25));
    const probe = html("i", {});
    plot.append(probe);
    const colours = new Map(labels.map((label) => {
      probe.style.color = classColour(label, classes);
      return [label, getComputedStyle(probe).color];
    }));
    probe.remove();
    const { free, taken } = apart(places, size + 3);
    for (const { i, x, y } of taken) {
      brush.fillStyle = colours.get(points.labels[i]);
      brush.beginPath();
      brush.arc(x, y, 1.7, 0, 2 * Math.PI);
      brush.fill();
    }
    for (const { i, x, y } of free) {
      const from = corner(sheet, i);
      if (labelled) {
        brush.fillStyle = colours.get(points.labels[i]);
        brush.fillRect(x - size / 2 - 1.5, y - size / 2 - 1.5, size + 3, size + 3);
      }
      brush.drawImage(source, from.x, from.y, sheet.side, sheet.side, x - size / 2, y - size / 2, size, size);
    }
  }

  function mark(place) {
    ring.style.display = place ? "" : "none";
    if (!place) return;
    ring.setAttribute("cx", place.x);
    ring.setAttribute("cy", place.y);
  }

  // Maps of the same images mark the same image.
  const announce = (index) => document.dispatchEvent(new CustomEvent("pointed", { detail: { figure, index } }));
  document.addEventListener("pointed", ({ detail }) => {
    if (detail.figure === figure || !sheet || detail.figure.dataset.sheet !== figure.dataset.sheet) return;
    mark(places.find(({ i }) => points.index[i] === detail.index));
  });

  function listen(root) {
    root.addEventListener("pointermove", hover);
    root.addEventListener("pointerdown", hover);
    root.addEventListener("pointerleave", leave);

    function hover(event) {
      const frame = root.getBoundingClientRect();
      const at = { x: event.clientX - frame.left, y: event.clientY - frame.top };
      let best = null, least = 30 * 30;
      for (const place of places) {
        const distance = (place.x - at.x) ** 2 + (place.y - at.y) ** 2;
        if (distance < least) [best, least] = [place, distance];
      }
      if (best === null) {
        leave();
        return;
      }
      mark(best);
      announce(points.index[best.i]);
      const { i } = best, label = points.labels[i];
      const words = [html("span", { class: "name" }, points.names[i] || `image ${points.index[i].toLocaleString("en-US")}`)];
      if (label !== null) {
        const dot = html("span", { class: "dot", style: `background: ${classColour(label, classes)}` });
        words.unshift(html("b", {}, dot, className(description, label)));
      }
      if (points.held_out[i]) words.push(html("span", { class: "name" }, "held out"));
      tooltip.replaceChildren(...(sheet ? [tile(sheet, i, width < 420 ? 60 : 88)] : []), html("div", { class: "words" }, ...words));
      placeTooltip(tooltip, plot, best);
    }

    function leave() {
      mark(null);
      announce(null);
      tooltip.hidden = true;
    }
  }

  if (sheet) {
    // The page contains the sheet once, as a style. Read its address from there.
    const probe = tile(sheet, 0, 1);
    figure.append(probe);
    source.addEventListener("load", () => {
      if (pictured()) draw();
    });
    source.src = getComputedStyle(probe.firstChild).backgroundImage.replace(/^url\("?|"?\)$/g, "");
    probe.remove();
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (pictured()) draw();
  });
  return draw;
};
