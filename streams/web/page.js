// The page: what is pressed goes to the session, what the session sends is played and shown.

import { Clock } from "./clock.js";
import { Player } from "./player.js";
import { Reading } from "./reading.js";
import { Session } from "./session.js";
import { AUDIO, samplesOf } from "./wire.js";

const WORD_MS = 130; // word by word: how fast a language model might write
const ACK_MS = 250;
const APPEND_CHARS = 8000; // per message: under the server's limit however JSON escapes it

const element = (id) => document.getElementById(id);
const reading = new Reading(element("reading"));
const clock = new Clock(element("clock"));

/** What the session was opened with, or null while there is none. */
let opened = null;
/** The context being spoken, the last one spoken, or null. */
export let speech = null;
let contexts = 0;

export const player = new Player(onHeard);
export const session = new Session({
  state: onState,
  message: onMessage,
  frame: onFrame,
  ended: onSessionEnded,
});

// -- what is pressed ---------------------------------------------------------------------------

/** Speak a text from its start, in a new context. */
async function speak(text) {
  if (opened === null || text.trim() === "") return;
  leave();
  contexts += 1;
  speech = {
    context: `page-${contexts}`,
    handle: null,
    opened: null,
    epoch: 0,
    unsent: [],
    textEnded: false,
    done: false,
    asked: performance.now(),
    firstSound: null,
    frames: 0,
    late: 0,
    received: 0,
    acked: 0,
    ackedAt: 0,
    typing: null,
  };
  await player.start(opened.sample_rate);
  player.begin(speech.context);
  clock.clear();
  speech.asked = performance.now();
  session.send({
    type: "context.open",
    context: speech.context,
    voice: element("voice").value,
    speed: element("speed").valueAsNumber,
  });
  say(text, 0);
}

/** Send a text, at once or word by word, that begins at character `start` of the context. */
function say(text, start) {
  reading.clear(start);
  show("speaking");
  speech.textEnded = false;
  const byWord = element("by-word").checked;
  const size = byWord ? /\s*\S+\s*/gu : new RegExp(`.{1,${APPEND_CHARS}}`, "gsu");
  speech.unsent = text.match(size);
  if (byWord) {
    speech.typing = setInterval(sendNext, WORD_MS);
    sendNext();
  } else {
    while (!speech.textEnded) sendNext();
  }
  requestAnimationFrame(draw);
}

function sendNext() {
  const text = speech.unsent.shift();
  reading.append(text);
  session.send({ type: "text.append", context: speech.context, text });
  if (speech.unsent.length === 0) {
    stopTyping();
    speech.textEnded = true;
    session.send({ type: "text.end", context: speech.context });
  }
}

function stopTyping() {
  clearInterval(speech.typing);
}

async function interrupt() {
  stopTyping();
  const samples = await player.stop();
  const played_ms = (samples * 1000) / player.sampleRate;
  session.send({ type: "interrupt", context: speech.context, played_ms });
}

function goOn() {
  const text = element("text-remaining").textContent;
  if (speech.done) {
    speak(text);
  } else {
    say(text, reading.end);
  }
}

function edit() {
  leave();
  show("editing");
  element("text").focus();
}

/** Whatever is still being spoken is not wanted any more. */
function leave() {
  if (speech === null) return;
  stopTyping();
  if (!speech.done) session.send({ type: "cancel", context: speech.context });
}

// -- what the session sends --------------------------------------------------------------------

function onState(state, detail) {
  const says = {
    connecting: detail || "connecting",
    lost: "reconnecting",
    token: "a token is needed",
    closed: `closed by the server${detail ? `: ${detail}` : ""}`,
  };
  element("connection").dataset.state = state;
  element("speak").disabled = state !== "open";
  element("access").hidden = state !== "token";
  if (state === "open") {
    opened = detail;
    says.open = `${detail.model} · ${detail.frame_rate} frames/s`;
    showChoices(detail);
  }
  element("connection").textContent = says[state];
}

function showChoices({ voices, voice, speed_range: [slowest, fastest], limits }) {
  const chosen = element("voice").value || voice;
  element("voice").replaceChildren(...voices.map((name) => new Option(name, name)));
  element("voice").value = voices.includes(chosen) ? chosen : voice;
  Object.assign(element("speed"), { min: slowest, max: fastest });
  element("text").maxLength = limits.text_chars;
}

function onSessionEnded(why) {
  opened = null;
  if (speech === null || speech.done) return;
  stopTyping();
  speech.done = true;
  notice(`The speech is not whole: ${why}.`);
  player.finish(speech.received);
}

