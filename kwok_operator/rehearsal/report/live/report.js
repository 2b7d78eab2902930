/* Makes report.html alive: charts with one cursor (uPlot), and picking, which marks a thing in all
 * rows, charts and lanes. The page has all figures without this; nothing is computed here. Names
 * come from a recording and may be anything: they only ever become text. */
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const run = read("run");
const pxRatio = () => devicePixelRatio || 1;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const element = (tag, attributes, text) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const inTime = (t) => {
  const whole = Math.floor(t),
    two = (n) => String(n).padStart(2, "0");
  if (t < 60) return `${+t.toFixed(1)} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))} h`;
};
const INCREMENTS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400,
  172800, 604800, 2592000,
];

/* ---- Picking: one thing at a time, marked in all rows, charts and lanes. ---- */

const rows = [...document.querySelectorAll("tr[data-is]")].map((row) => {
  const list = (name) => JSON.parse(row.dataset[name] || "[]");
  const from = row.dataset.from === undefined ? null : +row.dataset.from;
  return {
    row,
    is: list("is"),
    all: [...list("is"), ...list("of")],
    from,
    to: +(row.dataset.to ?? from),
  };
});
let picked = new Set(),
  spans = [],
  lanes = null;
const repaints = [];
const repaint = () => repaints.forEach((paint) => paint());
const bar = element("div", { id: "picked", role: "status" });
document.querySelector("main").append(bar);

/* A subject such as `pod:default/web-1` in words; a row without a name by its first cells. */
function words(subject, row) {
  const kind = subject.slice(0, subject.indexOf(":")),
    name = subject.slice(kind.length + 1);
  if (!row || !/^(call|claims|mark)$/.test(kind)) return `${kind} ${name}`;
  return [...row.cells]
    .slice(0, 4)
    .map((cell) => cell.textContent)
    .filter(Boolean)
    .join(" · ");
}

function pick(subjects) {
  const again = subjects.length && subjects.every((each) => picked.has(each));
  picked = new Set(again ? [] : subjects);
  spans = [];
  let first = null,
    count = 0;
  for (const each of rows) {
    const on = each.all.some((subject) => picked.has(subject));
    each.row.classList.toggle("picked", on);
    if (on) each.row.setAttribute("aria-current", "true");
    else each.row.removeAttribute("aria-current");
    if (!on) continue;
    first ??= each.row;
    count += 1;
    if (each.from !== null) spans.push([each.from, each.to]);
  }
  spans.push(...(lanes ? lanes.spans(picked) : []));
  bar.replaceChildren();
  if (picked.size) {
    const places = ["", " (1 row)"][count] ?? ` (${count} rows)`;
    bar.append(`Marked: ${[...picked].map((each) => words(each, first)).join(", ")}${places}`);
    const button = (text, does) => {
      const made = element("button", { type: "button" }, text);
      made.addEventListener("click", does);
      bar.append(made);
    };
    if (first) button("Show the first row", () => first.scrollIntoView({ block: "center" }));
    button("Clear", () => pick([]));
  }
  repaint();
}
for (const { row, is } of rows) {
  row.tabIndex = row.previousElementSibling ? -1 : 0; // one stop a table, then arrows
  row.addEventListener("click", (event) => {
    if (getSelection().isCollapsed && !event.target.closest("details")) pick(is);
  });
  row.addEventListener("keydown", (event) => {
    const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling };
    if (event.target !== row || !(["Enter", " "].includes(event.key) || next[event.key])) return;
    event.preventDefault();
    if (next[event.key]) next[event.key].focus();
    else pick(is);
  });
}
addEventListener("keydown", (event) => event.key === "Escape" && pick([]));

/* ---- Charts. ---- */

const SHADES = { "": 0.9, faint: 0.5, fainter: 0.22, failing: 0.7 };
const REQUESTS = [
  ["up", "--good", 2],
  ["failed", "--bad", 2],
  ["down", "--bad", 12],
  ["back", "--soft", 22],
];
const charts = [];
let cursorAt = null;
const faded = (colour, share) => {
  const byte = Math.round(share * 255)
    .toString(16)
    .padStart(2, "0");
  return colour.startsWith("#") ? colour + byte : colour;
};
const shadeOf = (line) => (line.over ? css("--fg") : faded(line.colour, SHADES[line.shade]));
const short = (value) => (value >= 1000 ? `${value / 1000}k` : String(+value.toPrecision(6)));
const said = (plot, value) => {
  if (value === null || value === undefined) return "none";
  return plot.percent
    ? `${(value * 100).toFixed(1)} %`
    : (+value.toPrecision(6)).toLocaleString("en");
};

