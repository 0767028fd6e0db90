// The lesson that is given in this page, of which lesson-view.js makes all that one sees.

export const LEAST_LETTERS = 3000; // of a text; with fewer there is nothing to measure the loss on

export const lesson = {
  given: null, // what somebody gave to learn, and its text once it has been read
  run: null, // what learns now
  learned: null, // its last good state, or that of the run before while it has none
  earlier: [], // the lessons in the store, but for the one that was learned
  keeping: Promise.resolve(), // a promise that no state is on its way there
  isRefused: false, // whether the browser keeps none
  titled: null, // the text whose title is in its field
  drawn: null, // the newest of what it wrote that is shown
  says: { kind: '', line: '' },
  spoken: { kind: '', at: 0 }, // what of it was read aloud, and when
};

/** Returns whether a lesson has made all its steps. */
export const isDone = ({ plan, memory }) => memory.step >= plan.options.max_iters;

/** Returns whether what was learned is nowhere but in this page. */
export const isUnsaved = ({ isRefused, learned }) => Boolean(isRefused && learned && !learned.isSaved);
