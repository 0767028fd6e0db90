// What the page has open: the model and its vocabulary, and the facts about them.

/** What the page is made of, once start.js has opened it. */
export const app = { facts: null, model: null, vocabulary: null, comparison: null };

export const characterOf = (id) => app.vocabulary.characters[id];
