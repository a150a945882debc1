// The chart of a bisection: value along the axis, and the probability of a step under it.
// uPlot does scales, axes, zoom and the cursor; what is drawn on them is drawn here.

const box = document.getElementById("chart-box");
const readout = document.getElementById("readout");
const live = document.getElementById("live");
const STRIP_HEIGHT = 84;
const SYNC = "axis";

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: of("ink"), muted: of("muted"), line: of("line"), bad: of("bad"), good: of("good"),
    point: of("point"), mean: of("mean"), threshold: of("threshold"),
    probability: of("probability"), card: of("card"),
  };
};

const number = (value) =>
  Math.abs(value) >= 1000
    ? Math.round(value).toLocaleString("en-US")
    : String(Number(value.toPrecision(4)));

let data = null;
// With too many points the server leaves them out of the whole; parts of the axis come when zoomed.
let whole = null;
let main = null;
let strip = null;
let colour = colours();

function measuredPositions() {
  const seen = new Set([...data.levels.position, ...data.points.position, ...data.unbuildable]);
  return [...seen].sort((a, b) => a - b);
}

// --- drawing -------------------------------------------------------------------------------

function clipped(u, draw) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, devicePixelRatio);
  ctx.restore();
}

function drawSteps(u) {
  clipped(u, (ctx, ratio) => {
    for (const step of data.steps) {
      if (step.position === null || step.before_position === null) continue;
      const from = u.valToPos(step.before_position, "x", true);
      const to = u.valToPos(step.position, "x", true);
      ctx.globalAlpha = step.verified ? 0.2 : 0.1;
      ctx.fillStyle = step.kind === "recovery" ? colour.good : colour.bad;
      ctx.fillRect(from, u.bbox.top, Math.max(to - from, 2 * ratio), u.bbox.height);
    }
  });
}

function drawValues(u) {
  clipped(u, (ctx, ratio) => {
    drawThreshold(u, ctx, ratio);
    drawPoints(u, ctx, ratio);
    drawLine(u, ctx, ratio);
    drawLevels(u, ctx, ratio);
    drawBroken(u, ctx, ratio);
  });
}

function drawThreshold(u, ctx, ratio) {
  if (data.threshold === null) return;
  const y = u.valToPos(data.threshold, "y", true);
  ctx.strokeStyle = colour.threshold;
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([6 * ratio, 5 * ratio]);
  ctx.beginPath();
  ctx.moveTo(u.bbox.left, y);
  ctx.lineTo(u.bbox.left + u.bbox.width, y);
  ctx.stroke();
  ctx.setLineDash([]);
}

function drawPoints(u, ctx, ratio) {
  const { position, value, rejected, purpose } = data.points;
  const anchor = data.purposes.indexOf("anchor");
  const spread = Math.min(u.bbox.width / (u.scales.x.max - u.scales.x.min) / 3, 5 * ratio);
  const top = u.bbox.top + 4 * ratio;
  const bottom = u.bbox.top + u.bbox.height - 4 * ratio;
  let place = 0;
  ctx.fillStyle = colour.point;
  ctx.strokeStyle = colour.point;
  ctx.lineWidth = ratio;
  for (let i = 0; i < position.length; i++) {
    place = i > 0 && position[i] === position[i - 1] ? place + 1 : 0;
    // Points of a commit stand side by side, always in the same order, so that none hides another.
    const x = u.valToPos(position[i], "x", true) + spread * (((place * 7) % 11) / 5 - 1);
    // A rejected point may lie far off; it must not set the scale, so it is kept at the edge.
    const y = Math.min(Math.max(u.valToPos(value[i], "y", true), top), bottom);
    ctx.globalAlpha = 0.8;
    ctx.beginPath();
    if (purpose[i] === anchor) ctx.rect(x - 2.2 * ratio, y - 2.2 * ratio, 4.4 * ratio, 4.4 * ratio);
    else ctx.arc(x, y, 2.5 * ratio, 0, 2 * Math.PI);
    if (rejected[i]) ctx.stroke();
    else ctx.fill();
  }
  ctx.globalAlpha = 1;
}

