// Long work that lets others work in between.

/**
 * Returns a function to await in long work: every 12 ms it calls what it is given, and lets the
 * browser draw and answer.
 */
export function breather() {
  const channel = new MessageChannel();
  let since = performance.now();
  return async (before = () => {}) => {
    if (performance.now() - since < 12) return;
    before();
    await new Promise((resolve) => {
      channel.port1.onmessage = resolve;
      channel.port2.postMessage(null);
    });
    since = performance.now();
  };
}