/* A sample holds until the next one: returns the last one that is not after `t`. */
function sampleAt(t) {
  const after = run.times.findIndex((each) => each > t);
  return after < 0 ? run.times.length - 1 : Math.max(after - 1, 0);
}
function valueAt(line, t) {
  const i = sampleAt(t),
    [from, to] = run.times.slice(i, i + 2),
    [value, next] = line.values.slice(i, i + 2);
  return line.smooth && to > from && t > from
    ? value + ((next - value) * (t - from)) / (to - from)
    : value;
}
const cursorTime = (u) => u.posToVal(u.cursor.left, "x");

/* Returns each line with the sums of all lines up to it; lines that lie over the areas last. */
function stacked(plot) {
  let below = null;
  return plot.lines.map((line) => {
    if (!plot.stacked || line.over) return line.values;
    below = line.values.map((value, i) => value + (below ? below[i] : 0));
    return below;
  });
}

function series(plot) {
  return plot.lines.map((line) => {
    const area = plot.stacked && !line.over;
    const stroke = line.over ? css("--fg") : line.colour;
    return {
      label: line.name,
      stroke: area ? faded(line.colour, 0.01) : faded(stroke, line.wide ? 0.4 : 1),
      width: area ? 0 : line.wide ? 6 : line.over ? 1.5 : 2,
      dash: line.over ? [5, 3] : undefined,
      paths: line.smooth ? uPlot.paths.linear() : uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
      value: (u, value, at, i) =>
        said(plot, valueAt(line, i === null || i === undefined ? run.until : cursorTime(u))),
    };
  });
}

/* Areas lie between a line and the one below it, so that none hides another. */
function paintAreas(u, plot, data) {
  if (!plot.stacked) return;
  const { ctx } = u;
  let below = null;
  const zero = u.valToPos(0, "y", true);
  const some = plot.lines.some((line) => picked.has(line.of));
  const places = run.times.map((t) => u.valToPos(t, "x", true));
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  plot.lines.forEach((line, n) => {
    if (line.over) return;
    const heights = data[n].map((value) => u.valToPos(value, "y", true));
    const bottoms = below || heights.map(() => zero);
    ctx.beginPath();
    for (const corner of [...steps(places, heights), ...steps(places, bottoms).reverse()])
      ctx.lineTo(...corner);
    ctx.closePath();
    ctx.fillStyle = faded(
      line.colour,
      SHADES[line.shade] * (some && !picked.has(line.of) ? 0.5 : 1),
    );
    ctx.fill();
    below = heights;
  });
  ctx.restore();
}
/* The corners of a line in steps. */
const steps = (xs, ys) =>
  xs.flatMap((x, i) =>
    i
      ? [
          [x, ys[i - 1]],
          [x, ys[i]],
        ]
      : [[x, ys[i]]],
  );

/* When what is picked was there, under the lines of a chart. */
function paintSpans(u) {
  const { ctx } = u,
    ratio = pxRatio(),
    { left, top, width, height } = u.bbox,
    right = left + width;
  ctx.save();
  ctx.fillStyle = css("--pick");
  for (const span of spans) {
    const [from, to] = span.map((t) =>
      Math.min(Math.max(u.valToPos(t, "x", true), left - 3), right + 3),
    );
    if (to >= left && from <= right) ctx.fillRect(from - ratio, top, to - from + 2 * ratio, height);
  }
  ctx.restore();
}

/* What was done and requested, over a chart. */
function paintMarks(u) {
  const { ctx } = u,
    ratio = pxRatio();
  const { left, top, width, height } = u.bbox,
    bottom = top + height;
  const at = (t) => u.valToPos(Math.min(t, run.until), "x", true);
  const seen = (x) => x >= left - 1 && x <= left + width + 1;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  let shownAt = -100;
  run.marks.forEach((t, n) => {
    const x = Math.round(at(t)),
      on = picked.has(`mark:${n + 1}`);
    if (!seen(x)) return;
    ctx.strokeStyle = ctx.fillStyle = css(on ? "--fg" : "--soft");
    ctx.lineWidth = (on ? 2 : 1) * ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
    if (x - shownAt > 14 * ratio) {
      ctx.fillText(String(n + 1), x, top - 4 * ratio);
      shownAt = x;
    }
  });
  ctx.lineWidth = ratio;
  ctx.setLineDash([]);
  for (const [way, colour, below] of REQUESTS) {
    ctx.fillStyle = ctx.strokeStyle = css(colour);
    const up = way === "up" || way === "failed";
    const tip = bottom + (up ? below : below + 8) * ratio;
    const foot = bottom + (up ? below + 8 : below) * ratio;
    for (const t of run.asked[way]) {
      const x = at(t);
      if (!seen(x)) continue;
      ctx.beginPath();
      ctx.moveTo(x, tip);
      ctx.lineTo(x + 4 * ratio, foot);
      ctx.lineTo(x - 4 * ratio, foot);
      ctx.closePath();
      if (way === "failed") ctx.stroke();
      else ctx.fill();
    }
  }
  ctx.restore();
}

