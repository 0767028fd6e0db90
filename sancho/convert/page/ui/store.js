// What is being learned, kept in the browser: a reload or a closed lid loses seconds of it.
//
// A lesson is one record, its text and its weights, under a key of its own, the time when it was kept:
// all pages that were opened from a disk share the store, and each tab may have a lesson.

const STORE = 'sancho-lecciones';

/** Returns a promise of what an act with the browser's store gives; it fails where there is none. */
async function withKept(mode, act) {
  const heard = (request, ok, bad) =>
    new Promise((resolve, reject) => {
      request[ok] = () => resolve(request.result);
      request[bad] = () => reject(request.error);
    });
  const opening = indexedDB.open(STORE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const base = await heard(opening, 'onsuccess', 'onerror');
  try {
    const change = base.transaction(STORE, mode);
    const request = act(change.objectStore(STORE));
    await heard(change, 'oncomplete', 'onabort');
    return request?.result;
  } finally {
    base.close();
  }
}

/** Keeps a lesson instead of an older state of it, or of another; resolves to its key, null if it can't. */
export async function keepLesson(state, replaced) {
  const key = Date.now();
  const replace = (store) => {
    store.put(state, key);
    if (replaced !== null && replaced !== key) store.delete(replaced);
  };
  return withKept('readwrite', replace).then(
    () => key,
    () => null,
  );
}

/** Resolves to the lesson under a key; to null where there is none. */
export const keptLesson = (key) => withKept('readonly', (store) => store.get(key)).catch(() => null);

/** Resolves to the key of the lesson that was kept last, or to null. */
export async function keptKey() {
  const keys = await withKept('readonly', (store) => store.getAllKeys()).catch(() => []);
  return keys.at(-1) ?? null;
}
