// Tables, pictures of numbers, notes in small print, and texts that are read and not written in.

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

const WIDEST = 192; // numbers side by side

/** Returns a picture of numbers, up for positive and down for negative, and the numbers as text. */
function picture(values, title) {
  const numbers = Array.from(values);
  const largest = Math.max(1e-9, ...numbers.map(Math.abs));
  const caption = element('figcaption', {}, element('b', {}, title), ` ${summary(numbers)}`);
  const rows = [];
  const width =
    numbers.length > WIDEST
      ? Math.ceil(numbers.length / Math.ceil(numbers.length / WIDEST))
      : numbers.length;
  for (let i = 0; i < numbers.length; i += width) {
    rows.push(barRow(numbers.slice(i, i + width), width, largest));
  }
  const list = element('details', { class: 'numbers' }, element('summary', {}, say('the_numbers')));
  list.addEventListener('toggle', () => {
    if (list.open && list.children.length === 1) {
      list.append(element('p', {}, numbers.map((x) => decimals(x)).join('  ')));
    }
  });
  return element('figure', { class: 'vector' }, caption, ...rows, list);
}

function summary(numbers) {
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const count = say('numbers', { n: numbers.length });
  return say('range', { count, low: decimals(low), high: decimals(high) });
}

function barRow(numbers, width, largest) {
  const path = (sign) =>
    numbers.map((x, i) => (x * sign > 0 ? `M${i} 20h.8v${(-19 * x) / largest}h-.8z` : '')).join('');
  return svg(
    'svg',
    {
      viewBox: `0 0 ${width} 40`,
      preserveAspectRatio: 'none',
      class: 'strip',
      'aria-hidden': true,
    },
    svg('path', { d: `M0 20H${width}`, class: 'axis' }),
    svg('path', { d: path(1), class: 'plus' }),
    svg('path', { d: path(-1), class: 'minus' }),
  );
}