function drawLine(u, ctx, ratio) {
  const { position, mean } = data.levels;
  ctx.strokeStyle = colour.mean;
  ctx.lineWidth = ratio;
  ctx.globalAlpha = 0.3;
  ctx.beginPath();
  for (let i = 0; i < position.length; i++) {
    ctx.lineTo(u.valToPos(position[i], "x", true), u.valToPos(mean[i], "y", true));
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function drawLevels(u, ctx, ratio) {
  const { position, mean, low, high } = data.levels;
  ctx.strokeStyle = colour.mean;
  for (let i = 0; i < position.length; i++) {
    const x = u.valToPos(position[i], "x", true);
    ctx.lineWidth = 1.5 * ratio;
    ctx.beginPath();
    ctx.moveTo(x, u.valToPos(low[i], "y", true));
    ctx.lineTo(x, u.valToPos(high[i], "y", true));
    ctx.stroke();
    ctx.lineWidth = 2.5 * ratio;
    const y = u.valToPos(mean[i], "y", true);
    ctx.beginPath();
    ctx.moveTo(x - 6 * ratio, y);
    ctx.lineTo(x + 6 * ratio, y);
    ctx.stroke();
  }
}

function drawBroken(u, ctx, ratio) {
  const y = u.bbox.top + u.bbox.height - 8 * ratio;
  const size = 3 * ratio;
  ctx.strokeStyle = colour.muted;
  ctx.lineWidth = 1.5 * ratio;
  ctx.beginPath();
  for (const position of data.unbuildable) {
    const x = u.valToPos(position, "x", true);
    ctx.moveTo(x - size, y - size);
    ctx.lineTo(x + size, y + size);
    ctx.moveTo(x - size, y + size);
    ctx.lineTo(x + size, y - size);
  }
  ctx.stroke();
}

function drawBars(u) {
  clipped(u, (ctx, ratio) => {
    const { position, probability } = data.posterior;
    const slot = u.bbox.width / (u.scales.x.max - u.scales.x.min);
    const width = Math.min(Math.max(slot * 0.7, 2 * ratio), 14 * ratio);
    const bottom = u.bbox.top + u.bbox.height;
    ctx.fillStyle = colour.probability;
    for (let i = 0; i < position.length; i++) {
      const x = u.valToPos(position[i], "x", true);
      const top = u.valToPos(Math.min(probability[i], 1), "y", true);
      ctx.fillRect(x - width / 2, top, width, bottom - top);
    }
  });
}

// --- scales --------------------------------------------------------------------------------

function valueRange() {
  const { value, rejected } = data.points;
  const accepted = value.filter((_, i) => !rejected[i]);
  const values = [...(accepted.length ? accepted : value), ...data.levels.low, ...data.levels.high];
  if (!values.length) return [0, 1];
  const low = values.reduce((a, b) => Math.min(a, b));
  const high = values.reduce((a, b) => Math.max(a, b));
  const margin = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
  return [low - margin, high + margin];
}

const wholeAxis = () => [-0.5, data.last + 0.5];
const positions = () => Array.from({ length: data.last + 1 }, (_, i) => i);
// Positions are whole numbers: no grid line may stand between two of them.
const WHOLE_STEPS = [1, 2, 5].flatMap((unit) => [1, 10, 100, 1000, 10000].map((power) => unit * power)).sort((a, b) => a - b);
const wholeNumbers = (u, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : ""));

function axisStyle() {
  return {
    stroke: () => colour.muted,
    grid: { stroke: () => colour.line, width: 1 },
    ticks: { stroke: () => colour.line, width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
  };
}

function mainOptions(width, height) {
  return {
    width, height,
    padding: [12, 16, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: SYNC }, points: { show: false }, drag: { x: true, y: false } },
    scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range: valueRange } },
    series: [{}, { paths: () => null, points: { show: false } }],
    axes: [
      { ...axisStyle(), size: 20, incrs: WHOLE_STEPS, values: () => [], ticks: { show: false } },
      { ...axisStyle(), size: 64, values: (u, ticks) => ticks.map(number) },
    ],
    hooks: { drawAxes: [drawSteps], draw: [drawValues], setCursor: [pointed], setScale: [zoomed] },
  };
}

function stripOptions(width) {
  return {
    width, height: STRIP_HEIGHT,
    padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: SYNC }, points: { show: false }, drag: { x: true, y: false } },
    scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range: [0, 1] } },
    series: [{}, { paths: () => null, points: { show: false } }],
    axes: [
      { ...axisStyle(), size: 28, values: wholeNumbers, incrs: WHOLE_STEPS },
      { ...axisStyle(), size: 64, splits: [0, 0.5, 1], values: () => ["0", "P(step)", "1"], gap: 4 },
    ],
    hooks: { draw: [drawBars], setScale: [zoomed] },
  };
}

let zooming = false;
function zoomed(u, key) {
  const other = u === main ? strip : main;
  if (key !== "x" || zooming || !main || !strip) return;
  zooming = true;
  other.setScale("x", { min: u.scales.x.min, max: u.scales.x.max });
  zooming = false;
  if (whole.points_left_out) later(loadPart);
}

let timer = null;
function later(work) {
  clearTimeout(timer);
  timer = setTimeout(work, 200);
}

async function loadPart() {
  const from = Math.max(Math.floor(main.scales.x.min), 0);
  const to = Math.min(Math.ceil(main.scales.x.max), whole.last);
  if (from === 0 && to === whole.last) {
    data = whole;
  } else {
    const answer = await fetch(`${box.dataset.url}?from=${from}&to=${to}`);
    if (!answer.ok) return;
    const part = await answer.json();
    data = { ...whole, points: part.points, hosts: part.hosts, commits: part.commits };
  }
  redraw();
}

