// ---- painting: what this page adds to a report --------------------------------------------------------------

const about = JSON.parse(at("content").textContent);
const token = new URLSearchParams(location.search).get("token"), me = String(crypto.getRandomValues(new Uint32Array(1))[0]);
const known = { image: 0, since: -1, painted: -1, contents: -1, number: 0 };      // what this window was told
const brush = { tool: "paint", cls: 1, size: 12 };
let told = { classes: [], merged: {}, shape: [1, 1], large: false }, strokes = [], sent = [], unsent = [], drawing = null, wantsNew = false;
let polling = null, doubt = -1, saidUntil = 0, savedShown = 0, timer = 0;
const fingers = new Map();      // pointers that touch the stage
const MOST_POINTS = 4000, PINCH = 8;

const say = (text, seconds = 6) => { at("said").textContent = text; saidUntil = Date.now() + 1000 * seconds; };
const screenWidth = () => at("stage").clientWidth, scaleNow = () => zoom.factor * screenWidth() / told.shape[1];      // pixels on the screen for one of the image
const labelOfClass = cls => told.merged[cls] || told.classes.findIndex(one => one.cls === cls) + 1;
const classOf = label => content.classes ? content.classes[label - 1] : label;

async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { "X-Token": token, "X-Window": me, ...(options.body ? { "Content-Type": "application/json" } : {}) } });
  if (response.ok) return response;
  const error = new Error((await response.text()).trim());
  error.status = response.status;
  throw error;
}

async function post(path, body = {}) {
  try {
    return await (await ask(path, { method: "POST", body: JSON.stringify(body) })).json();
  } catch (error) {
    if (error.status) { say(error.message); return { painted: 0 }; }      // refused: sending it again would not help
    lost(true);
    return null;
  }
}

function lost(isLost) {
  document.body.classList.toggle("lost", isLost);
  if (isLost) say("The command has ended. All strokes up to here are saved: run it again to go on.", 3600);
  else if (at("said").textContent.startsWith("The command")) say("");
}

async function pictureAt(path) {
  return URL.createObjectURL(await (await ask(path)).blob());
}

async function decodeAt(path) {
  const address = await pictureAt(path), plane = await decode(address);
  URL.revokeObjectURL(address);
  return plane;
}

// ---- what the server tells ----------------------------------------------------------------------------------

async function listen() {
  for (;;) {
    const image = known.image;
    try {
      polling = new AbortController();
      const { since, painted, contents } = known;
      const next = await (await ask(`/state?image=${image}&since=${since}&painted=${painted}&contents=${contents}`, { signal: polling.signal })).json();
      lost(false);
      if (image === known.image) await take(next);
      if (unsent.length) await send();
    } catch (error) {
      if (error.name === "AbortError") continue;
      if (!error.status) lost(true); else say(error.message);
      await new Promise(done => setTimeout(done, 1000));
    }
  }
}

const empty = shown => ({ shape: told.shape, shown, chosen: 0, levels: [{ n: 0, segments: [], labels: "", histograms: "" }], channels: [], palette: about.palette, confidence: "", selection: null, title: "", command: [], members: {}, pixel: null });

async function showImage() {      // before anything is known about its segments
  adopt(empty(told.shown));
  planes.set(0, new Uint8Array(width * height));
  confidencePlane = null;
  state.segment = 0;
  document.title = `${about.images[known.image]} - texseg`;
  document.querySelector("h1").textContent = about.images[known.image];
  at("image").src = await pictureAt(`/picture/${known.image}`);
  await at("image").decode();
}

