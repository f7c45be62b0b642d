// The text as it is read to you: its words light up as they are heard.

/** Character offsets are those of marks: code points of all that was appended to the context. */
export class Reading {
  #element;
  #tail;
  #chars;
  #start;
  #cut;
  #words;
  #next;

  constructor(element) {
    this.#element = element;
    this.clear();
  }

  /** Empty; the text that follows begins at character `start` of its context. */
  clear(start = 0) {
    this.#chars = [];
    this.#start = this.#cut = start;
    this.#words = [];
    this.#next = 0;
    this.#tail = document.createTextNode("");
    this.#element.replaceChildren(this.#tail);
  }

  /** Where the next text begins. */
  get end() {
    return this.#start + this.#chars.length;
  }

  append(text) {
    this.#chars.push(...text); // a string's iterator gives code points
    this.#tail.appendData(text);
  }

  /** Words come in their order, before they have been heard whole. */
  mark({ start_char, end_char, start_ms, end_ms }) {
    // What stands at the word without a space lights up with it: quotes, commas, full stops. So does
    // all that is before the first word: the comma at which an interrupt cut.
    const gap = this.#take(start_char);
    const opening = gap.match(this.#words.length === 0 ? /\S.*$|$/su : /\S*$/u)[0];
    const word = this.#take(end_char);
    const closing = this.#take(end_char + [...this.#tail.data.match(/^[^\s\p{L}\p{N}]*/u)[0]].length);
    const span = document.createElement("span");
    span.textContent = opening + word + closing;
    this.#tail.before(gap.slice(0, gap.length - opening.length), span);
    this.#words.push({ span, start_ms, end_ms });
  }

  /** Light what has been heard after `ms` of the context's audio. */
  light(ms) {
    for (let word; (word = this.#words[this.#next]) && word.end_ms <= ms; this.#next += 1) {
      word.span.className = "heard";
    }
    const word = this.#words[this.#next];
    if (word && word.start_ms <= ms && word.span.className !== "now") {
      word.span.className = "now";
      word.span.scrollIntoView({ block: "nearest" });
    }
  }

  /** Nothing is being said any more. */
  rest() {
    for (const { span } of this.#words) span.classList.remove("now");
  }

  /** The text up to this character, which leaves the tail. */
  #take(end) {
    const taken = this.#chars.slice(this.#cut - this.#start, end - this.#start).join("");
    this.#cut = Math.max(this.#cut, end);
    this.#tail.deleteData(0, taken.length);
    return taken;
  }
}
