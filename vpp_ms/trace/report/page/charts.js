// Line and scatter charts as SVG.

const CHART = { width: 620, height: 280, left: 66, right: 30, top: 10, bottom: 42 };

/**
 * `series`: [{colour, points: [{x, y, lines, starts}], dots}]; a point that `starts` begins a new
 * line. `lines` are what the tooltip says. `xText` and `yText` make words of all ticks.
 * `diagonal` draws x = y.
 */
function chart({ title, xLabel, yLabel, xText, yText, series, diagonal = false }) {
  const points = series.flatMap((one) => one.points);
  const xEnd = 1.03 * Math.max(...points.map((p) => p.x), 1e-12);
  const yEnd = 1.08 * Math.max(...points.map((p) => p.y), 1e-12);
  const end = diagonal ? Math.max(xEnd, yEnd) : null;
  const { width, height, left, right, top, bottom } = CHART;
  const x = (value) => left + (value / (end ?? xEnd)) * (width - left - right);
  const y = (value) => height - bottom - (value / (end ?? yEnd)) * (height - top - bottom);
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const yTicks = ticks(0, end ?? yEnd, 5), yWords = yText(yTicks);
  for (const [i, value] of yTicks.entries()) {
    svg.append(
      makeSvg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      makeSvg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, yWords[i]));
  }
  const xTicks = ticks(0, end ?? xEnd, 6), xWords = xText(xTicks);
  for (const [i, value] of xTicks.entries()) {
    svg.append(makeSvg("text", { x: x(value), y: height - bottom + 17, "text-anchor": "middle" },
      xWords[i]));
  }
  svg.append(
    makeSvg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    makeSvg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
  if (diagonal) {
    svg.append(makeSvg("line", { class: "axis", x1: x(0), y1: y(0), x2: x(end), y2: y(end) }));
  }
  // Lines that lie on each other stay visible: all but the first are dashed, each elsewhere.
  series.forEach((one, i) => drawSeries(svg, one, x, y, i ? `9 5` : "none", -6 * i));
  return make("figure", {}, make("figcaption", {}, title, make("small", {}, yLabel)), svg);
}

function drawSeries(svg, { colour, points, dots }, x, y, dashes, shift) {
  if (!dots) {
    const path = points.map((p) => `${p.starts ? "M" : "L"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`);
    svg.append(makeSvg("path", {
      d: path.join(""), fill: "none", stroke: colour, "stroke-width": 1.8,
      "stroke-dasharray": dashes, "stroke-dashoffset": shift,
    }));
  }
  for (const point of points) {
    svg.append(makeSvg("circle", {
      cx: x(point.x), cy: y(point.y), r: points.length > 80 ? 2 : 3.2, fill: colour,
      "fill-opacity": dots ? 0.55 : 1,
      onpointermove: (event) => tooltip.show(event, point.lines),
      onpointerleave: () => tooltip.hide(),
    }));
  }
}

/** Chunk sizes and chunk times over the prefix, a line per run and request. */
function chunkCharts(runs, colours) {
  const shared = { xLabel: "tokens of the request before the chunk", xText: (values) => values.map((v) => whole(v)) };
  const unit = runs[0].unit;
  const series = (valueOf) => runs.map((run, i) => ({
    colour: colours[i % colours.length], points: chunkPoints(run, valueOf),
  }));
  return [
    chart({ ...shared, title: "Chunk size", yLabel: "tokens in the micro-batch",
      yText: shared.xText, series: series((tokens) => tokens) }),
    chart({ ...shared, title: "Chunk time", yLabel: "time on one rank, on average",
      yText: (values) => timeTicks(values, unit), series: series((tokens, taken) => taken) }),
  ];
}

function chunkPoints(run, valueOf) {
  const ordered = [...run.chunks].sort((a, b) => a[1] - b[1] || a[2] - b[2]);
  return ordered.map(([microBatch, request, prefix, tokens, taken], i) => ({
    x: prefix, y: valueOf(tokens, taken), starts: i === 0 || ordered[i - 1][1] !== request,
    lines: [
      `${run.name}: micro-batch ${microBatch}`,
      `request ${run.requests[request] ?? request}: ${whole(tokens)} tokens on ${whole(prefix)}`,
      `${time(taken, run.unit)} on one rank`,
    ],
  }));
}

/** Every compute as predicted and as it was, and the run's figures both ways. */
function predictionView(run, causes, colour) {
  const other = run.prediction;
  const row = (name, a, b, text, difference = (x, y) => (y ? percent(x / y - 1) : "–")) => {
    const isKnown = a !== null && b !== null;
    const words = [name, a === null ? "–" : text(a), b === null ? "–" : text(b)];
    return make("tr", {}, ...[...words, isKnown ? difference(a, b) : "–"].map(
      (value) => make("td", {}, value)));
  };
  const points100 = (a, b) => `${whole(100 * (a - b), 1)} points`;
  const inTicks = (values) => timeTicks(values, run.unit);
  const inTime = (value) => time(value, run.unit);
  const known = causes.map((cause, i) => i).filter((i) => run.shown[i] || other.shown[i]);
  const table = make("table", { class: "comparison" },
    make("tr", {}, ...["", other.origin, run.origin, "difference"].map((t) => make("th", {}, t))),
    row("makespan", other.makespan, run.makespan, inTime),
    row("tokens/s", other.tokens_per_s, run.tokens_per_s, (v) => digits(v, 4)),
    row("bubble", other.bubble, run.bubble, percent, points100),
    row("steady bubble", other.steady, run.steady, percent, points100),
    ...known.map((i) => row(`idle: ${causes[i].name}`, other.causes[i], run.causes[i], inTime)));
  const points = run.pairs.map(([stage, microBatch, predicted, actual]) => ({
    x: predicted, y: actual, lines: [
      `stage ${stage}, micro-batch ${microBatch}`,
      `predicted ${inTime(predicted)}, ${run.origin} ${inTime(actual)}`,
    ],
  }));
  const error = run.median_error === null ? "" :
    ` Median error of one: ${percent(run.median_error)}.`;
  return make("div", {},
    make("h3", {}, run.name, " ", origin(run.origin), " against ", origin(other.origin)),
    make("p", { class: "lead" }, `${run.pairs.length} computes in both.${error}`),
    make("div", { class: "prediction" }, make("div", {}, table), make("div", { class: "charts" },
      ...(points.length ? [chart({
        title: "One dot per compute", xLabel: "predicted", yLabel: `upwards: ${run.origin}`,
        xText: inTicks, yText: inTicks, series: [{ colour, points, dots: true }], diagonal: true,
      })] : []))));
}