async function take(next) {
  const before = told, isFirst = known.since < 0;
  told = next;
  if (isFirst) {
    await showImage();
    if (!known.started) { known.started = true; await start(); } else { showRanges(); zoomBy(0); refresh(); }
  }
  if (next.strokes) { strokes = next.strokes; sent = sent.filter(one => one.painted > next.painted); }
  if (JSON.stringify(before.classes) !== JSON.stringify(next.classes)) showClasses();
  if (wantsNew && next.classes.length > before.classes.length) { wantsNew = false; choose(next.classes.at(-1).cls); }
  const isNewMap = next.number !== known.number || (next.large && next.contents !== known.contents);
  let labels = planes.get(state.level);
  if (next.number && isNewMap) labels = await decodeAt(`/labels/${known.image}`);
  if (next.content) await takeContent(next.content, labels);
  else if (next.number && isNewMap && (isOwn() || next.number !== known.number)) showPlane(labels);
  Object.assign(known, { since: next.version, painted: next.painted, contents: next.contents, number: next.number });
  for (const segment of content.levels[state.level].segments) if (isOwn() && told.classes[segment.label - 1]) segment.name = told.classes[segment.label - 1].name;
  if (next.content || JSON.stringify(before.classes) !== JSON.stringify(next.classes)) { showTable(); if (state.segment) showSegment(); }
  showStatus();
  showInk();
  if (isNewMap) showTiles();
  document.documentElement.dataset.number = next.number;
  document.documentElement.dataset.idle = !next.busy && !next.settling && !next.progress && !unsent.length && !sent.length && !!next.number;
}

function showPlane(labels) {      // new labels, about which nothing else is known yet
  const own = content.levels.findIndex(level => level.n === content.chosen);
  state.level = Math.max(0, own);
  planes.set(state.level, labels);
  shownLabels = labels;
  draw(true);
}

async function takeContent(next, labels) {
  const preview = isOwn() ? null : content.levels[state.level].n, before = state.segment, isSame = content.number === next.number;
  next.palette = about.palette;
  next.command = [];
  adopt(next);
  planes.set(state.level, labels);
  confidencePlane = next.confidence ? await decode(next.confidence) : null;
  edits.ticked.clear();
  showRanges();
  state.segment = next.levels[state.level].segments.some(one => one.label === before) ? before : 0;
  doubt = isSame ? doubt : -1;
  const level = next.levels.findIndex(one => one.n === preview);
  await showLevel(isSame && level >= 0 ? level : state.level);
  showParameters();
  if (!next.rest) await showLikely();
  document.documentElement.dataset.content = next.number;
}

function showStatus() {
  const { progress, busy } = told, newest = told.said.at(-1);
  if (newest && newest[0] > (known.heard || 0)) { known.heard = newest[0]; say(newest[1], 12); }
  at("progress").hidden = at("cancel").hidden = !progress && (!busy || told.stuck);
  if (progress) at("progress").value = progress[3]; else at("progress").removeAttribute("value");
  if (Date.now() > saidUntil && !document.body.classList.contains("lost")) {
    const phase = progress ? progress[0] : "", part = progress && progress[2] > 1 ? ` ${progress[1]} of ${progress[2]}` : "";
    at("said").textContent = phase ? `${phase}${part} ...` : told.stuck && newest ? newest[1] : busy ? "learning ..." : told.earlier && !known.painting ? `${told.earlier} strokes and edits of an earlier session; "start anew" sets them aside.` : told.large ? "Textures are learned from crops of this large image, and from where you paint." : "";
  }
  at("back").disabled = !told.undo;
  at("again").disabled = !told.redo;
  at("save").disabled = busy || !told.number;
  at("next").hidden = !(content.doubts || []).length;
  at("first").hidden = known.painting || told.earlier > 0 || !told.number;
  if (told.saved.number && told.saved.number !== savedShown) showSaved();
}

// ---- strokes ------------------------------------------------------------------------------------------------

