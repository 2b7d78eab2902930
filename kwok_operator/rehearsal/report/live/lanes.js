"use strict";
/* The lanes of report.html: a row for each node, with its pods. Only the rows that are seen are
 * drawn. report.js, in the same script, has what is used of the page: charts, colours, picking. */
const ROW = 22,
  AXIS = 20;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/* Gives each pod of a node a place, so that no two at the same time share one. */
function places(pods, of) {
  const ends = [];
  of.sort((a, b) => pods.bound[a] - pods.bound[b]);
  const tracks = of.map((pod) => {
    let place = ends.findIndex((end) => end <= pods.bound[pod]);
    if (place < 0) place = ends.push(0) - 1;
    ends[place] = pods.ended[pod] ?? Infinity;
    return place;
  });
  return { of, place: tracks, count: ends.length };
}

async function makeLanes() {
  const box = document.getElementById("rows");
  if (!box) return;
  const { groups, workloads, nodes, pods, colours } = await unpack(read("lanes"));
  const colour = (n) => colours[n % colours.length];
  // A group has its colour in the charts, if it is in them.
  const lineOf = (group) => run.plots[0].lines.find((line) => line.of === `group:${group}`);
  const shades = groups.map((group) => lineOf(group)?.colour ?? "#848d97");
  const order = nodes.name.map((_, n) => n);
  order.sort((a, b) => nodes.group[a] - nodes.group[b] || nodes.came[a] - nodes.came[b]);
  const rowOf = [];
  order.forEach((node, row) => {
    rowOf[node] = row;
  });
  const podsOf = nodes.name.map(() => []);
  pods.node.forEach((node, pod) => podsOf[node].push(pod));
  const slots = [];
  const slotsOf = (node) => (slots[node] ??= places(pods, podsOf[node]));
  const end = (pod) =>
    Math.min(pods.ended[pod] ?? Infinity, nodes.gone[pods.node[pod]] ?? Infinity, run.until * 10);
  const nodeSubjects = (node) => [`node:${nodes.name[node]}`, `group:${groups[nodes.group[node]]}`];
  const podSubjects = (pod) => [
    `pod:${pods.name[pod]}`,
    `workload:${workloads[pods.workload[pod]]}`,
  ];

  const scroller = element("div", {
    class: "rows",
    tabindex: "0",
    role: "group",
    "aria-label":
      "Nodes, a row each, with their pods. Up and down go from node to node, Enter marks one.",
  });
  const canvas = element("canvas", { "aria-hidden": "true" });
  const spacer = element("div");
  const description = element(
    "p",
    { class: "said", "aria-live": "polite" },
    "Light: the node is there; darker: it is ready; dashed: its instance was requested. Bars: pods, by workload; light until they run.",
  );
  const find = element("input", {
    class: "find",
    type: "search",
    placeholder: "Find a node or a pod",
    "aria-label": "Find a node or a pod",
  });
  scroller.append(canvas, spacer);
  box.replaceChildren(find, scroller, description);
  const ctx = canvas.getContext("2d");
  let width = 0,
    height = 0,
    current = -1,
    waiting = false;
  const scale = () => (charts.length ? charts[0].scales.x : { min: 0, max: run.until });
  const labels = () => Math.min(190, Math.round(width * 0.32));
  const toX = (tenths) => {
    const { min, max } = scale();
    return labels() + ((tenths / 10 - min) / (max - min)) * (width - labels() - 6);
  };
  const toT = (x) => {
    const { min, max } = scale();
    return min + ((x - labels()) / (width - labels() - 6)) * (max - min);
  };

  function resize() {
    width = scroller.clientWidth;
    height = Math.min(440, order.length * ROW + AXIS);
    canvas.width = width * pxRatio();
    canvas.height = height * pxRatio();
    canvas.style.height = `${height}px`;
    spacer.style.height = `${Math.max(order.length * ROW + AXIS - height, 0)}px`;
    draw(); // a new size empties the canvas: a frame later would be a flicker
  }
  function paint() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }
  function block(from, to, y, high, fill) {
    const x = Math.max(toX(from), labels()),
      right = Math.min(toX(to), width - 6);
    if (right < labels() || x > width - 6) return null;
    ctx.fillStyle = fill;
    ctx.fillRect(x, y, Math.max(right - x, 1), high);
    return [x, y, Math.max(right - x, 1), high];
  }
  function drawNode(node, y) {
    const shade = shades[nodes.group[node]],
      until = nodes.gone[node] ?? run.until * 10;
    const [on, ofGroup] = nodeSubjects(node).map((each) => picked.has(each));
    if (on || node === order[current]) {
      ctx.fillStyle = css(on ? "--pick" : "--card");
      ctx.fillRect(0, y, width, ROW);
    }
    if (nodes.requested[node] !== null && nodes.requested[node] < nodes.came[node]) {
      const [from, to] = [toX(nodes.requested[node]), toX(nodes.came[node])].map((x) =>
        Math.min(Math.max(x, labels()), width - 6),
      );
      ctx.strokeStyle = shade;
      ctx.setLineDash([3, 3]);
      ctx.beginPath();
      ctx.moveTo(from, y + ROW / 2);
      ctx.lineTo(to, y + ROW / 2);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    if (nodes.came[node] !== null)
      block(nodes.came[node], until, y + 2, ROW - 4, faded(shade, 0.12));
    const turns = nodes.turns[node];
    for (let n = 0; n < turns.length; n += 2)
      block(
        turns[n],
        Math.min(turns[n + 1] ?? Infinity, until),
        y + 2,
        ROW - 4,
        faded(shade, 0.22),
      );
    const { of, place, count } = slotsOf(node),
      high = (ROW - 6) / Math.max(count, 1);
    of.forEach((pod, n) => {
      const top = y + 3 + place[n] * high,
        bar = Math.max(high - (high > 3 ? 1 : 0), 0.5);
      const paintIn = colour(pods.workload[pod] + 1),
        runs = pods.running[pod] ?? Infinity;
      const over = picked.size && podSubjects(pod).some((each) => picked.has(each));
      block(pods.bound[pod], Math.min(runs, end(pod)), top, bar, faded(paintIn, 0.45));
      if (runs <= end(pod)) block(runs, end(pod), top, bar, faded(paintIn, 0.95));
      if (over) {
        const frame = block(pods.bound[pod], end(pod), top, bar, "#0000");
        ctx.strokeStyle = css("--fg");
        ctx.lineWidth = 2;
        if (frame) ctx.strokeRect(...frame);
        ctx.lineWidth = 1;
      }
    });
    if (ofGroup) {
      ctx.fillStyle = css("--pick");
      ctx.fillRect(0, y, labels() - 4, ROW);
    }
    ctx.fillStyle = css("--fg");
    ctx.fillText(fitting(nodes.name[node], labels() - 14), 8, y + 15);
  }
  /* Names of nodes differ at their ends. */
  function fitting(name, room) {
    if (ctx.measureText(name).width <= room) return name;
    let from = 1;
    while (from < name.length && ctx.measureText(`…${name.slice(from)}`).width > room) from += 1;
    return `…${name.slice(from)}`;
  }
  function draw() {
    ctx.setTransform(pxRatio(), 0, 0, pxRatio(), 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = "12px system-ui, sans-serif";
    const top = scroller.scrollTop,
      first = Math.floor(top / ROW);
    const last = Math.min(order.length, Math.ceil((top + height - AXIS) / ROW));
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, 0, width, height - AXIS);
    ctx.clip();
    for (const [from, to] of spans) block(from * 10, to * 10, 0, height, css("--pick"));
    for (let row = first; row < last; row += 1) drawNode(order[row], row * ROW - top);
    ctx.restore();
    drawAxis();
  }
  function drawAxis() {
    const { min, max } = scale(),
      most = Math.max((width - labels()) / 90, 1);
    const step = INCREMENTS.find((each) => (max - min) / each <= most) ?? max - min;
    ctx.fillStyle = css("--bg");
    ctx.fillRect(0, height - AXIS, width, AXIS);
    ctx.fillStyle = css("--soft");
    for (let t = Math.ceil(min / step) * step; t <= max + step / 1e6; t += step) {
      const x = toX(t * 10);
      ctx.textAlign = x - labels() < 20 ? "left" : width - x < 30 ? "right" : "center";
      ctx.fillText(inTime(t), x, height - 6);
    }
    ctx.textAlign = "left";
    if (cursorAt === null || cursorAt < min || cursorAt > max) return;
    ctx.strokeStyle = css("--soft");
    ctx.setLineDash([4, 3]);
    ctx.beginPath();
    ctx.moveTo(toX(cursorAt * 10), 0);
    ctx.lineTo(toX(cursorAt * 10), height - AXIS);
    ctx.stroke();
    ctx.setLineDash([]);
  }
  const moment = (tenths) => inTime(Math.max(tenths, 0) / 10);
  function sayNode(node) {
    const parts = [
      `Node ${nodes.name[node]}`,
      groups[nodes.group[node]] && `of ${groups[nodes.group[node]]}`,
    ];
    if (nodes.requested[node] !== null) parts.push(`requested at ${moment(nodes.requested[node])}`);
    const came = nodes.came[node];
    parts.push(
      came === null
        ? "not seen while it had pods"
        : came < 0
          ? "there before the run"
          : `came at ${moment(came)}`,
    );
    nodes.turns[node].forEach((turn, n) =>
      parts.push(`${n % 2 ? "not ready" : "ready"} at ${moment(turn)}`),
    );
    if (nodes.gone[node] !== null) parts.push(`gone at ${moment(nodes.gone[node])}`);
    const { of } = slotsOf(node),
      names = of.slice(0, 10).map((pod) => pods.name[pod]);
    parts.push(
      `${of.length} pods${of.length ? `: ${names.join(", ")}` : ""}${of.length > 10 ? " and others" : ""}`,
    );
    description.textContent = `${parts.filter(Boolean).join(", ")}.`;
  }
  function sayPod(pod) {
    const parts = [
      `Pod ${pods.name[pod]}`,
      `on ${nodes.name[pods.node[pod]]}`,
      pods.created[pod] < 0 ? "there before the run" : `created at ${moment(pods.created[pod])}`,
      `bound at ${moment(pods.bound[pod])}`,
    ];
    if (pods.running[pod] !== null) parts.push(`ran from ${moment(pods.running[pod])}`);
    if (pods.ended[pod] !== null) parts.push(`ended at ${moment(pods.ended[pod])}`);
    description.textContent = `${parts.join(", ")}.`;
  }
  function hit(event) {
    const area = canvas.getBoundingClientRect(),
      x = event.clientX - area.left,
      y = event.clientY - area.top;
    const row = Math.floor((y + scroller.scrollTop) / ROW);
    if (y > height - AXIS || row >= order.length) return {};
    const node = order[row],
      { of, place, count } = slotsOf(node),
      t = toT(x) * 10;
    const at = Math.floor(
      (((y + scroller.scrollTop) % ROW) - 3) / ((ROW - 6) / Math.max(count, 1)),
    );
    const pod =
      x < labels()
        ? undefined
        : of.find((each, n) => place[n] === at && pods.bound[each] <= t && t <= end(each));
    return { row, node, pod, t: x < labels() ? null : t / 10 };
  }
  function show(node) {
    current = rowOf[node];
    const top = current * ROW;
    if (top < scroller.scrollTop || top > scroller.scrollTop + height - AXIS - ROW)
      scroller.scrollTop = Math.max(top - height / 2, 0);
    sayNode(node);
    paint();
  }
  canvas.addEventListener("mousemove", (event) => {
    const { node, pod, t } = hit(event);
    if (node === undefined) return;
    if (pod === undefined) sayNode(node);
    else sayPod(pod);
    if (t !== null) charts.forEach((u) => u.setCursor({ left: u.valToPos(t, "x"), top: 10 }));
  });
  canvas.addEventListener("click", (event) => {
    const { node, pod } = hit(event);
    if (node === undefined) return;
    current = rowOf[node];
    pick([pod === undefined ? nodeSubjects(node)[0] : podSubjects(pod)[0]]);
  });
  scroller.addEventListener("scroll", paint);
  scroller.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (event.key === "Enter" && current >= 0) pick([nodeSubjects(order[current])[0]]);
    if (!step) return;
    event.preventDefault();
    show(order[Math.min(Math.max(current + step, 0), order.length - 1)]);
  });
  find.addEventListener("input", () => {
    const wanted = find.value.trim();
    if (!wanted) return;
    const pod = pods.name.findIndex((name) => name.includes(wanted));
    const node = nodes.name.findIndex((name) => name.includes(wanted));
    if (node >= 0) show(node);
    else if (pod >= 0) {
      show(pods.node[pod]);
      sayPod(pod);
    } else description.textContent = `No node and no pod here has ${wanted} in its name.`;
  });
  lanes = {
    paint,
    /* From when to when a picked pod or node was there; also scrolls to the first of them. */
    spans(subjects) {
      const times = [];
      if (!subjects.size) return times;
      const pod = pods.name.findIndex((name) => subjects.has(`pod:${name}`));
      const node = nodes.name.findIndex((name) => subjects.has(`node:${name}`));
      if (pod >= 0) {
        times.push([pods.created[pod] / 10, end(pod) / 10]);
        show(pods.node[pod]);
        sayPod(pod);
      }
      if (node >= 0) {
        times.push([nodes.came[node] / 10, (nodes.gone[node] ?? run.until * 10) / 10]);
        show(node);
      }
      return times.map(([from, to]) => [Math.max(from, 0), to]);
    },
  };
  repaints.push(paint);
  new ResizeObserver(resize).observe(scroller);
  resize();
}
