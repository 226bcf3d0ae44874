// The stretch of time that all Gantt charts show together.

class View {
  constructor(end) {
    this.end = end;
    this.from = 0;
    this.to = end;
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  /** Show [from, to], kept inside the run and no finer than the data. */
  show(from, to) {
    const span = Math.min(this.end, Math.max(to - from, this.end * 1e-5));
    this.from = Math.min(Math.max(0, from), this.end - span);
    this.to = this.from + span;
    this.listeners.forEach((listener) => listener());
  }

  /** `factor` below 1 shows less; what is at `moment` stays where it is. */
  zoom(moment, factor) {
    this.show(moment - (moment - this.from) * factor, moment + (this.to - moment) * factor);
  }

  move(by) {
    this.show(this.from + by, this.to + by);
  }

  reset() {
    this.show(0, this.end);
  }

  get isWhole() {
    return this.to - this.from >= this.end * (1 - 1e-9);
  }
}

/** Wheel, drag, double click and keys on `canvas` move `view`; `axis` says where time lies. */
function control(canvas, view, axis, onSelect) {
  let drag = null;
  const momentAt = (x) => {
    const { left, width } = axis();
    return view.from + ((x - left) / width) * (view.to - view.from);
  };
  const xOf = (event) => event.clientX - canvas.getBoundingClientRect().left;

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
      view.move((sideways / axis().width) * (view.to - view.from));
    } else {
      view.zoom(momentAt(xOf(event)), Math.exp(Math.max(-120, Math.min(120, event.deltaY)) / 400));
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const x = xOf(event);
    drag = { x, moment: momentAt(x), moves: event.shiftKey };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    if (drag.moves) view.move(drag.moment - momentAt(xOf(event)));
    else onSelect([drag.x, xOf(event)]);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moves) {
      const ends = [drag.moment, momentAt(xOf(event))].sort((a, b) => a - b);
      onSelect(null);
      if (Math.abs(xOf(event) - drag.x) > 4) view.show(...ends);
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; onSelect(null); });
  canvas.addEventListener("dblclick", () => view.reset());
  canvas.addEventListener("keydown", (event) => {
    const middle = (view.from + view.to) / 2, step = (view.to - view.from) / 8;
    const keys = {
      "+": () => view.zoom(middle, 0.7), "-": () => view.zoom(middle, 1 / 0.7),
      ArrowLeft: () => view.move(-step), ArrowRight: () => view.move(step), 0: () => view.reset(),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  return () => drag !== null;
}
