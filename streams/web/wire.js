// The binary duplex frame, as streams/wire.py describes it: read only.

export const AUDIO = 1;
const VERSION = 1;

/** What an ArrayBuffer holds; `pts` counts samples, `payload` is bytes. Throws on another version. */
export function decode(buffer) {
  const view = new DataView(buffer);
  const first = view.getUint8(0);
  if (first >> 4 !== VERSION) {
    throw new Error(`frame version ${first >> 4} is not supported, only ${VERSION}`);
  }
  return {
    kind: view.getUint8(1),
    encoding: view.getUint8(3),
    context: view.getUint16(4, true),
    epoch: view.getUint16(6, true),
    seq: view.getUint32(8, true),
    tick: view.getUint32(12, true),
    pts: Number(view.getBigUint64(16, true)),
    payload: buffer.slice((first & 0x0f) * 4),
  };
}

/** 16-bit little-endian samples as floats. */
export function samplesOf(payload) {
  const view = new DataView(payload);
  return Float32Array.from({ length: payload.byteLength >> 1 }, (_, i) => view.getInt16(2 * i, true) / 32768);
}

/** Above 0 where epoch `a` is newer than `b`; they count to 65535 and begin again. */
export function compareEpochs(a, b) {
  return ((a - b) << 16) >> 16;
}
