// All runs in one table: a bar of work and idle time by cause, and the figures beside it.

function barTable(runs, causes, workColour) {
  const longest = Math.max(...runs.map((run) => run.makespan));
  const least = (key) => Math.min(...runs.map((run) => figure(run, key) ?? Infinity));
  const best = { makespan_s: least("makespan_s"), bubble_ratio: least("bubble_ratio") };
  best.tokens_per_s = Math.max(...runs.map((run) => figure(run, "tokens_per_s") ?? 0));
  const cell = (run, key, text) => {
    const value = figure(run, key), own = ownFigure(run, key), words = (v) => (v === null ? "–" : text(v));
    const isBest = runs.length > 1 && value === best[key];
    return make("td", isBest ? { class: "best" } : {}, words(value),
      ...(isMedian(run) ? [make("small", {}, words(own))] : []));
  };
  const heads = ["", "", "makespan", "tokens/s", "bubble", "steady bubble"];
  return make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", {}, text)))),
    make("tbody", {}, ...runs.map((run) => make("tr", {},
      make("td", {}, make("b", {}, run.name), " ", origin(run.origin), make("small", {}, run.layout)),
      make("td", { class: "picture" }, bar(run, longest, causes, workColour),
        make("small", {}, run.verdict)),
      cell(run, "makespan_s", (value) => time(value, run.unit)),
      cell(run, "tokens_per_s", (value) => digits(value, 4)),
      cell(run, "bubble_ratio", percent),
      cell(run, "bubble_ratio_steady", percent)))));
}

/** A comparison's median where there is one, else the run's own. */
function figure(run, key) {
  return isMedian(run) && run.median[key] !== undefined ? run.median[key] : ownFigure(run, key);
}

function isMedian(run) {
  return run.median !== null && run.rounds > 1;
}

function ownFigure(run, key) {
  const own = {
    makespan_s: run.makespan, tokens_per_s: run.tokens_per_s, bubble_ratio: run.bubble,
    bubble_ratio_steady: run.steady,
  };
  return own[key] ?? null;
}

function bar(run, longest, causes, workColour) {
  const whole = run.ranks * longest, own = run.ranks * run.makespan;
  const busy = run.busy.reduce((a, b) => a + b, 0);
  const piece = (value, background, name, words) => make("i", {
    style: { width: `${(100 * value) / whole}%`, background },
    onpointermove: (event) => tooltip.show(event, [
      `${name}: ${percent(value / own)}`, words,
      `${time(value, run.unit)} summed over ${run.ranks} ranks`,
    ]),
    onpointerleave: () => tooltip.hide(),
  });
  const work = piece(busy, workColour, "work", "a rank computes a stage");
  work.append(make("b", {}, `work ${percent(busy / own)}`));
  return make("div", { class: "bar" }, work, ...causes
    .map((cause, i) => [run.causes[i], cause, run.shown[i]])
    .filter(([, , isShown]) => isShown)
    .map(([value, cause]) => piece(value, hatched(cause.colour), cause.name, cause.words)));
}
