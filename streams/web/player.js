// The loudspeaker: an AudioContext with the playback worklet, and what was heard of it.

/**
 * Plays one context at a time, under any name. `onheard()` is called some fifty times a second while `heard` moves,
 * whether the page is seen or not.
 */
export class Player {
  #audio = null;
  #node = null;
  #report = { context: null, played: 0, playing: false, ended: false, at: 0 };
  #context = null;
  #heard = 0;
  #stopped = null;

  constructor(onheard) {
    this.onheard = onheard;
  }

  /** Browsers allow sound once the page was clicked: call this in the click. */
  async start(sampleRate) {
    if (this.#audio?.sampleRate !== sampleRate) {
      await this.#audio?.close();
      // At the server's rate a sample here is a sample there; the browser resamples for the device.
      this.#audio = new AudioContext({ sampleRate, latencyHint: "interactive" });
      await this.#audio.audioWorklet.addModule("/web/playback.js");
      this.#node = new AudioWorkletNode(this.#audio, "playback", {
        numberOfInputs: 0,
        outputChannelCount: [1],
      });
      this.#node.port.onmessage = ({ data }) => this.#onReport(data);
      this.#node.connect(this.#audio.destination);
    }
    await this.#audio.resume();
  }

  get node() {
    return this.#node;
  }

  get sampleRate() {
    return this.#audio.sampleRate;
  }

  begin(context) {
    this.#context = context;
    this.#heard = 0;
    this.#report = { context, played: 0, playing: false, ended: false, at: this.#audio.currentTime };
    this.#node.port.postMessage(["begin", context]);
  }

  push(frame) {
    this.#node.port.postMessage(["push", frame], [frame.samples.buffer]);
  }

  finish(samples) {
    this.#node.port.postMessage(["finish", samples]);
  }

  /** Silence, now; resolves to how many samples were heard. */
  stop() {
    this.#node.port.postMessage(["stop"]);
    return new Promise((resolve) => (this.#stopped = resolve));
  }

  get playing() {
    return this.#report.playing;
  }

  /** Where the worklet is, in samples of media time. */
  get played() {
    const { played, playing, at } = this.#report;
    return playing ? played + (this.#audio.currentTime - at) * this.sampleRate : played;
  }

  /** For how many seconds nothing was there to be played. */
  get dryFor() {
    return this.#report.playing ? 0 : this.#audio.currentTime - this.#report.at;
  }

  /** What the listener has heard, in whole samples: what was played, less what is on its way to the
   * loudspeaker. */
  get heard() {
    const { played, playing, at } = this.#report;
    const since = this.#audio.currentTime - this.#latency - at;
    const now = Math.floor(played + (playing ? since : Math.min(0, since)) * this.sampleRate);
    this.#heard = Math.max(this.#heard, now);
    return this.#heard;
  }

  /** All of the context was heard. */
  get ended() {
    return this.#report.ended && this.heard >= this.#report.played;
  }

  get #latency() {
    return this.#audio.outputLatency || this.#audio.baseLatency || 0;
  }

  #onReport(report) {
    if (report.context !== this.#context) return;
    this.#report = report;
    if (report.stopped) this.#stopped?.(this.heard);
    this.onheard();
    // The last of it is still on its way to the loudspeaker, and no report follows.
    if (report.ended) setTimeout(() => this.onheard(), this.#latency * 1000 + 20);
  }
}
