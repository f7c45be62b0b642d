// What has come and was not played yet, in media time. Pure: the worklet drives it, tests can, too.

import { compareEpochs } from "./wire.js";

const DELAY_S = 0.08;
const MAX_DELAY_S = 0.32;

/**
 * Frames of one context in, a steady run of samples out. `played` is the playhead, in samples of the
 * context's media time (`pts`). Sound starts a short delay after its first frame came. Where the
 * next frame lies further on by its pts, the gap is silence. Where there is none the playhead waits,
 * and the delay is doubled before it goes on.
 */
export class JitterBuffer {
  constructor(sampleRate) {
    this.sampleRate = sampleRate;
    this.begin(null);
  }

  /** Play this context, from its start; forget the one before. */
  begin(context) {
    this.context = context;
    this.epoch = 0;
    this.stopped = false;
    this.end = Infinity;
    this.delay = DELAY_S;
    this.#jump(0);
  }

  /** Frames come in the order of their pts. One of an older epoch, or another context, is dropped. */
  push(frame) {
    const newer = compareEpochs(frame.epoch, this.epoch);
    if (frame.context !== this.context || newer < 0 || (newer === 0 && this.stopped)) return;
    if (newer > 0) {
      this.epoch = frame.epoch;
      this.stopped = false;
      this.#jump(frame.pts);
    }
    this.frames.push(frame);
  }

  /** The context has this many samples. */
  finish(samples) {
    this.end = samples;
  }

  /** Drop what was not played; play on with the next epoch. */
  stop() {
    this.stopped = true;
    this.frames = [];
    this.playing = false;
  }

  get ended() {
    return this.played >= this.end;
  }

  /** Fill `output` with what is due now. */
  pull(output) {
    output.fill(0);
    if (this.frames.length === 0) {
      this.#ranDry();
    } else if (this.wait > 0) {
      this.wait -= output.length;
    } else {
      this.playing = true;
      this.#fill(output);
    }
  }

  #fill(output) {
    let at = 0;
    while (at < output.length && this.frames.length > 0) {
      const { pts, samples } = this.frames[0];
      const from = this.played - pts;
      const count = Math.min(from < 0 ? -from : samples.length - from, output.length - at);
      if (from >= 0) output.set(samples.subarray(from, from + count), at);
      at += count;
      this.played += count;
      if (from + count === samples.length) this.frames.shift();
    }
  }

  #ranDry() {
    if (!this.playing) return;
    this.playing = false;
    if (this.ended) return;
    this.delay = Math.min(2 * this.delay, MAX_DELAY_S);
    this.wait = this.delay * this.sampleRate;
  }

  #jump(pts) {
    this.frames = [];
    this.played = pts;
    this.playing = false;
    this.wait = this.delay * this.sampleRate;
  }
}