function showInk(stroke = null) {      // all strokes, or the end of one that is being drawn
  const canvas = at("ink"), context = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(screenWidth() * ratio), Math.round(at("stage").clientHeight * ratio)];
  if (!stroke && (canvas.width !== w || canvas.height !== h)) [canvas.width, canvas.height] = [w, h];
  const scale = scaleNow() * ratio, [left, top] = [zoom.x * w, zoom.y * h];
  if (!stroke) context.clearRect(0, 0, w, h);
  context.lineCap = "round";
  const every = stroke ? [{ ...stroke, points: stroke.points.slice(-2) }] : [...strokes, ...sent, ...unsent, ...(drawing && drawing.kind === "stroke" ? [drawing] : [])];
  for (const { cls, points } of at("inked").checked ? every : []) {
    if (cls && !labelOfClass(cls)) continue;
    context.globalCompositeOperation = cls ? "source-over" : "destination-out";
    context.strokeStyle = `rgb(${about.palette[cls ? labelOfClass(cls) : 0].join(",")})`;
    points.forEach(([x, y, width], i) => {
      const [px, py] = points[Math.max(0, i - 1)];
      context.lineWidth = Math.max(1, width * scale);
      context.beginPath();
      context.moveTo(left + px * scale, top + py * scale);
      context.lineTo(left + x * scale + (points.length === 1 ? .01 : 0), top + y * scale);
      context.stroke();
    });
  }
  if (drawing && drawing.kind === "mask") {
    context.globalCompositeOperation = "source-over";
    for (const [style, dash] of [["#000", []], ["#fff", [6, 6]]]) {
      context.lineWidth = 2 * ratio;
      context.strokeStyle = style;
      context.setLineDash(dash);
      context.beginPath();
      for (const [x, y] of drawing.points) context.lineTo(left + x * scale, top + y * scale);
      context.stroke();
    }
    context.setLineDash([]);
  }
}

function placeOf(event) {
  const box = at("sheet").getBoundingClientRect(), [H, W] = told.shape;
  const pressure = event.pointerType === "pen" && event.pressure ? .25 + 1.5 * event.pressure : 1;
  const round = value => Math.round(10 * value) / 10;
  return [round((event.clientX - box.left) / box.width * W), round((event.clientY - box.top) / box.height * H), round(Math.max(1, brush.size * pressure / scaleNow()))];
}

function begin(event) {
  if (event.button !== 0 || brush.tool === "move" || known.space || !width) return;
  event.stopImmediatePropagation();
  event.preventDefault();
  at("stage").focus({ preventScroll: true });
  fingers.set(event.pointerId, event);
  at("stage").setPointerCapture?.(event.pointerId);
  if (fingers.size > 1) { drawing = null; showInk(); return; }
  startAt(placeOf(event));
}

function startAt(place) {
  const isStroke = brush.tool === "paint" || brush.tool === "erase";
  drawing = isStroke
    ? { kind: "stroke", image: known.image, cls: brush.tool === "erase" ? 0 : brush.cls, points: [place] }
    : { kind: "mask", image: known.image, keep: brush.tool === "keep", points: [place] };
  showInk(isStroke ? drawing : null);
}

function drawByKeys(key, isFine) {      // the arrows move the brush, Enter begins and ends a stroke
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Enter: [0, 0] }, stage = at("stage"), box = stage.getBoundingClientRect();
  known.pen ||= { x: box.width / 2, y: box.height / 2 };
  known.pen.x = Math.min(box.width - 1, Math.max(0, known.pen.x + moves[key][0] * (isFine ? 2 : 12)));
  known.pen.y = Math.min(box.height - 1, Math.max(0, known.pen.y + moves[key][1] * (isFine ? 2 : 12)));
  const event = { clientX: box.left + known.pen.x, clientY: box.top + known.pen.y, pointerType: "keys" };
  if (drawing) drawing.points.push(placeOf(event));
  if (key === "Enter" && drawing) finish();
  else if (key === "Enter") startAt(placeOf(event));
  else if (drawing) showInk(drawing.kind === "stroke" ? drawing : null);
  showCursor(event);
}

