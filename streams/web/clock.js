// Frames against the clock: each a bar at its place in media time, as high as it was early.

const SECONDS_SEEN = 9;
const PLAYHEAD_AT = 0.45; // of the width
const MAX_EARLY_S = 2.2;
const MAX_LATE_S = 0.3; // as much as is drawn
const FONT = "12px system-ui, sans-serif";

export class Clock {
  #canvas;
  #frames = [];

  constructor(canvas) {
    this.#canvas = canvas;
  }

  clear() {
    this.#frames = [];
  }

  /** A frame that begins at `start` and lasts `length` seconds came `early` seconds before it was
   * needed; below 0 it was late. */
  add(start, length, early) {
    this.#frames.push({ start, length, early });
  }

  /** What lies behind this moment will not be heard. */
  cut(seconds) {
    this.#frames = this.#frames.filter(({ start }) => start < seconds);
  }

  /** With the playhead at `heard` seconds. */
  draw(heard) {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = devicePixelRatio;
    this.#canvas.width = width * scale;
    this.#canvas.height = height * scale;
    const context = this.#canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = FONT;
    const style = getComputedStyle(this.#canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`);

    const due = height - 30; // the line where a frame comes in the moment it is needed
    const perSecond = (due - 22) / MAX_EARLY_S;
    const playhead = Math.round(width * PLAYHEAD_AT);
    const x = (seconds) => playhead + ((seconds - heard) * width) / SECONDS_SEEN;

    context.textAlign = "right";
    context.fillStyle = colour("quiet");
    context.strokeStyle = colour("line");
    for (const [early, label] of [[0, "just in time"], [1, "1 s early"], [2, "2 s early"]]) {
      const y = Math.round(due - early * perSecond) + 0.5;
      line(context, 0, y, width, y);
      context.fillText(label, width, y - 5);
    }

    this.#frames = this.#frames.filter(({ start }) => start > heard - SECONDS_SEEN);
    for (const { start, length, early } of this.#frames) {
      const wide = Math.max(1, x(start + length) - x(start) - 1.5);
      const high = Math.max(2, Math.min(Math.abs(early), early < 0 ? MAX_LATE_S : MAX_EARLY_S) * perSecond);
      context.fillStyle = colour(early < 0 ? "late" : start + length <= heard ? "accent" : "accent-soft");
      context.beginPath();
      context.roundRect(x(start), early < 0 ? due : due - high, wide, high, 1.5);
      context.fill();
    }

    context.strokeStyle = context.fillStyle = colour("ink");
    line(context, playhead + 0.5, 8, playhead + 0.5, due + 14);
    context.textAlign = "center";
    context.fillText("heard up to here", playhead, height - 3);
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
