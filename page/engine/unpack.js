// The weights in the page: planes of bytes to numbers, by name.

import { NGRAM_KEYS } from './model.js';

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
export function namedWeights(bytes, precision, layout) {
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
