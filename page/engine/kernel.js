// Products of matrices by kernel.wasm, in a memory that is given away from its beginning to its end.

const PANEL = 1 << 16; // bytes at the beginning of the memory, which the kernel keeps for itself
const GROWTH = 1 << 16; // bytes by which the memory of WebAssembly grows

export class Kernel {
  /** module: a WebAssembly.Module, or null to compute in JavaScript; room: how many numbers to hold. */
  constructor(module, room) {
    const bytes = PANEL + 4 * room;
    if (module) {
      const { memory, multiply } = /** @type {any} */ (new WebAssembly.Instance(module).exports);
      memory.grow(Math.ceil(bytes / GROWTH) - 1);
      this.buffer = memory.buffer;
      this.compiled = multiply;
    } else {
      this.buffer = new ArrayBuffer(bytes);
      this.compiled = null;
    }
    this.next = PANEL;
  }

  /** Returns n numbers of the memory, as they happen to be. */
  take(n) {
    const numbers = new Float32Array(this.buffer, this.next, n);
    this.next += 4 * n;
    return numbers;
  }

  /** Does something, and takes back the memory that was given away meanwhile. */
  borrow(act) {
    const { next } = this;
    const result = act();
    this.next = next;
    return result;
  }

  /** c = a · b, matrices as of model.js: (rows, inner) times (inner, columns), b and c of step 1. */
  multiply(a, b, c, inner, columns) {
    const fits = c.rows >= 4 && columns >= 8 && 32 * inner <= PANEL;
    if (!this.compiled || !fits) return multiplySlowly(a, b, c, inner, columns);
    const address = ({ numbers, start }) => numbers.byteOffset + 4 * start;
    this.compiled(
      ...[address(a), 4 * a.stride, 4 * a.step, address(b), 4 * b.stride],
      ...[address(c), 4 * c.stride, c.rows, inner, columns],
    );
  }
}

function multiplySlowly(a, b, c, inner, columns) {
  for (let i = 0; i < c.rows; i++) {
    const row = c.numbers.subarray(c.start + i * c.stride, c.start + i * c.stride + columns).fill(0);
    for (let p = 0; p < inner; p++) {
      const x = a.numbers[a.start + i * a.stride + p * a.step];
      const from = b.start + p * b.stride;
      for (let j = 0; j < columns; j++) row[j] += x * b.numbers[from + j];
    }
  }
}
