// Puts the page together from the data in it.

const data = JSON.parse(document.getElementById("data").textContent);
const { palette, runs } = data;
const byId = (id) => document.getElementById(id);

/** Every chart: a run, followed by what was predicted of it. */
const charted = runs.flatMap((run) => (run.prediction ? [run, run.prediction] : [run]));
const present = palette.causes.filter((_, i) => charted.some((run) => run.shown[i]));
const view = new View(Math.max(...charted.map((run) => run.makespan)));

const colourings = {
  stage: {
    of: (run, stage) => palette.sweeps[Math.floor(stage / run.ranks) % palette.sweeps.length],
    legend: () => sweepLegend(Math.max(...charted.map((run) => run.stages / run.ranks))),
  },
  request: {
    of: (run, stage, microBatch) => {
      const segments = run.segments[microBatch] ?? [];
      const requests = new Set(segments.map(([request]) => request));
      if (requests.size !== 1) return palette.packed;
      return palette.requests[segments[0][0] % palette.requests.length];
    },
    legend: requestLegend,
  },
  prefix: {
    of: (run, stage, microBatch) => {
      const before = Math.max(0, ...(run.segments[microBatch] ?? []).map(([, start]) => start));
      return mix(...palette.prefix, before / longestPrefix());
    },
    legend: () => [0, 0.5, 1].map((share) => legendEntry(
      mix(...palette.prefix, share), `${whole(share * longestPrefix())} tokens before it`)),
  },
};

const paint = {
  colouring: "stage",
  byCause: true,
  causes: palette.causes,
  workColour: (run, stage, microBatch) => colourings[paint.colouring].of(run, stage, microBatch),
  hatch: hatchMaker(),
};

function longestPrefix() {
  longestPrefix.known ??= charted.reduce((most, run) => run.segments.reduce(
    (longest, row) => row.reduce((a, [, start]) => Math.max(a, start), longest), most), 1);
  return longestPrefix.known;
}

function sweepLegend(sweeps) {
  if (sweeps <= 1) return [legendEntry(palette.sweeps[0], "work: one stage per rank")];
  const words = ["first", "second", "third", "fourth", "fifth", "sixth"];
  return Array.from({ length: sweeps }, (_, i) => legendEntry(
    palette.sweeps[i % palette.sweeps.length], `${words[i] ?? i + 1} sweep over the ranks`));
}

function requestLegend() {
  const names = charted.reduce((most, run) => (
    run.requests.length > most.length ? run.requests : most), []);
  const shown = names.slice(0, 12).map((name, i) => legendEntry(
    palette.requests[i % palette.requests.length], `request ${name}`));
  if (names.length > 12) shown.push(`and ${names.length - 12} more`);
  return [...shown, legendEntry(palette.packed, "several requests, or not recorded")];
}

/** A hatched canvas pattern per cause, made once. */
function hatchMaker() {
  const made = new Map();
  return (context, cause) => {
    if (!made.has(cause)) made.set(cause, context.createPattern(hatchTile(palette.causes[cause].colour), "repeat"));
    return made.get(cause);
  };
}

function hatchTile(colour) {
  const tile = make("canvas", { width: 8, height: 8 });
  const context = tile.getContext("2d");
  context.fillStyle = mix(colour, "#ffffff", 0.55);
  context.fillRect(0, 0, 8, 8);
  context.strokeStyle = colour;
  context.lineWidth = 3;
  context.beginPath();
  for (const shift of [-8, 0, 8]) {
    context.moveTo(shift - 2, 10);
    context.lineTo(shift + 10, -2);
  }
  context.stroke();
  return tile;
}

function drawHead() {
  const origins = [...new Set(charted.map((run) => run.origin))];
  const names = runs.map((run) => run.name).join(", ");
  byId("summary").append(...origins.flatMap((name) => [origin(name), " "]), names);
  document.title = `vpp_ms report: ${names}`;
  byId("causes").append(legendEntry(palette.sweeps[0], "work"),
    ...present.map((cause) => legendEntry(hatched(cause.colour), cause.name, cause.words)));
  const rounds = [...new Set(runs.filter(isMedian).map((run) => run.rounds))];
  if (rounds.length) {
    byId("bars-lead").append(` Figures of a comparison are medians of ${rounds.join(" and ")} `
      + "rounds; the bars, and the small figures, are of the newest round.");
  }
  byId("bars").append(barTable(runs, palette.causes, palette.sweeps[0]));
  byId("definitions").append(...palette.causes.flatMap((cause) => [
    make("dt", {}, cause.name), make("dd", {}, cause.words)]));
}

function drawGantts() {
  const gantts = charted.map((run) => new Gantt(run, view, paint));
  const redraw = () => {
    gantts.forEach((gantt) => gantt.draw());
    byId("colours").replaceChildren(...colourings[paint.colouring].legend(),
      ...present.map((cause) => legendEntry(hatched(cause.colour), cause.name, cause.words)));
  };
  byId("runs").append(...gantts.map(({ run, canvas }) => make("div", { class: "run" },
    make("h3", {}, run.name, origin(run.origin)),
    make("p", {}, `${run.layout}, makespan ${time(run.makespan, run.unit)}, ${run.verdict}`
      + (run.assumptions ? `; ${run.assumptions}` : "")),
    canvas)));
  for (const name of Object.keys(colourings)) {
    byId("colouring").append(make("button", {
      type: "button", "aria-pressed": name === paint.colouring,
      onclick: (event) => {
        paint.colouring = name;
        for (const button of byId("colouring").children) button.setAttribute("aria-pressed", false);
        event.currentTarget.setAttribute("aria-pressed", true);
        redraw();
      },
    }, `by ${name}`));
  }
  byId("by-cause").addEventListener("change", (event) => {
    paint.byCause = event.target.checked;
    redraw();
  });
  byId("reset").addEventListener("click", () => view.reset());
  const unit = charted[0].unit;
  view.onChange(() => {
    byId("range").value = view.isWhole ? "" : timeTicks([view.from, view.to], unit).join(" to ");
  });
  redraw();
}

function drawCharts() {
  const known = runs.filter((run) => run.chunks.length);
  if (known.length) {
    byId("chunk-legend").append(...known.map((run, i) => legendEntry(
      palette.runs[i % palette.runs.length], `${run.name} (${run.origin})`)));
    byId("chunk-charts").append(...chunkCharts(known, palette.runs));
  } else byId("chunks").remove();
  const predicted = runs.filter((run) => run.prediction);
  if (predicted.length) {
    byId("predictions").append(...predicted.map((run, i) => predictionView(
      run, palette.causes, palette.runs[i % palette.runs.length])));
  } else byId("predicted").remove();
}

drawHead();
drawGantts();
drawCharts();
