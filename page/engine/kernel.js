// Products of matrices by kernel.wasm, in a memory that is given away from its beginning to its end:
// those of training, in single precision, and those of writing, with sums in double precision.

const PANEL = 1 << 16; // bytes at the beginning of the memory, which the kernel keeps for itself
const GROWTH = 1 << 16; // bytes by which the memory of WebAssembly grows

export class Kernel {
  /** module: a WebAssembly.Module, or null to compute in JavaScript; room: how many numbers to hold. */
  constructor(module, room) {
    const bytes = PANEL + 4 * room;
    if (module) {
      this.compiled = /** @type {any} */ (new WebAssembly.Instance(module).exports);
      const { memory } = this.compiled;
      memory.grow(Math.ceil(bytes / GROWTH) - 1);
      this.buffer = memory.buffer;
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
    this.compiled.multiply(
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

/** Matrices that stay as they are, and their products with vectors: to the last bit those of model.js. */
export class FixedMatrices {
  /** module: a WebAssembly.Module; matrices: [name, numbers] of each, all of so many columns. */
  constructor(module, matrices, columns) {
    const sizes = matrices.map(([, numbers]) => 8 * columns * Math.ceil(numbers.length / columns / 8));
    const rows = Math.max(...sizes) / columns;
    this.kernel = new Kernel(module, 2 * columns + rows + sizes.reduce((sum, size) => sum + size));
    this.x = new Float64Array(this.kernel.buffer, this.kernel.take(2 * columns).byteOffset, columns);
    this.y = this.kernel.take(rows);
    this.packed = new Map();
    for (const [i, [name, numbers]] of matrices.entries()) {
      this.packed.set(name, inEights(numbers, columns, this.kernel.take(sizes[i])));
    }
  }

  /** Returns W · x of each vector in x, W having so many rows. */
  products(name, x, rows) {
    const columns = this.x.length;
    const out = new Float32Array((x.length / columns) * rows);
    const w = this.packed.get(name).byteOffset;
    for (let k = 0; k * columns < x.length; k++) {
      this.x.set(x.subarray(k * columns, (k + 1) * columns));
      this.kernel.compiled.apply(w, this.x.byteOffset, columns, this.y.byteOffset, Math.ceil(rows / 8));
      out.set(this.y.subarray(0, rows), k * rows);
    }
    return out;
  }
}

/** Returns `out` with a matrix as the kernel reads it: eight rows after eight rows, those column by column. */
function inEights(numbers, columns, out) {
  for (let row = 0; row * columns < numbers.length; row++) {
    const to = (row - (row % 8)) * columns + (row % 8);
    for (let j = 0; j < columns; j++) out[to + 8 * j] = numbers[row * columns + j];
  }
  return out;
}
