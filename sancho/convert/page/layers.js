// Capa a capa: what the output head would predict if the model ended after each block (the logit lens).

const GUESSES = 3;

views.capas = {
  open(box) {
    this.body = element('tbody');
    this.written = element('th', { scope: 'col' }, 'la escrita');
    const head = headRow('después de', 'primera', 'segunda', 'tercera');
    head.firstChild.append(this.written);
    box.append(
      element(
        'p',
        { class: 'hint' },
        'Cada bloque suma algo a la corriente residual. Aquí la cabeza de salida la lee antes ' +
          'de tiempo: lo que respondería el modelo si terminara ahí. ',
        chapter('11_rayos_x'),
        '.',
      ),
      element(
        'table',
        { class: 'lens' },
        element('caption', {}, 'Cómo crece la respuesta'),
        head,
        this.body,
      ),
    );
  },

  show({ notes, id }) {
    const streams = [notes.blocks[0].input, ...notes.blocks.map((block) => block.output)];
    this.written.textContent = `«${visible(app.vocabulary.characters[id])}», la escrita`;
    this.body.textContent = '';
    streams.forEach((stream, layer) => {
      const logits = app.model.logits(stream);
      const p = softmax(logits);
      const guesses = ranking(logits).slice(0, GUESSES);
      while (guesses.length < GUESSES) guesses.push(null);
      const cells = guesses.map((one) => (one === null ? '' : guessCell(one, p[one], one === id)));
      this.body.append(
        element(
          'tr',
          {},
          element('th', { scope: 'row' }, layer ? `bloque ${layer}` : 'entrada'),
          ...cells.map((cell) => element('td', {}, cell)),
          element('td', {}, shortPercent(p[id]), bar(p[id])),
        ),
      );
    });
  },
};

function guessCell(id, p, isWritten) {
  return element(
    'span',
    { class: isWritten ? 'guess right' : 'guess' },
    element('b', { class: 'glyph' }, visible(app.vocabulary.characters[id])),
    isWritten ? element('span', { class: 'tick' }, '✓') : null,
    element('span', {}, shortPercent(p)),
    bar(p),
  );
}
