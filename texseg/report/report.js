"use strict";
const at = id => document.getElementById(id);
const live = {};      // what a page that paints does in another way; empty in a report
let content = null, height = 0, width = 0, guess = 0;      // guess: confidence of a label drawn by lot
const viridis = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const state = { level: 0, segment: 0, view: "segments", plane: 0, row: 0, column: 0 };      // the last three: of those shown
const zoom = { factor: 1, x: 0, y: 0 };      // x, y: upper left corner of the sheet, in widths and heights of the stage
const edits = { into: new Map(), names: new Map(), ticked: new Set() };      // of the labels of the segmentation
const MOST_ZOOM = 32, LARGE = 3, ROOM = 9;      // pixels on the screen, between a number and the border
const planes = new Map();      // decoded label images, one Uint8Array a level
let confidencePlane = null, film = null;      // of a volume the colours of all planes, below each other
const layers = {}, buffers = {};

function adopt(next) {      // take content to show; of the same size or another
  const [H, W] = next.shown, isNew = H !== height || W !== width;
  content = next;
  [height, width] = [H, W];
  guess = content.chosen > 1 ? 1 / content.chosen : 0;
  state.level = content.levels.findIndex(level => level.n === content.chosen);
  planes.clear();
  [state.plane, state.row, state.column] = [depth() >> 1, H >> 1, W >> 1];
  if (!isNew) return;
  at("stage").style.setProperty("--ratio", W / H);
  for (const name of ["tint", "lines", "mark"]) {
    at(name).width = W;
    at(name).height = H;
    layers[name] = at(name).getContext("2d");
    if (name === "mark") continue;
    const data = layers[name].createImageData(W, H);
    buffers[name] = { data, words: new Uint32Array(data.data.buffer) };
  }
}

const littleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
const word = (r, g, b, a) => (littleEndian ? (a << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | a) >>> 0;
const colour = label => `rgb(${content.palette[label].join(",")})`;
const percent = share => (100 * share).toFixed(1) + " %";
const nameOf = segment => segment.name || `segment ${segment.members.join(" + ")}`;
const isOwn = () => content.levels[state.level].n === content.chosen;
const depth = () => content.planes ? content.planes.length : 1, here = values => values.subarray(state.plane * height * width, (state.plane + 1) * height * width);
const at3 = place => `x ${place[1]}, y ${place[0]}` + (content.planes ? `, ${content.axis} ${content.planes[place[2]]}` : ""), unit = () => content.planes ? "voxels" : "pixels";
const count = n => n === 1 ? "1 segment" : `${n} segments`;

async function coloursOf(uri) {
  const picture = new Image();
  picture.src = uri;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height).data;
}

async function decode(uri) {
  const rgba = await coloursOf(uri), plane = new Uint8Array(rgba.length / 4);
  for (let i = 0; i < plane.length; i++) plane[i] = rgba[4 * i];
  return plane;
}

async function plane(index) {
  if (!planes.has(index)) planes.set(index, await decode(content.levels[index].labels));
  return planes.get(index);
}

// ---- edits: labels that are merged or named on this page ----------------------------------------------------

const labelOf = label => isOwn() && edits.into.has(label) ? edits.into.get(label) : label;

function merged(labels) {
  if (!isOwn() || !edits.into.size) return labels;
  const table = Uint8Array.from({ length: 256 }, (_, label) => labelOf(label));
  return labels.map(label => table[label]);
}

let shownLabels = null;      // those of the level that is shown, with the edits
const labelsNow = () => shownLabels && here(shownLabels);

function segmentsNow() {
  const level = content.levels[state.level], groups = new Map();
  for (const segment of level.segments) {
    const label = labelOf(segment.label);
    groups.set(label, [...(groups.get(label) || []), segment]);
  }
  return [...groups].map(([label, members]) => {
    const sum = key => members.reduce((total, segment) => total + segment[key], 0), pixels = sum("pixels");
    const one = members.length === 1 ? members[0] : null;
    return {
      label, pixels, members: members.map(segment => segment.label), fraction: sum("fraction"),
      name: (isOwn() && edits.names.get(label)) ?? members[0].name,
      confidence: members[0].confidence === null ? null : members.reduce((total, segment) => total + segment.confidence * segment.pixels, 0) / pixels,
      n_parts: one ? one.n_parts : null,
      parts: members.flatMap(segment => segment.parts).sort((a, b) => b[0] - a[0]).slice(0, 12),
      words: one ? one.words : members.map(segment => `${segment.label}: ${segment.words}`).join(" "),
      samples: members.flatMap(segment => segment.samples.map((place, i) => ({ place, crop: segment.crops && segment.crops[i], rank: i })))
        .sort((a, b) => a.rank - b.rank).slice(0, 3),
    };
  });
}

