// One run as a chart: a row per rank, work in plain colours, idle time hatched by cause.

const LEFT = 62, RIGHT = 92, AXIS = 24;

class Gantt {
  /** `paint` is shared by all charts: {workColour(run, stage, microBatch), byCause, causes}. */
  constructor(run, view, paint) {
    Object.assign(this, { run, view, paint, lit: null, selection: null });
    this.rows = rowsOf(run);
    this.step = run.ranks <= 8 ? 30 : run.ranks <= 16 ? 22 : run.ranks <= 32 ? 15 : 10;
    this.gap = this.step > 12 ? 4 : 2;
    this.canvas = make("canvas", {
      tabindex: 0, role: "img", "aria-label": `${run.name}, ${run.origin}: ${run.verdict}`,
    });
    this.canvas.style.height = `${run.ranks * this.step + AXIS}px`;
    const isDragging = control(
      this.canvas, view, () => ({ left: LEFT, width: this.width - LEFT - RIGHT }),
      (selection) => { this.selection = selection; this.draw(); },
    );
    this.canvas.addEventListener("pointermove", (event) => isDragging() || this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    view.onChange(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get width() {
    return this.canvas.clientWidth;
  }

  x(moment) {
    const { from, to } = this.view;
    return LEFT + ((moment - from) / (to - from)) * (this.width - LEFT - RIGHT);
  }

  draw() {
    const height = this.run.ranks * this.step + AXIS, ratio = window.devicePixelRatio || 1;
    if (!this.width) return;
    this.canvas.width = this.width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    context.textBaseline = "middle";
    this.drawAxis(context, height);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, this.width - LEFT - RIGHT, height);
    context.clip();
    for (let rank = 0; rank < this.run.ranks; rank++) {
      this.drawSpans(context, rank, this.rows[rank].idle, (row, i) => this.idleStyle(context, row, i));
      this.drawSpans(context, rank, this.rows[rank].work, (row, i) => this.workStyle(row, i));
    }
    if (this.lit !== null) this.drawPath(context);
    if (this.selection) {
      const [a, b] = this.selection;
      context.fillStyle = "rgb(47 111 181 / 22%)";
      context.fillRect(Math.min(a, b), 0, Math.abs(b - a), height - AXIS);
    }
    context.restore();
    this.drawLabels(context);
  }

  drawAxis(context, height) {
    const { from, to } = this.view, bottom = height - AXIS;
    context.textAlign = "center";
    const moments = ticks(from, to, Math.max(2, (this.width - LEFT) / 130));
    const words = timeTicks(moments, this.run.unit);
    for (const [i, moment] of moments.entries()) {
      const x = this.x(moment);
      context.fillStyle = "#e9edf1";
      context.fillRect(x, 0, 1, bottom);
      context.fillStyle = "#5b6875";
      context.fillText(words[i], x, bottom + 13);
    }
  }

  drawLabels(context) {
    for (let rank = 0; rank < this.run.ranks; rank++) {
      if (this.step < 14 && rank % 4) continue;
      const y = Math.max(7, rank * this.step + (this.step - this.gap) / 2);
      context.fillStyle = "#1c2733";
      context.textAlign = "left";
      context.fillText(`rank ${rank}`, 0, y);
      context.fillStyle = "#5b6875";
      context.textAlign = "right";
      context.fillText(`busy ${percent(this.run.busy[rank] / this.run.makespan)}`, this.width - 2, y);
    }
  }

  /** Spans of one rank that are in view; those thinner than a pixel share one. */
  drawSpans(context, rank, row, styleOf) {
    const y = rank * this.step, height = this.step - this.gap, { from, to } = this.view;
    let drawnTo = -1;
    for (let i = firstAfter(row.end, from); i < row.start.length && row.start[i] < to; i++) {
      const left = this.x(row.start[i]), right = this.x(row.end[i]), width = right - left;
      if (width < 0.7) {
        if (right <= drawnTo) continue;
        drawnTo = Math.floor(left) + 1;
      }
      const style = styleOf(row, i, width);
      context.globalAlpha = style.alpha ?? 1;
      context.fillStyle = style.fill;
      const seam = width > 4 ? 1 : 0;
      context.fillRect(left, y, Math.max(width - seam, 0.7), height);
      if (style.text && width > 6 + 7 * style.text.length && height > 11) {
        context.fillStyle = style.ink;
        context.textAlign = "center";
        const seen = (Math.max(left, LEFT) + Math.min(right, this.width - RIGHT)) / 2;
        context.fillText(style.text, seen, y + height / 2 + 0.5);
      }
    }
    context.globalAlpha = 1;
  }

  workStyle(row, i) {
    const microBatch = row.micro_batch[i];
    const fill = this.paint.workColour(this.run, row.stage[i], microBatch);
    const alpha = this.lit === null || this.lit === microBatch ? 1 : 0.35;
    return { fill, alpha, text: String(microBatch), ink: inkOn(fill) };
  }

  idleStyle(context, row, i) {
    if (!this.paint.byCause) return { fill: "#e6eaee" };
    return { fill: this.paint.hatch(context, row.cause[i]), alpha: this.lit === null ? 1 : 0.6 };
  }

  /** The way of the micro-batch under the pointer through its stages. */
  drawPath(context) {
    const spots = this.rows.flatMap((row, rank) => row.work.start
      .map((start, i) => ({ start, end: row.work.end[i], stage: row.work.stage[i], rank, i }))
      .filter(({ i }) => row.work.micro_batch[i] === this.lit))
      .sort((a, b) => a.stage - b.stage);
    const middle = (rank) => rank * this.step + (this.step - this.gap) / 2;
    context.strokeStyle = "#101820";
    context.lineWidth = 1.5;
    context.beginPath();
    spots.forEach(({ start, end, rank }, i) => {
      if (i) context.lineTo(this.x(start), middle(rank));
      context.moveTo(this.x(end), middle(rank));
    });
    context.stroke();
    for (const { start, end, rank } of spots) {
      const left = this.x(start), width = this.x(end) - left;
      context.strokeRect(left, rank * this.step, Math.max(width - 1, 1), this.step - this.gap);
    }
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const rank = Math.floor(y / this.step);
    const inside = x >= LEFT && x <= this.width - RIGHT && rank >= 0 && rank < this.run.ranks;
    const { from, to } = this.view;
    const moment = from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (to - from);
    const work = inside ? at(this.rows[rank].work, moment) : -1;
    const idle = inside && work < 0 ? at(this.rows[rank].idle, moment) : -1;
    this.light(work < 0 ? null : this.rows[rank].work.micro_batch[work]);
    if (work >= 0) tooltip.show(event, aboutWork(this.run, rank, this.rows[rank].work, work));
    else if (idle >= 0) {
      tooltip.show(event, aboutIdle(this.run, rank, this.rows[rank].idle, idle, this.paint.causes));
    } else tooltip.hide();
  }

  light(microBatch) {
    if (microBatch === this.lit) return;
    this.lit = microBatch;
    this.draw();
  }

  leave() {
    tooltip.hide();
    this.light(null);
  }
}

/** Columns of all ranks -> per rank {work, idle}, each sorted by time. */
function rowsOf(run) {
  const rows = Array.from({ length: run.ranks }, () => ({ work: null, idle: null }));
  for (const [kind, table] of [["work", run.compute], ["idle", run.idle]]) {
    for (const row of rows) {
      row[kind] = Object.fromEntries(Object.keys(table).map((name) => [name, []]));
    }
    table.rank.forEach((rank, i) => {
      for (const name of Object.keys(table)) rows[rank][kind][name].push(table[name][i]);
    });
  }
  return rows;
}

/** The first index whose value lies behind `moment`; `ends` is sorted. */
function firstAfter(ends, moment) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

function at(row, moment) {
  const index = firstAfter(row.end, moment);
  return index < row.start.length && row.start[index] <= moment ? index : -1;
}

function aboutWork(run, rank, row, i) {
  const start = row.start[i], end = row.end[i], segments = run.segments[row.micro_batch[i]] ?? [];
  const lines = segments.slice(0, 5).map(([request, from, length]) => {
    const tokens = length === 1 ? `token ${whole(from)}` :
      `${whole(length)} tokens on a prefix of ${whole(from)}`;
    return `request ${run.requests[request] ?? request}: ${tokens}`;
  });
  if (segments.length > 5) lines.push(`and ${segments.length - 5} more segments`);
  const layers = run.layers[row.stage[i]];
  if (layers) lines.push(`layers ${layers[0]} to ${layers[1] - 1}`);
  return [
    `stage ${row.stage[i]}, micro-batch ${row.micro_batch[i]}`, ...lines,
    `rank ${rank}, ${time(start, run.unit)} to ${time(end, run.unit)}: ${time(end - start, run.unit)}`,
  ];
}

function aboutIdle(run, rank, row, i, causes) {
  const cause = causes[row.cause[i]];
  const next = row.stage[i] < 0 ? "nothing more to do" :
    `next: stage ${row.stage[i]}, micro-batch ${row.micro_batch[i]}`;
  const [start, end] = [row.start[i], row.end[i]];
  return [
    `idle: ${cause.name}`, cause.words, next,
    `rank ${rank}, ${time(start, run.unit)} to ${time(end, run.unit)}: ${time(end - start, run.unit)}`,
  ];
}
