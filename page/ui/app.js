// What the page has open: the model and its vocabulary, the facts about them, and the passages to draw.

/** What the page is made of, once start.js has opened it. */
export const app = { facts: null, model: null, vocabulary: null, comparison: null, deck: null };

export const characterOf = (id) => app.vocabulary.characters[id];