function go(event) {
  showCursor(event);
  if (fingers.size === 2 && fingers.has(event.pointerId)) return pinch(event);
  if (!drawing || !fingers.has(event.pointerId)) return;
  event.stopImmediatePropagation();
  for (const one of event.getCoalescedEvents?.().length ? event.getCoalescedEvents() : [event]) {
    const place = placeOf(one), last = drawing.points.at(-1);
    if (Math.hypot(place[0] - last[0], place[1] - last[1]) < Math.max(.5, .15 * place[2])) continue;
    drawing.points.push(place);
    showInk(drawing.kind === "stroke" ? drawing : null);
  }
  if (drawing.points.length > MOST_POINTS) { const rest = { ...drawing, points: drawing.points.slice(-1) }; finish(); drawing = rest; }
}

function pinch(event) {
  const [one, other] = [...fingers.values()], before = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
  const middle = [(one.clientX + other.clientX) / 2, (one.clientY + other.clientY) / 2];
  fingers.set(event.pointerId, event);
  const [a, b] = [...fingers.values()], after = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), box = at("stage").getBoundingClientRect();
  zoom.x += ((a.clientX + b.clientX) / 2 - middle[0]) / box.width;
  zoom.y += ((a.clientY + b.clientY) / 2 - middle[1]) / box.height;
  zoomBy(before > PINCH ? after / before : 1, (middle[0] - box.left) / box.width, (middle[1] - box.top) / box.height);
}

function end(event) {
  if (!fingers.delete(event.pointerId) || !drawing) return;
  finish();
}

function finish() {
  const done = drawing;
  drawing = null;
  known.painting = true;
  if (done.kind === "stroke") {
    unsent.push(done);
    send();
  } else if (done.points.length > 2) {
    post("/do", done);
    setTool("move");
  }
  showInk();
}

async function send() {      // in their order, each again until the server has it; shown until it is among those of the server
  if (known.sending) return;
  known.sending = true;
  for (let answer; unsent.length && (answer = await post("/do", unsent[0]));) if (answer.painted > known.painted) sent.push({ ...unsent.shift(), painted: answer.painted }); else unsent.shift();
  known.sending = false;
  if (unsent.length) setTimeout(send, 1000); else if (document.body.classList.contains("lost")) lost(false);
}

function showCursor(event) {
  const box = at("stage").getBoundingClientRect(), isBrush = brush.tool === "paint" || brush.tool === "erase", cursor = at("cursor");
  cursor.hidden = !isBrush || event.pointerType === "touch";
  Object.assign(cursor.style, { left: `${event.clientX - box.left}px`, top: `${event.clientY - box.top}px`, width: `${brush.size}px`, height: `${brush.size}px` });
}

// ---- tools and classes --------------------------------------------------------------------------------------

function setTool(tool) {
  brush.tool = tool;
  document.querySelector(`input[name=tool][value=${tool}]`).checked = true;
  at("stage").style.cursor = { move: "", paint: "none", erase: "none" }[tool] ?? "crosshair";
  at("cursor").hidden = true;
  if (content) live.zoomed();
}

function setSize(size) {
  at("size").value = brush.size = Math.min(80, Math.max(2, size));
}

function choose(cls) {
  brush.cls = cls;
  setTool("paint");
  showClasses();
}

function showClasses() {
  if (!told.classes.some(one => one.cls === brush.cls) && told.classes.length) brush.cls = (told.classes[(told.merged[brush.cls] || 1) - 1] || told.classes[0]).cls;
  const focused = document.activeElement?.dataset?.cls;
  const buttons = told.classes.map(({ cls, name }, i) => {
    const label = i + 1, isChosen = cls === brush.cls, button = make("button", "", { type: "button", role: "radio", "aria-checked": isChosen, "data-cls": cls, tabindex: isChosen ? 0 : -1, title: label < 10 ? `Paint this class (${label})` : "Paint this class" });
    const square = make("span", "", { class: "swatch" });
    square.style.background = `rgb(${about.palette[label].join(",")})`;
    button.append(square, name ? `${label} ${name}` : `${label}`);
    button.addEventListener("click", () => choose(cls));
    return button;
  });
  const add = make("button", "+ class", { type: "button", title: "Add a class (C)", id: "add" });
  add.addEventListener("click", addClass);
  at("classes").replaceChildren(...buttons, add);
  if (focused) at("classes").querySelector("[aria-checked=true]")?.focus();
}