function mergeTicked() {
  if (live.merge) return live.merge([...edits.ticked]);
  const labels = [...edits.ticked].sort((a, b) => a - b), keep = labels[0];
  const names = labels.map(label => segmentsNow().find(segment => segment.label === label).name).filter(name => name);
  for (const { label } of content.levels[state.level].segments) if (labels.includes(labelOf(label)) && label !== keep) edits.into.set(label, keep);
  for (const label of labels) edits.names.delete(label);
  if (names.length) edits.names.set(keep, names[0]);
  edits.ticked.clear();
  state.segment = keep;
  refresh();
}

function undoEdits() {
  for (const kind of Object.values(edits)) kind.clear();
  state.segment = 0;
  refresh();
}

function rename() {
  if (live.merge) return;      // done when the field is left
  const segment = segmentsNow().find(segment => segment.label === state.segment), name = at("name").value.trim();
  if (!segment) return;
  const before = content.levels[state.level].segments.find(one => one.label === segment.label).name;
  if (name === before) edits.names.delete(segment.label); else edits.names.set(segment.label, name);
  showTable();
  showTitle(segmentsNow().find(one => one.label === segment.label));
  showEdits();
}

function editsNow() {      // a command is run again, and edits the labels of the fit; in Python the model is at hand as it is
  const again = content.command.length > 0, shown = segmentsNow();
  const fitted = labels => labels.flatMap(label => again ? content.members[label] || [] : [label]).sort((a, b) => a - b);
  const groups = shown.map(segment => fitted(segment.members)), names = {};
  shown.forEach((segment, i) => { if (segment.name && groups[i].length) names[groups[i][0]] = segment.name; });
  return { merge: groups.filter(group => group.length > 1), names };
}

const quoted = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;

function commandWith(options, without = []) {
  const kept = [];
  for (let i = 0; i < content.command.length; i++) {
    if (content.command[i] === "--") { kept.push(...options, ...content.command.slice(i)); options = []; break; }
    if (without.includes(content.command[i])) i++;
    else if (!without.some(name => content.command[i].startsWith(`${name}=`))) kept.push(content.command[i]);
  }
  return [...kept, ...options].map(quoted).join(" ");
}

function showEdits() {
  if (live.edits) return live.edits();
  const { merge, names } = editsNow(), hasEdits = edits.into.size > 0 || edits.names.size > 0;
  at("undo").hidden = !hasEdits;
  at("merge").disabled = edits.ticked.size < 2;
  at("editing").hidden = !isOwn();
  at("edits").hidden = isOwn() ? !hasEdits : false;
  at("save-edits").hidden = !isOwn();
  const level = content.levels[state.level];
  at("edits").querySelector("h2").textContent = isOwn() ? "Edits" : `Use ${count(level.n)}`;
  at("edits").querySelector("p").textContent = isOwn() ? "They are shown on this page only. To apply them to the saved results, run:" : `The saved results have ${content.chosen}. To refit with ${level.n} (borders may shift slightly), run:`;
  if (!isOwn()) {
    at("edits-command").textContent = content.command.length ? commandWith(["-k", String(level.n)], ["-k", "--segments"]) : `model.set_params(n_segments=${level.n}).fit(image)`;
    return;
  }
  const inGroups = new Set(merge.map(group => group[0]));
  const words = [...merge.map(group => group.join("+") + (names[group[0]] ? `=${names[group[0]]}` : "")), ...Object.entries(names).filter(([label]) => !inGroups.has(Number(label))).map(([label, name]) => `${label}=${name}`)];
  at("edits-command").textContent = content.command.length ? commandWith(words.flatMap(word => ["--merge", word]), ["--merge", "--edits"]) : `model.edit(${JSON.stringify({ merge, names })})`;
}

// ---- saving -------------------------------------------------------------------------------------------------

