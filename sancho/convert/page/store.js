// What is being learned, kept in the browser: a reload or a closed lid loses seconds of it.

const STORE = 'sancho-aprende';

/** Returns a promise of what an act with the browser's store gives; it fails where there is none. */
function withKept(mode, act) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(STORE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const base = opening.result;
      const change = base.transaction(STORE, mode);
      const request = act(change.objectStore(STORE));
      change.oncomplete = () => {
        base.close();
        resolve(request.result);
      };
      change.onabort = () => reject(change.error);
    };
  });
}

/** Keeps a value under a name, of null nothing; resolves to whether the browser did. */
async function keepForLater(name, value) {
  try {
    await withKept('readwrite', (store) =>
      value === null ? store.delete(name) : store.put(value, name),
    );
    return true;
  } catch {
    return false;
  }
}

/** Resolves to what was kept under a name, or null; with `getKey`, only to that name. */
async function keptBefore(name, get = 'get') {
  try {
    return (await withKept('readonly', (store) => store[get](name))) ?? null;
  } catch {
    return null;
  }
}