function addClass() {
  wantsNew = true;
  post("/do", { kind: "class" });
}

function goToNext() {
  const places = content.doubts || [];
  if (!places.length) return;
  doubt = (doubt + 1) % places.length;
  const [y, x, top, left, bottom, right, sure, label] = places[doubt], [H, W] = told.shape;
  zoom.factor = Math.max(1, Math.min(8, .5 * Math.min(W / (right - left), H / (bottom - top))));
  zoom.x = .5 - x / W * zoom.factor;
  zoom.y = .5 - y / H * zoom.factor;
  showZoom();
  markPart([0, top, left, bottom, right]);
  say(`Segment ${label} is unsure here (confidence ${sure.toFixed(2)}): paint what it is. Press W for the next place.`);
}

// ---- edits, number and parameters ---------------------------------------------------------------------------

live.merge = labels => {
  post("/do", { kind: "merge", classes: labels.map(classOf) });
  edits.ticked.clear();
};

live.edits = () => {      // after each change of what is shown
  at("undo").hidden = true;
  at("merge").disabled = edits.ticked.size < 2;
  at("editing").hidden = !isOwn();
  at("split").disabled = !state.segment;
  clearTimeout(timer);
  const { n } = content.levels[state.level];
  if (isOwn() || known.asked === `${known.number} ${n}`) return;
  timer = setTimeout(() => {      // a number that is looked at for a moment is the one that is wanted
    known.asked = `${known.number} ${n}`;
    post("/do", { kind: "fit", values: { n_segments: n } });
  }, 700);
};

live.zoomed = () => {
  at("stage").style.touchAction = brush.tool === "move" && zoom.factor === 1 ? "pan-y" : "none";
  showInk();
  showDoubt();
  clearTimeout(known.tiles);
  known.tiles = setTimeout(showTiles, 120);
};

live.drawn = linesToo => {
  at("split").disabled = !state.segment;
  showDoubt();
  if (!linesToo) showTiles();
};

function showDoubt() {
  const first = (content.doubts || [])[Math.max(0, doubt)], [H, W] = told.shape;
  at("doubt").hidden = !first || !isOwn() || state.view === "image";
  if (first) Object.assign(at("doubt").style, { left: `${100 * (zoom.x + first[1] / W * zoom.factor)}%`, top: `${100 * (zoom.y + first[0] / H * zoom.factor)}%` });
}

function showParameters() {
  if (at("parameters").contains(document.activeElement)) return;
  at("parameters").replaceChildren(...Object.entries(about.parameters).flatMap(([name, row]) => {
    const id = `parameter-${name}`, label = make("label", row.title, { for: id }), value = content.parameters[name];
    let input;
    if (row.choices) {
      input = make("select", "", { id });
      for (const [shown, meant] of row.choices) input.append(make("option", shown, { value: JSON.stringify(meant), ...(meant === value ? { selected: "" } : {}) }));
    } else {
      input = make("input", "", { id, type: "number", min: row.min, step: "any", value: value ?? "", placeholder: row.usual });
    }
    input.addEventListener("change", () => {
      const given = row.choices ? JSON.parse(input.value) : input.value === "" ? row.none : Number(input.value);
      post("/do", { kind: "fit", values: { [name]: given } });
      input.blur();
    });
    label.append(input);
    return [label, make("p", row.help, { class: "key" })];
  }));
}

// ---- detail of what is larger than its overview -------------------------------------------------------------