function showAll() {
  const [min, max] = wholeAxis();
  main.setScale("x", { min, max });
}

// --- what is pointed at --------------------------------------------------------------------

let chosen = null;

function nearest(position) {
  return measuredPositions().reduce(
    (best, each) =>
      best === null || Math.abs(each - position) < Math.abs(best - position) ? each : best,
    null,
  );
}

function pointed(u) {
  if (u.cursor.left < 0 || u.cursor.left === undefined) return;
  choose(nearest(u.posToVal(u.cursor.left, "x")));
}

function choose(position) {
  if (position === null || position === chosen) return;
  chosen = position;
  const named = data.commits.position.indexOf(position);
  const level = data.levels.position.indexOf(position);
  const strong = document.createElement("strong");
  strong.textContent = named < 0 ? `Position ${position}` : `Position ${position}: ${data.commits.sha[named]} ${data.commits.subject[named]}`;
  const lines = [strong, document.createElement("br")];
  if (level >= 0) {
    const { mean, low, high } = data.levels;
    lines.push(`mean ${number(mean[level])} ${data.unit}, 95% interval ${number(low[level])} to ${number(high[level])}`);
  }
  const runs = data.points.position.filter((each) => each === position).length;
  if (data.unbuildable.includes(position)) lines.push(" does not build or run ");
  if (runs) lines.push(`; ${runs} ${runs === 1 ? "run" : "runs"}`);
  const at = data.posterior.position.indexOf(position);
  if (at >= 0) lines.push(`; probability of a step ${(100 * data.posterior.probability[at]).toFixed(1)}%`);
  lines.push(". Enter or click opens it.");
  readout.replaceChildren(...lines);
}

function open(position) {
  if (position !== null) location.assign(box.dataset.commitUrl + position);
}

function onKey(event) {
  const all = measuredPositions();
  const at = all.indexOf(chosen);
  const goes = {
    ArrowRight: Math.min(at + 1, all.length - 1), ArrowLeft: Math.max(at - 1, 0),
    Home: 0, End: all.length - 1,
  };
  if (event.key in goes && all.length) {
    event.preventDefault();
    const position = all[goes[event.key]];
    choose(position);
    main.setCursor({ left: main.valToPos(position, "x"), top: main.over.clientHeight / 2 });
  } else if (event.key === "Enter") open(chosen);
  else if (event.key === "Escape") showAll();
}

function listenForClicks(u) {
  let down = null;
  u.over.addEventListener("mousedown", (event) => { down = event.clientX; });
  u.over.addEventListener("mouseup", (event) => {
    // A drag zooms; only a click opens.
    if (down !== null && Math.abs(event.clientX - down) < 4) setTimeout(() => open(chosen), 0);
  });
  u.over.addEventListener("dblclick", showAll);
}

// --- life ----------------------------------------------------------------------------------

function build() {
  const width = box.clientWidth;
  const height = box.clientHeight - STRIP_HEIGHT;
  box.replaceChildren();
  main = new uPlot(mainOptions(width, height), columns(), box);
  strip = new uPlot(stripOptions(width), columns(), box);
  main.over.setAttribute("tabindex", "0");
  main.over.setAttribute("role", "application");
  main.over.setAttribute("aria-label", "Chart of values along the axis. Arrow keys go from one measured commit to the next, Enter opens it, Escape shows all.");
  main.over.addEventListener("keydown", onKey);
  listenForClicks(main);
  readout.textContent = "Point at the chart or use the arrow keys to read values; drag to zoom, Escape shows all.";
}

function columns() {
  const all = positions();
  return [all, all.map(() => null)];
}

function redraw() {
  main.redraw(false);
  strip.redraw(false);
}

async function load() {
  const answer = await fetch(box.dataset.url);
  if (!answer.ok) return;
  data = whole = await answer.json();
  if (!data.points.position.length && !data.levels.position.length) return;
  box.dataset.points = data.points.position.length;
  if (main !== null && whole.points_left_out) later(loadPart);
  if (main === null) {
    build();
    showAll();
    return;
  }
  const [min, max] = [main.scales.x.min, main.scales.x.max];
  main.setData(columns(), false);
  strip.setData(columns(), false);
  main.setScale("x", { min, max });
  main.setScale("y", {});
  redraw();
}

new ResizeObserver(() => {
  if (main === null) return;
  main.setSize({ width: box.clientWidth, height: box.clientHeight - STRIP_HEIGHT });
  strip.setSize({ width: box.clientWidth, height: STRIP_HEIGHT });
}).observe(box);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colour = colours();
  if (main !== null) redraw();
});

if (live !== null) {
  live.addEventListener("changed", load);
  live.addEventListener("finished", load);
}
load();
