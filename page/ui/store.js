// What was learned here, kept in the browser: a reload or a closed lid loses seconds of it.
//
// A lesson has a record with its text and weights and a short one that a list can show, both under a key
// of its own. All pages that were opened from a disk share the store, and each tab may have a lesson.

const STORE = 'sancho-aprendido';
const STATES = 'estados';
const SUMMARIES = 'resúmenes';

/** Returns a promise of what an act with the browser's store gives; it fails where there is none. */
async function withKept(mode, act) {
  const heard = (request, ok, bad) =>
    new Promise((resolve, reject) => {
      request[ok] = () => resolve(request.result);
      request[bad] = () => reject(request.error);
    });
  const opening = indexedDB.open(STORE, 1);
  opening.onupgradeneeded = () => [STATES, SUMMARIES].map((name) => opening.result.createObjectStore(name));
  const base = await heard(opening, 'onsuccess', 'onerror');
  try {
    const change = base.transaction([STATES, SUMMARIES], mode);
    const requests = act(change.objectStore(STATES), change.objectStore(SUMMARIES));
    await heard(change, 'oncomplete', 'onabort');
    return requests.map(({ result }) => result);
  } finally {
    base.close();
  }
}

/** Keeps a lesson under its key, or under a new one; resolves to the key, null if the browser refuses. */
export async function keepLesson(state, key) {
  const own = key ?? Date.now() + Math.random(); // two tabs may begin in the same millisecond
  const summary = { title: state.text.name, step: state.memory.step, at: Date.now() };
  const put = (states, summaries) => [states.put(state, own), summaries.put(summary, own)];
  return withKept('readwrite', put).then(
    () => own,
    () => null,
  );
}

/** Resolves to the lesson under a key; to null where there is none. */
export async function keptLesson(key) {
  const [state] = await withKept('readonly', (states) => [states.get(key)]).catch(() => []);
  return state ?? null;
}

/** Resolves to the lessons that are kept, the newest first: { key, title, step, at }. */
export async function keptLessons() {
  const all = (_, summaries) => [summaries.getAllKeys(), summaries.getAll()];
  const [keys, told] = await withKept('readonly', all).catch(() => [[], []]);
  return told.map((summary, i) => ({ key: keys[i], ...summary })).sort((a, b) => b.at - a.at);
}

/** Removes a lesson; resolves when it is gone. */
export const forgetLesson = (key) =>
  withKept('readwrite', (states, summaries) => [states.delete(key), summaries.delete(key)]).catch(() => null);