const tiles = new Map();

async function showTiles() {
  const ratio = devicePixelRatio || 1, [H, W] = told.shape, needed = scaleNow() * ratio;      // pixels on the screen for one of the image
  const isNeeded = width < W && needed * W > 1.3 * width;
  at("tiles").hidden = at("map").hidden = !isNeeded;
  for (const name of ["tint", "lines"]) at(name).style.visibility = "";
  if (!isNeeded) return;
  const level = Math.max(0, Math.min(8, Math.floor(Math.log2(1 / needed)))), side = about.tile * 2 ** level;
  const rows = [-zoom.y / zoom.factor * H, (1 - zoom.y) / zoom.factor * H], columns = [-zoom.x / zoom.factor * W, (1 - zoom.x) / zoom.factor * W];
  const seen = [];
  for (let y = Math.floor(Math.max(0, rows[0]) / side); y * side < Math.min(H, rows[1]); y++)
    for (let x = Math.floor(Math.max(0, columns[0]) / side); x * side < Math.min(W, columns[1]); x++) seen.push({ y, x, top: y * side, left: x * side, side, key: `${known.image}/${level}/${y}/${x}` });
  const version = `${known.number} ${told.large ? known.contents : ""}`, stamp = known.stamp = (known.stamp || 0) + 1;
  await Promise.all(seen.map(async tile => {
    if (!tiles.has(tile.key)) tiles.set(tile.key, {});
    const own = tiles.get(tile.key);
    if (!own.picture) own.picture = pictureAt(`/picture/${tile.key}`).catch(() => { own.picture = null; });
    if (own.version !== version && !(told.large && own.labels && own.number === known.number)) {
      own.version = version;
      own.number = known.number;
      own.labels = await labelsOfTile(tile).catch(() => null);
    }
    if (typeof own.picture !== "string") own.picture = await own.picture;
  }));
  if (stamp !== known.stamp) return;
  for (const key of [...tiles.keys()].slice(0, Math.max(0, tiles.size - 80))) {
    if (seen.some(tile => tile.key === key)) continue;
    URL.revokeObjectURL(tiles.get(key).picture);
    tiles.delete(key);
  }
  at("tiles").replaceChildren(...seen.filter(tile => tiles.get(tile.key)?.picture).map(({ key, top, left, side }) => {
    const picture = make("img", "", { alt: "", src: tiles.get(key).picture });
    Object.assign(picture.style, { top: `${100 * top / H}%`, left: `${100 * left / W}%`, height: `${100 * Math.min(side, H - top) / H}%`, width: `${100 * Math.min(side, W - left) / W}%` });
    return picture;
  }));
  showMap(seen, 2 ** level);
}

async function labelsOfTile({ key }) {
  const address = await pictureAt(`/labels/${key}`), picture = new Image();
  picture.src = address;
  await picture.decode();
  const plane = await decode(address);
  URL.revokeObjectURL(address);
  return { plane, columns: picture.naturalWidth, rows: picture.naturalHeight };
}

