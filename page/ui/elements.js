// Elements of the page: how they are found and made, tables and notes, nodes that arrow keys walk
// through.

export const $ = (id) => document.getElementById(id);

/** Returns an element; children that are strings become text, never HTML. */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false)
      node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Returns a bar of a length between 0 and 1. */
export function bar(length, kind = '') {
  const box = element('span', { class: `bar ${kind}`, 'aria-hidden': true }, element('span'));
  box.firstChild.style.width = `${100 * length}%`;
  return box;
}

/** Returns a table of rows of cells; a column without a name is there for the eye alone. */
export function table(caption, names, rows, attributes = {}) {
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

export function hint(...children) {
  return element('p', { class: 'hint' }, ...children);
}

/** Returns a character as it stands in tables. */
export function glyph(text) {
  return element('b', { class: 'glyph' }, text);
}

/** Returns words that are heard and not seen. */
export function aside(words) {
  return element('span', { class: 'hidden' }, words);
}

/** Lets the tab key reach one of some nodes, and from there the arrow keys the others. */
export function walkWithArrows(nodes, reached = () => {}) {
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
