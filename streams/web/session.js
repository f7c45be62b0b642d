// The page's side of the duplex protocol: one session, over as many connections as it takes.

import { decode } from "./wire.js";

const SUBPROTOCOL = "omni-speak.v1";
const TOKEN_SUBPROTOCOL = "omni-speak.token.";
const RETRY_MS = 100;
const MAX_RETRY_MS = 2000;
const SENT_KEPT = 1024; // messages kept to be sent again after a break, if the server did not get them

/**
 * Calls `on.state(state, detail)` with connecting, open (detail: session.opened), lost, token
 * (one is needed) or closed; `on.message(event)` and `on.frame(frame)` with what the server sends,
 * each once, in its order, whatever breaks; `on.ended(why)` when a session could not go on and a new
 * one is opened in its place.
 */
export class Session {
  #on;
  #token = "";
  #socket = null;
  #opened = null;
  #seq = null;
  #sent = [];
  #sentCount = 0;
  #lostAt = 0;
  #retryMs = RETRY_MS;

  constructor(on) {
    this.#on = on;
  }

  connect(token = "") {
    this.#token = token;
    this.#on.state("connecting");
    this.#dial();
  }

  /** A message that a break swallows, or that is sent during one, arrives after it. */
  send(message) {
    this.#sent.push(JSON.stringify(message));
    this.#sentCount += 1;
    if (this.#sent.length > SENT_KEPT) this.#sent.shift();
    if (this.#socket?.ready) this.#socket.send(this.#sent.at(-1));
  }

  #dial() {
    const url = new URL("/v1/duplex", location.href.replace(/^http/, "ws"));
    const protocols = [SUBPROTOCOL];
    if (this.#token) protocols.push(TOKEN_SUBPROTOCOL + this.#token);
    const socket = new WebSocket(url, protocols);
    socket.binaryType = "arraybuffer";
    socket.ready = false;
    socket.onopen = () => socket.send(JSON.stringify(this.#greeting()));
    socket.onmessage = ({ data }) => this.#receive(socket, data);
    socket.onclose = (event) => this.#onClose(socket, event);
    this.#socket = socket;
  }

  #greeting() {
    if (this.#opened === null) return { type: "session.open" };
    const { session, resume_token: token } = this.#opened;
    return { type: "session.open", resume: { session, token, seq: this.#seq } };
  }

  #receive(socket, data) {
    if (socket !== this.#socket) return;
    if (typeof data !== "string") {
      const frame = decode(data);
      this.#seq = frame.seq;
      this.#on.frame(frame);
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "session.opened") {
      this.#onOpened(socket, message);
    } else if (!socket.ready && this.#opened !== null) {
      this.#renew(socket, message.message); // the resume was refused
    } else {
      this.#seq = message.seq ?? this.#seq;
      this.#on.message(message);
    }
  }

  #onOpened(socket, opened) {
    this.#retryMs = RETRY_MS;
    if (opened.resumed) {
      const missed = this.#sentCount - opened.received;
      const from = this.#sent.length - missed;
      if (from < 0) {
        this.#renew(socket, "more was written during the break than is kept here");
        return;
      }
      for (const data of this.#sent.slice(from)) socket.send(data);
    } else {
      this.#sent = [];
      this.#sentCount = 1; // session.open itself
    }
    socket.ready = true;
    this.#opened = opened;
    this.#on.state("open", opened);
  }

  async #onClose(socket, { wasClean, code, reason }) {
    if (socket !== this.#socket) return;
    if (this.#opened === null) {
      await this.#explain();
      return;
    }
    if (socket.ready) this.#lostAt = performance.now();
    if (wasClean) {
      this.#forget(reason || `the server closed the connection (${code})`);
      this.#on.state("closed", reason);
      if (code === 1012) this.#later(); // it restarts
      return;
    }
    if (performance.now() - this.#lostAt > this.#opened.limits.resume_s * 1000) {
      this.#forget("the connection was lost for too long");
    }
    this.#on.state("lost");
    this.#later();
  }

  /** Why no session opened: browsers do not tell how a handshake was answered, so ask again. */
  async #explain() {
    const headers = this.#token ? { authorization: `Bearer ${this.#token}` } : {};
    try {
      const answer = await fetch("/v1/duplex", { headers });
      if (answer.status === 401) {
        this.#on.state("token");
        return;
      }
      const ready = await fetch("/readyz");
      this.#on.state("connecting", ready.ok ? "" : (await ready.json()).reason);
    } catch {
      this.#on.state("lost");
    }
    this.#later();
  }

  #later() {
    setTimeout(() => this.#dial(), this.#retryMs);
    this.#retryMs = Math.min(2 * this.#retryMs, MAX_RETRY_MS);
  }

  #renew(socket, why) {
    this.#forget(why);
    this.#dial();
    socket.close();
  }

  #forget(why) {
    this.#opened = this.#seq = null;
    this.#on.ended(why);
  }
}