/* A click picks the mark or the autoscaler's call at this place, or else the group below it. */
function clicked(u, plot, data) {
  const { left, top } = u.cursor;
  if (left < 0 || u.select.width > 0) return;
  const near = (t) => Math.abs(u.valToPos(t, "x") - left);
  const mark = run.marks.findIndex((t) => near(t) < 6);
  if (mark >= 0) return pick([`mark:${mark + 1}`]);
  const value = u.posToVal(top, "y"),
    i = sampleAt(cursorTime(u));
  const line =
    plot.stacked && plot.lines.find((each, n) => !each.over && each.of && data[n][i] >= value);
  if (line) return pick([line.of]);
  const call = rows.find(
    (each) => /^(call|claims|event):/.test(each.is[0] || "") && near(each.from) < 6,
  );
  if (call) pick(call.is);
}

function chart(figure, plot) {
  const data = stacked(plot);
  const whole = plot.counts
    ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6]
    : undefined;
  const axis = {
    stroke: () => css("--soft"),
    grid: { stroke: () => css("--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  const u = new uPlot(
    {
      width: figure.clientWidth - 16,
      height: 226,
      padding: [14, 26, 0, 0],
      cursor: {
        sync: { key: "run", scales: ["x", null] },
        drag: { x: true, y: false, setScale: true },
        y: false,
        points: { show: false },
        dataIdx: (u, s, closest, t) => sampleAt(t),
      },
      scales: {
        x: {
          time: false,
          range: (_, low, high) =>
            low === null || low === high ? [0, Math.max(run.until, 0.001)] : [low, high],
        },
        y: {
          range: (_, low, high) => [
            0,
            plot.percent ? Math.max(high || 0, 1) * 1.02 : (high || 1) * 1.05,
          ],
        },
      },
      legend: { markers: { width: 0, fill: (_, n) => (n ? shadeOf(plot.lines[n - 1]) : null) } },
      axes: [
        {
          ...axis,
          size: 56,
          gap: 32,
          space: 70,
          values: (_, ticks) => ticks.map(inTime),
          incrs: INCREMENTS,
        },
        {
          ...axis,
          size: 48,
          incrs: whole,
          values: (_, ticks) =>
            ticks.map((tick) => (plot.percent ? `${+(tick * 100).toFixed(1)} %` : short(tick))),
        },
      ],
      series: [
        {
          label: "at",
          value: (_, t, at, i) => (t === null || t === undefined ? "the end" : inTime(cursorTime(u))),
        },
        ...series(plot),
      ],
      hooks: {
        drawAxes: [paintSpans, (u) => paintAreas(u, plot, data)],
        draw: [paintMarks],
        setScale: [(_, name) => name === "x" && lanes && lanes.paint()],
        setCursor: [
          (u) => {
            cursorAt = u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x");
            u.setLegend(null, false); // the cursor's time, and values between two samples
            if (lanes) lanes.paint();
          },
        ],
      },
    },
    [run.times, ...data],
    figure,
  );
  u.ctx.canvas.setAttribute("role", "img");
  u.ctx.canvas.setAttribute("aria-label", plot.title);
  u.over.addEventListener("click", () => clicked(u, plot, data));
  const legend = u.root.querySelector(".u-legend");
  legend.querySelectorAll(".u-series").forEach((row, n) => {
    const line = plot.lines[n - 1];
    row.title = line ? line.name : "";
    row.addEventListener(
      "click",
      (event) => {
        event.stopPropagation();
        if (line && line.of) pick([line.of]);
      },
      true,
    );
  });
  charts.push(u);
  new ResizeObserver(() => u.setSize({ width: figure.clientWidth - 16, height: 226 })).observe(
    figure,
  );
  repaints.push(() => u.redraw(false));
}

async function start() {
  if (typeof uPlot === "undefined") return; // the pictures stay
  document.querySelectorAll("#plots figure").forEach((figure, n) => chart(figure, run.plots[n]));
  document.documentElement.classList.add("live");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  await makeLanes();
  document.documentElement.dataset.alive = "yes";
}
start();