function save(blob, name) {
  const link = make("a", "", { download: `${content.title.replace(/[\\/:]+/g, "_")}_${name}`, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let k = 0; k < 8; k++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}

function chunk(kind, data) {
  const bytes = new Uint8Array(12 + data.length), view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set([...kind].map(c => c.charCodeAt(0)), 4);
  bytes.set(data, 8);
  view.setUint32(8 + data.length, crc32(bytes.subarray(4, 8 + data.length)));
  return bytes;
}

async function greyPng(plane, columns, rows) {      // a canvas would save colours, which nobody reads as labels
  const raw = new Uint8Array((columns + 1) * rows), head = new Uint8Array(13), view = new DataView(head.buffer);
  for (let y = 0; y < rows; y++) raw.set(plane.subarray(y * columns, (y + 1) * columns), y * (columns + 1) + 1);
  view.setUint32(0, columns);
  view.setUint32(4, rows);
  head[8] = 8;
  const packed = await new Response(new Blob([raw]).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer();
  return new Blob([Uint8Array.of(137, 80, 78, 71, 13, 10, 26, 10), chunk("IHDR", head), chunk("IDAT", new Uint8Array(packed)), chunk("IEND", new Uint8Array(0))], { type: "image/png" });
}

async function labelPicture() {
  const level = content.levels[state.level], full = level.full && await decode(level.full);
  const [rows, columns] = full ? content.shape : content.shown;
  return { blob: await greyPng(full ? merged(full) : labelsNow(), columns, rows), rows, columns };
}

async function saveLabels() {
  const { blob, rows, columns } = await labelPicture();
  const isFull = rows === content.shape[0], which = content.planes ? `_${content.axis}${content.planes[state.plane]}` : "";
  save(blob, `labels_${segmentsNow().length}${which}${isFull ? "" : `_${Math.max(rows, columns)}px`}.png`);
  at("hint").textContent = `Saved${which && " this plane"} with ${columns} x ${rows} pixels` + (isFull ? "." : ": reduced. The command below writes the full size.");
}

async function copyCommand() {
  const text = at("edits-command").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {      // no clipboard for files in some browsers
    const range = document.createRange();
    range.selectNodeContents(at("edits-command"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  at("copy").textContent = "copied";
  setTimeout(() => { at("copy").textContent = "copy"; }, 1500);
}

// ---- pictures -----------------------------------------------------------------------------------------------

function paint(name) {
  layers[name].putImageData(buffers[name].data, 0, 0);
}

function paintTint(labels) {
  const table = new Uint32Array(256), words = buffers.tint.words;
  if (state.view === "confidence") {
    const sure = here(confidencePlane);
    for (let v = 0; v < 256; v++) {
      const place = Math.max(0, (v / 255 - guess) / (1 - guess)) * (viridis.length - 1), k = Math.min(Math.floor(place), viridis.length - 2), f = place - k;
      table[v] = word(...viridis[k].map((low, c) => Math.round(low + f * (viridis[k + 1][c] - low))), 255);
    }
    for (let i = 0; i < words.length; i++) words[i] = labels[i] ? table[sure[i]] : 0;
  } else {
    content.palette.forEach((rgb, label) => { table[label] = word(...rgb, 255); });
    if (state.segment) for (let label = 1; label < 256; label++) if (label !== state.segment) table[label] = word(0, 0, 0, 255);
    table[0] = 0;
    for (let i = 0; i < words.length; i++) words[i] = table[labels[i]];
  }
  paint("tint");
}

function paintLines(labels) {
  const words = buffers.lines.words, light = word(255, 255, 255, 255), dark = word(0, 0, 0, 150);
  for (let y = 0, i = 0; y < height; y++)
    for (let x = 0; x < width; x++, i++) {
      const own = labels[i];
      if ((x + 1 < width && own !== labels[i + 1]) || (y + 1 < height && own !== labels[i + width])) words[i] = light;
      else if ((x && own !== labels[i - 1]) || (y && own !== labels[i - width])) words[i] = dark;
      else words[i] = 0;
    }
  paint("lines");
}

function markPart(box) {
  layers.mark.clearRect(0, 0, width, height);
  if (!box) return;
  const [, top, left, bottom, right] = box, [H, W] = content.shape;
  layers.mark.lineWidth = Math.max(2, width / 250);
  for (const [style, dash] of [["#000", []], ["#fff", [6, 6]]]) {
    layers.mark.strokeStyle = style;
    layers.mark.setLineDash(dash);
    layers.mark.strokeRect(left * width / W, top * height / H, (right - left) * width / W, (bottom - top) * height / H);
  }
}

function draw(linesToo) {
  const labels = labelsNow();
  at("tint").style.display = state.view === "image" ? "none" : "";
  at("lines").style.display = at("borders").checked && state.view !== "image" ? "" : "none";
  at("sheet").classList.toggle("confidence", state.view === "confidence");
  at("numbers").hidden = !at("numbered").checked || state.view === "image";
  if (linesToo) findMiddles(labels);
  showNumbers();
  at("scale").style.display = state.view === "confidence" ? "flex" : "none";
  if (state.view !== "image") paintTint(labels);
  if (linesToo) paintLines(labels);
  markPart(null);
  if (content.planes) drawCuts();
  live.drawn?.(linesToo);
}

// ---- planes of a volume, and cuts across them -----------------------------------------------------------------

function showPlane(index) {
  if (!content.planes || index === undefined) return;
  state.plane = Math.max(0, Math.min(depth() - 1, index));
  Object.assign(at("image").style, { height: `${100 * depth()}%`, top: `${-100 * state.plane}%` });
  at("plane").value = state.plane;
  at("plane-value").textContent = content.planes[state.plane];
  if (shownLabels) draw(true);
}

function drawCuts() {      // the columns of one row through all planes, and the rows of one column
  const across = { row: [width, (z, x) => (z * height + state.row) * width + x, state.column], column: [height, (z, y) => (z * height + y) * width + state.column, state.row] };
  const opacity = state.view === "segments" ? at("opacity").value / 100 : 0, [deep, down, wide] = [content.steps[0] * content.whole[0], content.steps[1] * content.whole[1], content.whole[2]];
  const places = { row: Math.floor((state.row + .5) * content.shape[0] / height), column: Math.floor((state.column + .5) * content.shape[1] / width) };
  for (const [name, [length, index, mark]] of Object.entries(across)) {
    const canvas = at(`cut-${name}`), context = canvas.getContext("2d"), data = (Object.assign(canvas, { width: length, height: depth() }), context.createImageData(length, depth()));
    for (let z = 0, i = 0; z < depth(); z++)
      for (let along = 0; along < length; along++, i += 4) {
        const from = index(z, along), label = shownLabels[from], dark = state.segment && label !== state.segment, share = label ? opacity : 0;
        for (let c = 0; c < 3; c++) data.data[i + c] = film[4 * from + c] * (1 - share) + share * (dark ? 0 : content.palette[label][c]);
        if (z === state.plane || along === mark) for (let c = 0; c < 3; c++) data.data[i + c] = 255 - data.data[i + c];
        data.data[i + 3] = 255;
      }
    context.putImageData(data, 0, 0);
    const side = name === "row" ? wide : down;      // a thin stack is drawn thicker, a very deep one flatter
    canvas.style.aspectRatio = `${side} / ${Math.min(Math.max(deep, side / 6), 1.5 * side)}`;
    canvas.nextElementSibling.textContent = name === "row" ? `x, ${content.axis} at y ${places.row}` : `y, ${content.axis} at x ${places.column}`;
  }
  at("row").style.top = `${100 * (state.row + .5) / height}%`;
  at("column").style.left = `${100 * (state.column + .5) / width}%`;
}

function onCut(event, side) {
  const box = event.target.getBoundingClientRect(), share = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  state[side] = Math.max(0, Math.min((side === "column" ? width : height) - 1, Math.floor(share[0] * (side === "column" ? width : height))));
  showPlane(Math.floor(share[1] * depth()));
}

function showOpacity() {
  at("opacity-value").textContent = at("opacity").value + " %";
  at("tint").style.opacity = at("opacity").value / 100;
  if (content.planes && shownLabels) drawCuts();
}

let middles = [];      // by label, of the pixel farthest from other labels along rows and columns: how far it is, and its place

function findMiddles(labels) {
  const far = new Uint16Array(labels.length), near = (i, inside, j) => inside && labels[i] === labels[j] ? far[j] : 0;
  middles = Array.from({ length: 256 }, () => [0, 0]);
  for (let i = 0; i < far.length; i++) far[i] = 1 + Math.min(near(i, i % width, i - 1), near(i, i >= width, i - width));
  for (let i = far.length - 1; i >= 0; i--) {
    far[i] = Math.min(far[i], 1 + Math.min(near(i, (i + 1) % width, i + 1), near(i, i + width < far.length, i + width)));
    if (far[i] > middles[labels[i]][0]) middles[labels[i]] = [far[i], i];
  }
}

function showNumbers() {      // where there is room for them at this zoom
  const scale = zoom.factor * at("stage").clientWidth / width;
  at("numbers").replaceChildren(...segmentsNow().filter(({ label }) => middles[label]?.[0] * scale >= ROOM).map(({ label }) => {
    const number = make("span", label), i = middles[label][1];
    number.style.left = `${100 * (i % width + .5) / width}%`;
    number.style.top = `${100 * (Math.floor(i / width) + .5) / height}%`;
    return number;
  }));
}

function showBar() {      // a length of 1, 2 or 5 times a power of ten, at most a quarter of the stage
  if (!content.pixel) return;
  const [width, unit] = content.pixel, seen = content.shape[1] * width / zoom.factor, power = 10 ** Math.floor(Math.log10(seen / 4));
  const length = [5, 2, 1].map(k => k * power).find(k => k <= seen / 4);
  at("bar").firstElementChild.style.width = `${100 * length / seen}%`;
  at("bar").lastElementChild.textContent = `${Number(length.toPrecision(3))} ${unit}`;
}

// ---- zoom ---------------------------------------------------------------------------------------------------

function showZoom() {
  for (const side of ["x", "y"]) zoom[side] = Math.min(0, Math.max(1 - zoom.factor, zoom[side]));
  at("sheet").style.transform = `translate(${100 * zoom.x}%, ${100 * zoom.y}%) scale(${zoom.factor})`;
  at("stage").classList.toggle("zoomed", zoom.factor > 1);
  at("sheet").style.setProperty("--zoom", zoom.factor);
  if (shownLabels) showNumbers();
  showBar();
  at("sheet").classList.toggle("large", zoom.factor * at("stage").clientWidth / width > LARGE);
  at("image").classList.toggle("large", zoom.factor * at("stage").clientWidth / at("image").naturalWidth > LARGE);
  live.zoomed?.();
}

function zoomBy(ratio, x = .5, y = .5) {      // the point x, y of the stage stays where it is
  const factor = Math.min(MOST_ZOOM, Math.max(1, zoom.factor * ratio));
  zoom.x = x - (x - zoom.x) * factor / zoom.factor;
  zoom.y = y - (y - zoom.y) * factor / zoom.factor;
  zoom.factor = factor;
  showZoom();
}

function onWheel(event) {
  if (event.deltaY > 0 && zoom.factor === 1) return;      // nothing to zoom out of: the page scrolls
  event.preventDefault();
  const box = at("stage").getBoundingClientRect();
  zoomBy(2 ** (-event.deltaY / 240), (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
}

let drag = null, hasMoved = false;

function onDown(event) {
  hasMoved = false;
  if (event.button === 0 && zoom.factor > 1) drag = { x: event.clientX, y: event.clientY, from: { ...zoom } };
}

function onDrag(event) {
  if (!drag) return;
  const box = at("stage").getBoundingClientRect(), dx = event.clientX - drag.x, dy = event.clientY - drag.y;
  if (Math.hypot(dx, dy) > 3) hasMoved = true;
  if (!hasMoved) return;
  at("stage").classList.add("moving");
  zoom.x = drag.from.x + dx / box.width;
  zoom.y = drag.from.y + dy / box.height;
  showZoom();
}

function onUp() {
  drag = null;
  at("stage").classList.remove("moving");
}

function pixelAt(event) {
  const box = at("sheet").getBoundingClientRect();
  const x = Math.floor((event.clientX - box.left) / box.width * width), y = Math.floor((event.clientY - box.top) / box.height * height);
  return x < 0 || y < 0 || x >= width || y >= height ? null : [x, y];
}

function onMove(event) {
  const place = pixelAt(event), [H, W] = content.shape;
  at("readout").textContent = "";
  if (!place || !labelsNow()) return;
  const [x, y] = place, label = labelsNow()[y * width + x], segment = segmentsNow().find(one => one.label === label);
  const parts = [at3([Math.floor((y + .5) * H / height), Math.floor((x + .5) * W / width), state.plane]), segment ? nameOf(segment) : "no data"];
  if (segment && confidencePlane && isOwn()) parts.push(`confidence ${(here(confidencePlane)[y * width + x] / 255).toFixed(2)}`);
  at("readout").textContent = parts.join(" \u00b7 ");
}

// ---- tables -------------------------------------------------------------------------------------------------

const make = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

function swatch(label) {
  const square = make("span", "", { class: "swatch" });
  square.style.background = colour(label);
  return square;
}

function tick(segment) {
  const box = make("input", "", { type: "checkbox", title: "select two or more to merge them", "aria-label": `select ${nameOf(segment)} for a merge` });
  box.checked = edits.ticked.has(segment.label);
  box.addEventListener("click", event => event.stopPropagation());
  box.addEventListener("change", () => {
    if (box.checked) edits.ticked.add(segment.label); else edits.ticked.delete(segment.label);
    showEdits();
  });
  return box;
}

function showTable() {
  const level = content.levels[state.level], body = at("segments").tBodies[0], segments = segmentsNow();
  at("unit").textContent = unit();
  at("table-title").textContent = count(segments.length) + (level.estimated ? `, ${content.planes ? "volumes" : "areas"} estimated from the ${unit()} shown` : "");
  at("segments").querySelector(".sure").hidden = segments.every(segment => segment.confidence === null);
  body.replaceChildren(...segments.map(segment => {
    const row = make("tr", ""), name = make("td", ""), button = make("button", "", { type: "button", title: segment.words });
    button.append(swatch(segment.label), nameOf(segment));
    if (isOwn() && level.segments.length > 1) name.append(tick(segment));
    name.append(button);
    row.append(name, make("td", segment.pixels.toLocaleString("en")), make("td", percent(segment.fraction)), make("td", segment.n_parts ?? ""));
    if (segment.confidence !== null) row.append(make("td", segment.confidence.toFixed(3)));
    row.dataset.label = segment.label;
    row.setAttribute("aria-selected", segment.label === state.segment);
    row.addEventListener("click", () => select(segment.label));
    return row;
  }));
}

function showOthers() {
  const chart = content.selection, levels = content.levels.map(level => level.n);
  const ranked = chart
    ? chart.n.map((n, i) => [n, chart.probabilities[i]]).sort((a, b) => b[1] - a[1]).map(([n]) => n)
    : [content.chosen + 1, content.chosen - 1, content.chosen + 2];
  const offered = ranked.filter(n => n !== content.chosen && levels.includes(n)).slice(0, 3).sort((a, b) => a - b);
  at("others").hidden = !offered.length;
  const buttons = (isOwn() ? offered : [content.chosen, ...offered.filter(n => n !== content.levels[state.level].n)]).map(n => {
    const button = make("button", n === content.chosen ? `${n} (saved)` : n, { type: "button", "aria-label": count(n) });
    button.addEventListener("click", () => showLevel(levels.indexOf(n)));
    return button;
  });
  at("others").replaceChildren(isOwn() ? "Too coarse or too fine? See " : "See ", ...buttons, " segments.");
}

function histogramsOf(level) {
  const bytes = Uint8Array.from(atob(level.histograms), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  const value = index => view.getUint16(2 * index, true) / 65535, C = content.channels.length, B = content.n_bins;
  return level.segments.map((_, s) => content.channels.map((_, c) => Array.from({ length: B }, (_, b) => value((s * C + c) * B + b))));
}

function outline(values, top) {
  return values.map((v, b) => `${b === 0 ? "M0," : "H" + b + "V"}${(40 - 38 * v / top).toFixed(2)}`).join("") + `H${values.length}`;
}

function showHistograms(level, shown) {
  const raw = histogramsOf(level), isShown = level.segments.map(segment => shown.members.includes(segment.label));
  const mean = inside => {
    const weight = level.segments.map((segment, i) => isShown[i] === inside ? segment.pixels : 0), sum = weight.reduce((a, b) => a + b, 0);
    return { sum, of: c => raw[0][c].map((_, b) => sum ? raw.reduce((total, h, i) => total + weight[i] * h[c][b], 0) / sum : 0) };
  };
  const own = mean(true), others = mean(false), total = others.sum;
  const panels = content.channels.map((name, c) => {
    const mine = own.of(c), rest = others.of(c);
    const difference = total ? mine.reduce((sum, v, b) => sum + Math.abs(v - rest[b]), 0) / 2 : 0;
    const top = Math.max(...mine, ...rest), figure = make("figure", ""), path = outline(mine, top);
    figure.innerHTML = `<svg viewBox="0 0 ${content.n_bins} 40" preserveAspectRatio="none" aria-hidden="true">` +
      `<path d="${path}V40H0Z" fill="${colour(shown.label)}"/>` +
      (total ? `<path d="${outline(rest, top)}" fill="none" stroke="currentColor" stroke-width="1.2" vector-effect="non-scaling-stroke"/>` : "") + "</svg>";
    figure.append(make("figcaption", `${name.replace(" deg", "\u00b0")}: ${difference.toFixed(2)}`));
    return { figure, difference };
  });
  [...panels].sort((a, b) => b.difference - a.difference).slice(0, 3).forEach(panel => panel.figure.classList.add("telling"));
  at("histograms").replaceChildren(...panels.map(panel => panel.figure));
}

function showTitle(segment) {
  at("segment-title").replaceChildren(swatch(segment.label), `${nameOf(segment)}: ${segment.pixels.toLocaleString("en")} ${unit()}, ${percent(segment.fraction)}`);
}

function sampleSquare({ place: [row, column, plane = 0], crop }) {
  const [H, W] = content.shape, side = content.crop;
  const top = Math.max(0, Math.min(H - side, row - side / 2)), left = Math.max(0, Math.min(W - side, column - side / 2));
  const box = [0, top, left, Math.min(H, top + side), Math.min(W, left + side)];
  let square;
  if (crop) {
    square = make("img", "", { src: crop });
  } else {
    square = make("canvas", "", { width: 2 * side, height: 2 * side });
    const across = at("image").naturalWidth, down = at("image").naturalHeight / depth();
    const [x, y, w, h] = [left * across / W, plane * down + top * down / H, (box[4] - left) * across / W, (box[3] - top) * down / H];
    square.getContext("2d").drawImage(at("image"), x, y, w, h, 0, 0, 2 * side * w / Math.max(w, h), 2 * side * h / Math.max(w, h));
  }
  square.title = `${side} x ${side} pixels about ${at3([row, column, plane])}`;
  square.addEventListener("click", () => showPlane(plane));
  square.addEventListener("mouseenter", () => { if (plane === state.plane || !content.planes) markPart(box); });
  square.addEventListener("mouseleave", () => markPart(null));
  return square;
}

function showSegment() {
  const level = content.levels[state.level], segment = segmentsNow().find(segment => segment.label === state.segment);
  at("segment").hidden = !segment;
  at("hint").textContent = segment ? "Click again, or press Esc, to see all segments." : "Click on a segment.";
  if (!segment) return;
  showTitle(segment);
  at("name-label").hidden = !isOwn();
  if (document.activeElement !== at("name")) at("name").value = segment.name;
  at("words").textContent = segment.words;
  at("samples").replaceChildren(...segment.samples.map(sampleSquare));
  at("parts-title").textContent = segment.n_parts === null ? "Its largest parts, before the merge:" : segment.n_parts === 1 ? "It is in one piece:" : `It occurs in ${segment.n_parts.toLocaleString("en")} places` + (segment.parts.length < segment.n_parts ? "; the largest:" : ":");
  at("parts").replaceChildren(...segment.parts.map(part => {
    const item = make("li", ""), button = make("button", `${part[0].toLocaleString("en")} ${content.planes ? "voxels" : "px"} at ${at3(part.slice(5))}`, { type: "button" });
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => { if (event === "click") showPlane(part[7]); markPart(part); });
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => markPart(null));
    item.append(button);
    return item;
  }));
  at("parts-title").hidden = !segment.parts.length;
  at("histograms-key").hidden = at("histograms").hidden = !level.histograms;
  if (level.histograms) showHistograms(level, segment);
}

function showProbabilities() {
  const chart = content.selection;
  at("probabilities").hidden = !chart;
  if (!chart) return;
  const high = Math.max(...chart.probabilities), now = content.levels[state.level].n;
  const x = n => 15 + 270 * (n - chart.n[0]) / Math.max(1, chart.n[chart.n.length - 1] - chart.n[0]), y = p => 58 - 48 * p / high;
  const points = chart.n.map((n, i) => [n, chart.probabilities[i]]);
  at("probabilities").querySelector("svg").innerHTML =
    `<polyline points="${points.map(([n, p]) => `${x(n)},${y(p)}`).join(" ")}" fill="none" stroke="currentColor" opacity=".5"/>` +
    points.map(([n, p]) => `<circle cx="${x(n)}" cy="${y(p)}" r="${n === now ? 5 : 2.5}" fill="${n === chart.chosen ? "var(--accent)" : "currentColor"}"/>`).join("") +
    chart.n.map(n => `<text x="${x(n)}" y="76">${n}</text>`).join("") +
    points.map(([n, p]) => `<circle class="hit" data-n="${n}" cx="${x(n)}" cy="${y(p)}" r="9"/>`).join("");
  for (const hit of at("probabilities").querySelectorAll(".hit")) {
    const index = content.levels.findIndex(level => level.n === Number(hit.dataset.n));
    if (index >= 0) hit.addEventListener("click", () => showLevel(index));
  }
  at("probabilities-title").textContent = `How many segments? ${chart.words}`;
}

// Where no number has half of the probability, the likely ones stand side by side, before anything else.
async function showLikely() {
  at("likely").hidden = true;
  at("likely-cards").replaceChildren();
  const chart = content.selection, levels = content.levels.map(level => level.n);
  if (!chart || Math.max(...chart.probabilities) >= .5) return;
  const least = Math.max(...chart.probabilities) / 2;
  const likely = chart.n.map((n, i) => [n, chart.probabilities[i]]).filter(([n, p]) => p >= least && levels.includes(n))
    .sort((a, b) => b[1] - a[1]).slice(0, 4).sort((a, b) => a[0] - b[0]);
  if (likely.length < 2) return;
  for (const [n, p] of likely) {
    const index = levels.indexOf(n), labels = await plane(index), card = make("button", "", { type: "button", "data-n": n });
    const canvas = make("canvas", "", { width, height }), context = canvas.getContext("2d"), tint = context.createImageData(width, height);
    const words = new Uint32Array(tint.data.buffer), table = content.palette.map((rgb, label) => word(...rgb, label ? 115 : 0));
    here(labels).forEach((label, i) => { words[i] = table[label]; });
    const layer = make("canvas", "", { width, height });
    layer.getContext("2d").putImageData(tint, 0, 0);
    const down = at("image").naturalHeight / depth();
    context.drawImage(at("image"), 0, state.plane * down, at("image").naturalWidth, down, 0, 0, width, height);
    context.drawImage(layer, 0, 0);
    card.append(canvas, `${count(n)} (${(100 * p).toFixed(0)} %)` + (n === content.chosen ? ", saved" : ""));
    card.addEventListener("click", () => showLevel(index));
    at("likely-cards").append(card);
  }
  at("likely").hidden = false;
}

function select(label) {
  state.segment = label === state.segment ? 0 : label;
  for (const row of at("segments").tBodies[0].rows) row.setAttribute("aria-selected", Number(row.dataset.label) === state.segment);
  showSegment();
  draw(false);
}

function refresh() {
  shownLabels = merged(planes.get(state.level));
  at("readout").textContent = "";
  if (!segmentsNow().some(segment => segment.label === state.segment)) state.segment = 0;
  at("number-value").textContent = segmentsNow().length;
  showTable();
  showSegment();
  showProbabilities();
  showOthers();
  showEdits();
  draw(true);
}

async function showLevel(index) {
  state.level = Math.max(0, Math.min(content.levels.length - 1, index));
  at("number").value = state.level;
  at("view-confidence").hidden = !content.confidence || !isOwn();
  if (state.view === "confidence" && !isOwn()) setView("segments", false);
  const wanted = state.level;
  if (!planes.has(wanted)) await plane(wanted);
  if (wanted !== state.level) return;
  refresh();
}

function setView(view, redraw = true) {
  state.view = view;
  document.querySelector(`input[name=view][value=${view}]`).checked = true;
  if (redraw) draw(false);
}

function changeTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}

function changeOpacity(step) {
  at("opacity").value = Number(at("opacity").value) + step;
  showOpacity();
}

function nextView() {
  const views = ["segments", "confidence", "image"].filter(view => view !== "confidence" || !at("view-confidence").hidden);
  setView(views[(views.indexOf(state.view) + 1) % views.length]);
}

const isTyping = event => /^(text|number|select-one)$/.test(event.target.type);

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  const isRange = event.target.type === "range", isRadio = event.target.type === "radio";
  const actions = {
    ArrowLeft: () => showLevel(state.level - 1), ArrowRight: () => showLevel(state.level + 1),
    ArrowDown: () => changeOpacity(-5), ArrowUp: () => changeOpacity(5), Escape: () => state.segment && select(state.segment),
    v: nextView, b: () => { at("borders").checked = !at("borders").checked; draw(false); }, n: () => { at("numbered").checked = !at("numbered").checked; draw(false); }, t: changeTheme,
    "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), "0": () => zoomBy(0),
    PageUp: () => showPlane(state.plane + 1), PageDown: () => showPlane(state.plane - 1),
  };
  const digit = /^[1-9]$/.test(event.key) && segmentsNow()[Number(event.key) - 1];
  const action = digit ? () => select(digit.label) : actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || ((isRange || isRadio) && event.key.startsWith("Arrow")) || (event.key.startsWith("Page") && !content.planes)) return;
  event.preventDefault();
  action();
}

function onClick(event) {
  const place = hasMoved ? null : pixelAt(event);
  if (!place || !labelsNow()) return;
  [state.column, state.row] = place;
  const label = labelsNow()[place[1] * width + place[0]];
  if (label) select(label); else draw(false);
}

function showRanges() {
  at("number").max = content.levels.length - 1;
  at("number-label").hidden = content.levels.length < 2;
  at("bar").hidden = !content.pixel;
  at("cuts").hidden = at("plane-keys").hidden = !content.planes;
  at("stage").classList.toggle("volume", Boolean(content.planes));
  at("least").textContent = guess.toFixed(2);
  at("middle").textContent = ((1 + guess) / 2).toFixed(2);
}

async function start() {
  if (!content) adopt(JSON.parse(at("content").textContent));
  showRanges();
  at("scale").querySelector("i").style.background = `linear-gradient(to right, ${viridis.map(rgb => `rgb(${rgb})`).join(",")})`;
  at("number").addEventListener("input", () => showLevel(Number(at("number").value)));
  at("opacity").addEventListener("input", showOpacity);
  for (const name of ["borders", "numbered"]) at(name).addEventListener("change", () => draw(false));
  at("stage").addEventListener("click", onClick);
  at("stage").addEventListener("wheel", onWheel, { passive: false });
  at("stage").addEventListener("pointerdown", onDown);
  at("stage").addEventListener("pointermove", onMove);
  at("stage").addEventListener("pointerleave", () => { at("readout").textContent = ""; });
  addEventListener("pointermove", onDrag);
  addEventListener("pointerup", onUp);
  addEventListener("pointercancel", onUp);
  addEventListener("resize", showZoom);
  at("in").addEventListener("click", () => zoomBy(1.5));
  at("out").addEventListener("click", () => zoomBy(1 / 1.5));
  at("fit").addEventListener("click", () => zoomBy(0));
  at("download").addEventListener("click", saveLabels);
  at("merge").addEventListener("click", mergeTicked);
  at("undo").addEventListener("click", undoEdits);
  at("name").addEventListener("input", rename);
  at("copy").addEventListener("click", copyCommand);
  at("save-edits").addEventListener("click", () => save(new Blob([JSON.stringify(editsNow(), null, 1) + "\n"], { type: "application/json" }), "edits.json"));
  at("theme").addEventListener("click", changeTheme);
  document.addEventListener("keydown", onKey);
  for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", () => setView(input.value));
  showOpacity();
  await at("image").decode();
  showZoom();
  if (content.confidence) confidencePlane = await decode(content.confidence);
  if (content.planes) {
    film = await coloursOf(at("image").src);
    Object.assign(at("plane"), { max: depth() - 1 });
    at("plane-axis").textContent = `plane ${content.axis}`;
    if (`${[depth(), height, width]}` !== `${content.whole}`) at("thinned").textContent = `Shown are ${depth()} of ${content.whole[0]} planes, each at ${width} x ${height} pixels.`;
    at("plane").addEventListener("input", () => showPlane(Number(at("plane").value)));
    at("cut-row").addEventListener("click", event => onCut(event, "column"));
    at("cut-column").addEventListener("click", event => onCut(event, "row"));
    showPlane(state.plane);
  }
  await showLevel(state.level);
  document.documentElement.dataset.ready = "shown";
  for (let index = 0; index < content.levels.length; index++) await plane(index);
  await showLikely();
  document.documentElement.dataset.ready = "complete";
}
