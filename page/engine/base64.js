// Bytes that stand in a page as base64 text.

import { breather } from './breather.js';

const BASE64_AT_ONCE = 1 << 20; // a multiple of 4: each piece is base64 by itself

/** Returns the bytes that base64 text holds. */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Returns the bytes that base64 text holds, inflated; lets others work in between. */
export async function inflate(base64) {
  const breath = breather();
  let at = 0;
  const pieces = new ReadableStream({
    async pull(controller) {
      if (at >= base64.length) return controller.close();
      const binary = atob(base64.slice(at, at + BASE64_AT_ONCE));
      const bytes = new Uint8Array(binary.length);
      for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
      at += BASE64_AT_ONCE;
      controller.enqueue(bytes);
      await breath();
    },
  });
  const inflated = pieces.pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}
