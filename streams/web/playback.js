// The audio thread: plays what the jitter buffer gives, and tells where the playhead is.

import { JitterBuffer } from "./jitter.js";

const REPORT_EVERY = 4; // render quanta: some 20 ms

class Playback extends AudioWorkletProcessor {
  #buffer = new JitterBuffer(sampleRate);
  #quanta = 0;
  #last = "";

  constructor() {
    super();
    this.port.onmessage = ({ data: [method, argument] }) => {
      this.#buffer[method](argument);
      this.#report(method === "stop");
    };
  }

  process(_inputs, [[output]]) {
    this.#buffer.pull(output);
    this.#quanta += 1;
    if (this.#quanta % REPORT_EVERY === 0) this.#report(false);
    return true;
  }

  #report(stopped) {
    const { context, played, playing, ended } = this.#buffer;
    const news = [context, played, playing, ended].join();
    if (news === this.#last && !stopped) return;
    this.#last = news;
    this.port.postMessage({ context, played, playing, ended, stopped, at: currentTime });
  }
}

registerProcessor("playback", Playback);
