// The chart of a nightly series: values by night, changes and missing nights shaded.

const box = document.getElementById("chart-box");
const readout = document.getElementById("readout");
const HEIGHT = 300;
const DAY = 86400;

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return { muted: of("muted"), line: of("line"), bad: of("bad"), good: of("good"), point: of("point"), mean: of("mean") };
};

const number = (value) =>
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
const dayOf = (tick) => new Date(tick * 1000).toISOString().slice(0, 10);
// Of a few nights, several ticks fall on one day: it is named once, and a year where it begins.
const days = (u, ticks) => ticks.map(dayOf).map((day, i, all) => {
  const before = all[i - 1] ?? "";
  if (day === before) return "";
  return day.slice(0, 4) === before.slice(0, 4) ? day.slice(5) : day;
});
const seconds = (night) => Date.parse(`${night}T00:00:00Z`) / 1000;

let data = null;
let plot = null;
let colour = colours();

// One place for each day from the first night to the last: a night without a value is a gap.
function columns() {
  const { night, value } = data.points;
  const byDay = new Map();
  night.forEach((each, i) => {
    const at = seconds(each);
    byDay.set(at, [...(byDay.get(at) || []), value[i]]);
  });
  const days = [...byDay.keys()];
  const first = Math.min(...days);
  const last = Math.max(...days);
  const x = [];
  // Of a single night alone, uPlot would show years.
  const beside = first === last ? DAY : 0;
  for (let at = first - beside; at <= last + beside; at += DAY) x.push(at);
  const middle = (values) => {
    if (!values) return null;
    const sorted = [...values].sort((a, b) => a - b);
    return sorted[sorted.length >> 1];
  };
  return [x, x.map((at) => middle(byDay.get(at)))];
}

function shade(u) {
  const { ctx, bbox } = u;
  const rect = (from, to, fill, alpha) => {
    const left = u.valToPos(from, "x", true);
    const right = u.valToPos(to, "x", true);
    ctx.globalAlpha = alpha;
    ctx.fillStyle = fill;
    ctx.fillRect(left, bbox.top, Math.max(right - left, 2 * devicePixelRatio), bbox.height);
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const [first, last] of data.missing) rect(seconds(first) - DAY / 2, seconds(last) + DAY / 2, colour.muted, 0.12);
  for (const change of data.changes) {
    if (change.state === "refuted") continue;
    const settled = change.state === "confirmed" || change.state === "closed";
    rect(seconds(change.good), seconds(change.bad), change.kind === "recovery" ? colour.good : colour.bad, settled ? 0.28 : 0.14);
  }
  ctx.restore();
}

function levels(u) {
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = colour.mean;
  ctx.lineWidth = 2 * devicePixelRatio;
  for (const [from, to, level] of data.levels) {
    const y = u.valToPos(level, "y", true);
    ctx.beginPath();
    ctx.moveTo(u.valToPos(seconds(from), "x", true), y);
    ctx.lineTo(u.valToPos(seconds(to), "x", true), y);
    ctx.stroke();
  }
  ctx.restore();
}

function pointed(u) {
  const at = u.cursor.idx;
  if (at === null || at === undefined || !data) return;
  const night = new Date(u.data[0][at] * 1000).toISOString().slice(0, 10);
  const value = u.data[1][at];
  const change = data.changes.find((each) => each.good < night && night <= each.bad && each.state !== "refuted");
  const told = value === null ? "no value" : `${number(value)} ${data.unit}`;
  readout.textContent = `${night}: ${told}${change ? `; ${change.kind}, ${change.state}` : ""}`;
}

function build() {
  const axis = {
    stroke: () => colour.muted,
    grid: { stroke: () => colour.line, width: 1 },
    ticks: { stroke: () => colour.line, width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
  };
  const options = {
    width: box.clientWidth,
    height: HEIGHT,
    padding: [12, 16, 0, 0],
    legend: { show: false },
    tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), "Etc/UTC"),
    cursor: { drag: { x: true, y: false } },
    scales: { y: { range: (u, min, max) => { const edge = (max - min) * 0.08 || Math.abs(max) * 0.05 || 1; return [min - edge, max + edge]; } } },
    series: [{}, { stroke: () => colour.point, width: 1, spanGaps: false, points: { show: true, size: 6, fill: () => colour.point } }],
    axes: [{ ...axis, space: 72, values: days }, { ...axis, size: 64, values: (u, ticks) => ticks.map(number) }],
    hooks: { drawAxes: [shade], draw: [levels], setCursor: [pointed] },
  };
  box.replaceChildren();
  plot = new uPlot(options, columns(), box);
  plot.over.setAttribute("tabindex", "0");
  plot.over.setAttribute("role", "application");
  plot.over.setAttribute("aria-label", "Chart of values by night. Arrow keys go from night to night, Escape shows all.");
  plot.over.addEventListener("keydown", onKey);
  readout.textContent = "Point at the chart or use the arrow keys to read values; drag to zoom, Escape shows all.";
}

function onKey(event) {
  const last = plot.data[0].length - 1;
  const at = plot.cursor.idx ?? 0;
  const goes = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last };
  if (event.key in goes) {
    event.preventDefault();
    plot.setCursor({ left: plot.valToPos(plot.data[0][goes[event.key]], "x"), top: plot.over.clientHeight / 2 });
  } else if (event.key === "Escape") {
    plot.setScale("x", { min: plot.data[0][0], max: plot.data[0][last] });
  }
}

async function load() {
  const answer = await fetch(box.dataset.url);
  if (!answer.ok) return;
  data = await answer.json();
  if (!data.points.night.length) return;
  build();
  box.dataset.nights = data.points.night.length;
}

new ResizeObserver(() => {
  if (plot !== null) plot.setSize({ width: box.clientWidth, height: HEIGHT });
}).observe(box);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colour = colours();
  if (plot !== null) plot.redraw(false);
});

load();
