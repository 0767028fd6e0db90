// A dónde mira cada cabeza: se toca una letra, y el texto se tiñe según los pesos de su fila.
// El mismo tinte es el mismo peso en todas las cabezas y en todos los bloques.

const [n_layer, n_head] = datos.forma;
const NIVELES = 255; // los pesos vienen en bytes
const FUERTES = 3;
let letras, pesos, elegida; // los de la frase que se lee

const cual = element(
  'select',
  { id: 'cual', onchange: leer },
  ...datos.frases.map(({ texto }, i) => element('option', { value: i }, rotulo(texto))),
);
const bloque = element(
  'select',
  { id: 'bloque', onchange: pintar },
  ...Array.from({ length: n_layer }, (_, i) => element('option', { value: i }, `bloque ${i + 1}`)),
);
bloque.value = datos.capa;
const pregunta = caja('El texto: elige una letra con el dedo o con las flechas');
pregunta.classList.add('grande');
const letra = new Letters(pregunta, { ask: () => {}, choose: elegir });
const frase = element('p', { role: 'status' });
const cabezas = Array.from({ length: n_head }, (_, i) => {
  const titulo = element('h3', {}, `Cabeza ${i + 1}`);
  const texto = caja(`Lo que mira la cabeza ${i + 1}`, 'img');
  const cifras = element('p', { class: 'cifras hint' });
  return {
    caja: element('div', {}, titulo, texto, cifras),
    texto,
    cifras,
    letras: new Letters(texto, { ask: () => {}, choose: elegir }),
  };
});

/** Devuelve una caja de letras; la primera se recorre con el teclado. */
function caja(nombre, papel = 'textbox') {
  const dePapel =
    papel === 'textbox' ? { tabindex: 0, 'aria-readonly': true, 'aria-multiline': true } : {};
  return element('div', { class: 'letters', role: papel, 'aria-label': nombre, ...dePapel });
}

/** Devuelve los pesos con que la letra t de una cabeza mira a las letras 0…t. */
function filaDe(capa, cabeza, t) {
  const T = letras.length;
  const antes = ((capa * n_head + cabeza) * T * (T + 1)) / 2 + (t * (t + 1)) / 2;
  return Array.from(pesos.subarray(antes, antes + t + 1), (byte) => byte / NIVELES);
}

function elegir(t) {
  elegida = t;
  pintar();
}

function pintar() {
  letra.mark(elegida);
  frase.textContent =
    `Pregunta la letra ${elegida + 1}, ${spoken(letras[elegida])}: puede mirar a ` +
    (elegida ? `las ${elegida + 1} primeras, ella incluida.` : 'sí misma y a nadie más.');
  cabezas.forEach(({ texto, cifras, letras: dibujadas }, cabeza) => {
    const mira = filaDe(Number(bloque.value), cabeza, elegida);
    dibujadas.clear();
    dibujadas.add(letras, (span, s) => {
      if (s > elegida) span.classList.add('future');
      else span.style.setProperty('--tint-share', `${Math.round(100 * Math.sqrt(mira[s]))}%`);
      if (s === elegida) span.classList.add('asker');
    });
    cifras.textContent = ranking(mira)
      .slice(0, FUERTES)
      .map((s) => nombrar(s, mira[s]))
      .join(' · ');
    texto.setAttribute('aria-label', `Cabeza ${cabeza + 1}: ${cifras.textContent}`);
  });
}

function nombrar(s, peso) {
  const hace = elegida - s;
  const donde = hace ? `(hace ${hace})` : '(ella)';
  return `${spoken(letras[s])} ${donde} ${Math.round(100 * peso)}\u00a0%`;
}

/** Pasa a la frase elegida en la lista, y a su última letra. */
async function leer() {
  const frase = datos.frases[cual.value];
  pesos = await inflate(frase.pesos);
  letras = Array.from(frase.texto);
  letra.clear();
  letra.add(letras);
  elegir(letras.length - 1);
}

async function abrir() {
  const mando = (para, nombre, lista) =>
    element('div', { class: 'row' }, element('label', { for: para }, `${nombre} `), lista);
  if (datos.frases.length > 1) lamina.append(mando('cual', 'Frase', cual));
  if (n_layer > 1) lamina.append(mando('bloque', 'Bloque', bloque));
  lamina.append(
    pregunta,
    frase,
    element('div', { class: 'dos' }, ...cabezas.map(({ caja }) => caja)),
  );
  await leer();
  lista();
}

abrir();