function showMap(seen, step) {      // the labels in full, in place of those of the overview, where all are known
  const found = seen.map(tile => ({ ...tile, labels: tiles.get(tile.key)?.labels })), canvas = at("map");
  const isShown = found.every(tile => tile.labels) && isOwn() && state.view !== "confidence";
  canvas.hidden = !isShown || state.view === "image";
  if (!isShown) return;
  for (const name of ["tint", "lines"]) at(name).style.visibility = "hidden";
  const [H, W] = told.shape, ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
  [canvas.width, canvas.height] = [Math.round(screenWidth() * ratio), Math.round(at("stage").clientHeight * ratio)];
  context.imageSmoothingEnabled = false;
  const scale = scaleNow() * ratio, opacity = Math.round(2.55 * Number(at("opacity").value)), light = word(255, 255, 255, 255);
  const table = Uint32Array.from({ length: 256 }, (_, label) => !label ? 0 : state.segment && label !== state.segment ? word(0, 0, 0, opacity) : word(...about.palette[label], opacity));
  for (const { labels: { plane, columns, rows }, top, left } of found) {
    const data = context.createImageData(columns, rows), words = new Uint32Array(data.data.buffer), layer = make("canvas", "", { width: columns, height: rows });
    const bordered = at("borders").checked;
    for (let i = 0; i < words.length; i++) {
      const isBorder = bordered && (((i + 1) % columns && plane[i] !== plane[i + 1]) || (i + columns < plane.length && plane[i] !== plane[i + columns]));
      words[i] = isBorder ? light : table[plane[i]];
    }
    layer.getContext("2d").putImageData(data, 0, 0);
    context.drawImage(layer, zoom.x * canvas.width + left * scale, zoom.y * canvas.height + top * scale, Math.min(columns * step, W - left) * scale, Math.min(rows * step, H - top) * scale);
  }
}

// ---- saving -------------------------------------------------------------------------------------------------

function saveNow() {
  const kinds = [...at("kinds").querySelectorAll("input:checked")].map(box => box.value);
  say("saving ...");
  post("/save", { image: known.image, kinds });
}

function showSaved() {
  const { number, files, commands, folder } = told.saved;
  savedShown = number;
  at("saved").replaceChildren(make("p", `Saved in ${folder}: ${files.join(", ")}`), ...commands.flatMap(([what, command]) => {
    const block = make("pre", ""), copy = make("button", "copy", { type: "button" });
    block.append(make("code", command));
    copy.addEventListener("click", () => { navigator.clipboard.writeText(command); copy.textContent = "copied"; });
    const head = make("p", `${what} `);
    head.append(copy);
    return [head, block];
  }));
  say("saved", 4);
}

// ---- keys, and the beginning --------------------------------------------------------------------------------

function onPaintKey(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (isTyping(event) || event.altKey) return;
  const withControl = { z: () => post(event.shiftKey ? "/redo" : "/undo"), y: () => post("/redo"), s: saveNow };
  const digit = /^[1-9]$/.test(key) && told.classes[Number(key) - 1];
  const plain = {
    m: () => setTool("move"), p: () => setTool("paint"), e: () => setTool("erase"), k: () => setTool("keep"), x: () => setTool("cut"), c: addClass, w: goToNext,
    "[": () => setSize(brush.size - 2), "]": () => setSize(brush.size + 2), " ": () => { known.space = true; },
    Enter: edits.ticked.size > 1 && event.target.tagName !== "BUTTON" ? () => live.merge([...edits.ticked]) : null,
    ...(drawing ? { Escape: () => { drawing = null; showInk(); } } : {}),
  };
  if (key === " " && /^(BUTTON|INPUT|SUMMARY)$/.test(event.target.tagName)) return;
  if (event.target === at("stage") && brush.tool !== "move" && /^(Arrow|Enter)/.test(key)) {
    event.preventDefault();
    event.stopImmediatePropagation();
    drawByKeys(key, event.shiftKey);
    return;
  }
  const isInClasses = at("classes").contains(event.target) && /^Arrow/.test(key);
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key] || 0, place = told.classes.findIndex(one => one.cls === brush.cls);
  const action = event.ctrlKey || event.metaKey ? withControl[key]
    : isInClasses ? () => choose(told.classes[(place + step + told.classes.length) % told.classes.length].cls)
    : digit && brush.tool !== "move" ? () => choose(digit.cls) : plain[key];
  if (!action) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  action();
}

function onShiftClick(event) {      // picks segments to merge, on the picture
  if (brush.tool !== "move" && !known.space) { event.stopImmediatePropagation(); return; }
  const place = pixelAt(event), label = place && shownLabels ? shownLabels[place[1] * width + place[0]] : 0;
  if (!event.shiftKey || !label || !isOwn()) return;
  event.stopImmediatePropagation();
  if (!edits.ticked.delete(label)) edits.ticked.add(label);
  showTable();
  live.edits();
  say(`${edits.ticked.size} selected to merge (Enter merges them)`);
}

