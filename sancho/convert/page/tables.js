// Tables and means, notes in small print, texts that are read and not written in, words for the ear,
// nodes that arrow keys walk through.

/** Returns a table of rows of cells; a column without a name is there for the eye alone. */
function table(caption, names, rows, attributes = {}) {
  const head = names.map((name) =>
    name ? element('th', { scope: 'col' }, name) : element('td', { 'aria-hidden': true }),
  );
  const line = (cells) => element('tr', {}, ...cells.map((cell) => element('td', {}, cell)));
  return element(
    'table',
    attributes,
    caption ? element('caption', {}, caption) : null,
    element('thead', {}, element('tr', {}, ...head)),
    element('tbody', {}, ...rows.map(line)),
  );
}

function hint(...children) {
  return element('p', { class: 'hint' }, ...children);
}

/** Returns what is there for who wants the numbers, folded. */
function foldedNumbers(...children) {
  return element('details', {}, element('summary', {}, say('the_numbers')), ...children);
}

/** Returns a character as it stands in tables. */
function glyph(text) {
  return element('b', { class: 'glyph' }, text);
}

/** Returns a box for Letters. */
function letterBox(label, kind = '') {
  return element('div', {
    class: `letters ${kind}`,
    role: 'textbox',
    'aria-readonly': true,
    'aria-multiline': true,
    tabindex: 0,
    'aria-label': label,
  });
}

/** Returns words that are heard and not seen. */
function aside(words) {
  return element('span', { class: 'hidden' }, words);
}

const meanOf = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

/** Lets the tab key reach one of some nodes, and from there the arrow keys the others. */
function walkWithArrows(nodes, reached = () => {}) {
  const leaveOne = (one) => nodes.forEach((node) => (node.tabIndex = node === one ? 0 : -1));
  leaveOne(nodes[0]);
  nodes.forEach((node, n) =>
    node.addEventListener('keydown', (event) => {
      const to = { ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = nodes.at(to % nodes.length);
      leaveOne(next);
      reached(next);
      next.focus();
    }),
  );
}
