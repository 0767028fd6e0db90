// The weights in the page: base64, zlib, planes of bytes, numbers.

const BASE64_AT_ONCE = 1 << 20; // a multiple of 4: each piece is base64 by itself

/** Returns the bytes that base64 text holds, inflated; lets others work in between. */
async function inflate(base64) {
  const breath = breather();
  const pieces = new ReadableStream({
    async pull(controller) {
      if (this.at >= base64.length) return controller.close();
      const binary = atob(base64.slice(this.at, this.at + BASE64_AT_ONCE));
      const bytes = new Uint8Array(binary.length);
      for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
      this.at += BASE64_AT_ONCE;
      controller.enqueue(bytes);
      await breath();
    },
    at: 0,
  });
  const inflated = pieces.pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

/** Returns single precision numbers from planes: all first bytes, then all second ones, … */
function numbersOf(planes, precision) {
  return precision === 'float32' ? singles(planes) : halves(planes);
}

function singles(planes) {
  return new Float32Array(wholeNumbers(planes).buffer);
}

function wholeNumbers(planes) {
  const n = planes.length / 4;
  const bits = new Int32Array(n);
  for (let i = 0; i < n; i++) {
    bits[i] =
      planes[i] | (planes[n + i] << 8) | (planes[2 * n + i] << 16) | (planes[3 * n + i] << 24);
  }
  return bits;
}

function halves(planes) {
  const n = planes.length / 2;
  const table = Float32Array.from({ length: 1 << 16 }, (_, bits) => halfPrecision(bits));
  const numbers = new Float32Array(n);
  for (let i = 0; i < n; i++) numbers[i] = table[planes[i] | (planes[n + i] << 8)];
  return numbers;
}

/** Returns the number that 16 bits stand for (IEEE 754 binary16). */
function halfPrecision(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/**
 * Returns the weights by name; layout: [name, shape] of each, in their order.
 *
 * What comes after them are the keys of n-grams: of each, how much more it is than the one before.
 */
function namedWeights(bytes, precision, layout) {
  const sizes = layout.map(([, shape]) => shape.reduce((a, b) => a * b, 1));
  const end = sizes.reduce((a, b) => a + b, 0) * (precision === 'float32' ? 4 : 2);
  const numbers = numbersOf(bytes.subarray(0, end), precision);
  const weights = {};
  let start = 0;
  for (const [i, [name]] of layout.entries()) {
    weights[name] = numbers.subarray(start, start + sizes[i]);
    start += sizes[i];
  }
  if (end < bytes.length) {
    let key = 0;
    const differences = wholeNumbers(bytes.subarray(end));
    weights[NGRAM_KEYS] = differences.map((more) => (key = (key + more) | 0));
  }
  return weights;
}