function build() {
  const stage = at("stage");
  for (const [name, value] of [["tabindex", 0], ["role", "application"], ["aria-label", "image; the arrows move the brush, Enter begins and ends a stroke"]]) stage.setAttribute(name, value);
  at("tint").before(make("div", "", { id: "tiles" }));
  for (const id of ["map", "ink"]) stage.append(make("canvas", "", { id, class: "over" }));
  stage.append(make("div", "?", { id: "doubt", hidden: "" }), make("div", "", { id: "cursor", hidden: "" }));
  const first = make("p", "", { id: "first", hidden: "" });
  for (const line of ["Paint a stroke on what is wrong, in the class that it is.", "The segments follow after each stroke; undo takes it back.", "Save writes the labels, and the command that makes them again."]) first.append(make("span", line), make("br", ""));
  stage.append(first);
  stage.parentElement.append(at("likely"));
  const split = make("button", "split", { id: "split", type: "button", disabled: "", title: "Divide the selected segment in two, or undo its merge" });
  split.addEventListener("click", () => post("/do", { kind: "split", cls: classOf(state.segment) }));
  at("merge").after(split);
  for (const [kind, isUsual] of about.kinds) {
    const label = make("label", ""), box = make("input", "", { type: "checkbox", value: kind, ...(isUsual ? { checked: "" } : {}) });
    label.append(box, ` ${kind}`);
    at("kinds").append(label);
  }
  about.images.forEach((name, i) => at("images").append(make("option", name, { value: i })));
  at("image-label").hidden = about.images.length < 2;
  document.querySelector("details p").append(make("br", ""), "Painting: P paint, E erase, M move, K crop, X mask, C new class, 1 ... 9 class, [ ] width, W next place, Ctrl+Z undo, Ctrl+Y redo, Ctrl+S save, space and drag to move; Shift and click to pick segments for a merge.");
}

function connect() {
  const stage = at("stage");
  stage.addEventListener("pointerdown", begin, true);
  stage.addEventListener("pointermove", go, true);
  for (const kind of ["pointerup", "pointercancel"]) stage.addEventListener(kind, end, true);
  stage.addEventListener("pointerleave", () => { at("cursor").hidden = true; });
  stage.addEventListener("click", onShiftClick, true);
  document.addEventListener("keydown", onPaintKey, true);
  document.addEventListener("keyup", event => { if (event.key === " ") known.space = false; });
  for (const input of document.querySelectorAll("input[name=tool]")) input.addEventListener("change", () => setTool(input.value));
  at("size").addEventListener("input", () => setSize(Number(at("size").value)));
  at("inked").addEventListener("change", () => showInk());
  at("opacity").addEventListener("input", showTiles);
  at("back").addEventListener("click", () => post("/undo"));
  at("again").addEventListener("click", () => post("/redo"));
  at("cancel").addEventListener("click", () => post("/cancel"));
  at("next").addEventListener("click", goToNext);
  at("save").addEventListener("click", saveNow);
  at("anew").addEventListener("click", () => post("/do", { kind: "anew" }));
  at("name").addEventListener("change", () => state.segment && post("/do", { kind: "name", cls: classOf(state.segment), name: at("name").value.trim() }));
  at("images").addEventListener("change", () => {
    Object.assign(known, { image: Number(at("images").value), since: -1, painted: -1, contents: -1, number: 0 });
    strokes = sent = [];
    polling?.abort();
  });
  addEventListener("resize", () => showInk());
  addEventListener("beforeunload", event => { if (unsent.length) event.preventDefault(); });
  setInterval(() => { if (content && Date.now() > saidUntil) showStatus(); }, 1000);
}

build();
connect();
setTool("paint");
listen();