function onMessage(message) {
  // Of a context that is gone it was told why.
  if (message.type === "error" && message.code !== "unknown_context") notice(`${message.message}.`);
  if (message.context !== speech?.context) return;
  switch (message.type) {
    case "context.opened":
      speech.opened = message;
      speech.handle = message.handle;
      break;
    case "marks":
      if (message.epoch === speech.epoch) message.words.forEach((word) => reading.mark(word));
      break;
    case "context.interrupted":
      speech.epoch = message.epoch;
      showHeard(message);
      break;
    case "context.done":
      speech.done = true;
      if (message.reason !== "cancelled") player.finish(message.samples);
      break;
    case "error":
      stopTyping();
      show("finished");
  }
}

function onFrame(frame) {
  if (frame.kind !== AUDIO || speech === null || frame.context !== speech.handle) return;
  const samples = samplesOf(frame.payload);
  const { epoch, pts } = frame;
  if (epoch === speech.epoch) count(pts, samples.length);
  player.push({ context: speech.context, epoch, pts, samples });
}

/** A frame against the clock: how long before the player needs it was it here? */
function count(pts, length) {
  const rate = player.sampleRate;
  let early = Math.max(0, pts - player.played) / rate;
  // The first one sets the clock. Speech that waits for its text is not late.
  if (early === 0 && speech.frames > 0 && !player.playing && speech.textEnded) early = -player.dryFor;
  clock.add(pts / rate, length / rate, early);
  speech.firstSound ??= performance.now() - speech.asked;
  speech.frames += Math.round(length / opened.samples_per_frame);
  speech.late += early < 0 ? 1 : 0;
  speech.received = pts + length;
}

// -- what is heard -----------------------------------------------------------------------------

/** Not tied to what is drawn: a page in the background plays on. */
function onHeard() {
  if (document.body.dataset.state !== "speaking") return;
  const samples = player.heard;
  reading.light((samples * 1000) / player.sampleRate);
  const now = performance.now();
  if (samples > speech.acked && (player.ended || now - speech.ackedAt >= ACK_MS)) {
    session.send({ type: "playback.ack", context: speech.context, samples });
    speech.acked = samples;
    speech.ackedAt = now;
  }
  if (player.ended) show("finished");
}

// -- what is shown -----------------------------------------------------------------------------

/** editing, speaking, interrupted or finished: the style sheet does the rest. */
function show(state) {
  document.body.dataset.state = state;
  element("heard").hidden = state !== "interrupted";
  if (state === "speaking") notice("");
  if (state !== "speaking") reading.rest();
}

function showHeard({ text_spoken, text_remaining, heard_ms, heard_by }) {
  const how = { offset: "as this page's player says", acks: "by its last report", clock: "by the clock" };
  element("text-spoken").textContent = text_spoken;
  element("text-remaining").textContent = text_remaining + speech.unsent.join("");
  element("heard-how").textContent = `${(heard_ms / 1000).toFixed(2)} s, ${how[heard_by]}.`;
  clock.cut(heard_ms / 1000);
  element("go-on").disabled = element("text-remaining").textContent.trim() === "";
  show("interrupted");
  element("heard").scrollIntoView({ block: "nearest" });
  draw();
}

function notice(text) {
  element("notice").textContent = text;
}

function draw() {
  const rate = speech === null ? 1 : player.sampleRate;
  const heard = speech === null ? 0 : player.heard / rate;
  clock.draw(heard);
  if (speech === null) return;
  const { firstSound, frames, late, received } = speech;
  element("first-sound").textContent = firstSound === null ? "–" : `${Math.round(firstSound)} ms`;
  element("lead").textContent = `${Math.max(0, received / rate - heard).toFixed(2)} s`;
  element("frames").textContent = frames;
  element("late").textContent = late;
  if (document.body.dataset.state === "speaking") requestAnimationFrame(draw);
}

// -- from here ---------------------------------------------------------------------------------

element("speak").onclick = () => speak(element("text").value);
element("interrupt").onclick = interrupt;
element("go-on").onclick = goOn;
element("edit").onclick = element("reading").onclick = () => {
  if (document.body.dataset.state !== "speaking") edit();
};
element("speed").oninput = () => {
  element("speed-shown").textContent = `${element("speed").valueAsNumber.toFixed(2)}×`;
};
element("access").onsubmit = (event) => {
  event.preventDefault();
  session.connect(element("token").value);
};
document.onkeydown = ({ key, ctrlKey, metaKey }) => {
  const state = document.body.dataset.state;
  if (key === "Escape" && state === "speaking") interrupt();
  if (key === "Enter" && (ctrlKey || metaKey) && state !== "speaking") element("speak").click();
};
addEventListener("resize", draw);

draw();
session.connect();
