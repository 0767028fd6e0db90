// De qué letras del original sale cada letra de la copia: se toca una, y el original se tiñe.

const NIVELES = 255; // los pesos vienen en bytes
const FUERTES = 3;
const FINAL = '■';
const casos = datos.casos.map((textos) => textos.map((texto) => Array.from(texto)));
let pesos;
let elegida = datos.elegida;

const cual = element(
  'select',
  { id: 'cual', onchange: cambiar },
  ...datos.casos.map(([texto], i) => element('option', { value: i }, texto.replace(FINAL, ''))),
);
const arriba = caja('El original', { role: 'img' });
const abajo = caja('Lo escrito: elige una letra con el dedo o con las flechas', {
  role: 'textbox',
  tabindex: 0,
  'aria-readonly': true,
  'aria-multiline': true,
});
const original = new Letters(arriba, { ask: () => {}, choose: quienMira });
const copia = new Letters(abajo, { ask: () => {}, choose: elegir });
const frase = element('p', { role: 'status', class: 'cifras' });

function caja(nombre, papel) {
  return element('div', { class: 'letters grande', 'aria-label': nombre, ...papel });
}

/** Devuelve los pesos con que la letra t de la copia mira al original, en un caso. */
function miradaDe(caso, t) {
  const antes = casos.slice(0, caso).reduce((suma, [S, T]) => suma + S.length * T.length, 0);
  const S = casos[caso][0].length;
  return Array.from(pesos.subarray(antes + t * S, antes + (t + 1) * S), (byte) => byte / NIVELES);
}

function cambiar() {
  const letras = casos[Number(cual.value)][1];
  copia.clear();
  copia.add(letras);
  elegir(Math.min(elegida, letras.length - 1));
}

function elegir(t) {
  elegida = t;
  pintar();
}

/** Elige la letra de la copia que más mira a la letra s del original. */
function quienMira(s) {
  const caso = Number(cual.value);
  elegir(ranking(casos[caso][1].map((_, t) => miradaDe(caso, t)[s]))[0]);
}

function nombrar(letra) {
  return letra === FINAL ? 'el final' : spoken(letra);
}

function pintar() {
  const caso = Number(cual.value);
  const [leidas, escritas] = casos[caso];
  const mira = miradaDe(caso, elegida);
  copia.mark(elegida);
  original.clear();
  original.add(leidas, (span, s) =>
    span.style.setProperty('--tint-share', `${Math.round(100 * Math.sqrt(mira[s]))}%`),
  );
  const fuertes = ranking(mira)
    .slice(0, FUERTES)
    .map((s) => `${nombrar(leidas[s])} (${s + 1}.ª) ${Math.round(100 * mira[s])}\u00a0%`);
  const escrita = escritas[elegida];
  const que = escrita === FINAL ? 'el final' : `la ${elegida + 1}.ª letra, ${spoken(escrita)}`;
  frase.textContent = `Para escribir ${que}, mira a ${fuertes.join(', ')}.`;
  arriba.setAttribute('aria-label', `El original: ${fuertes.join(', ')}`);
}

async function abrir() {
  pesos = await inflate(datos.pesos);
  lamina.append(
    element('div', { class: 'row' }, element('label', { for: 'cual' }, 'Original '), cual),
    element('p', { class: 'hint' }, 'A lo que mira:'),
    arriba,
    element('p', { class: 'hint' }, 'Lo que escribe (■ es el final):'),
    abajo,
    frase,
  );
  cambiar();
  lista();
}

abrir();
