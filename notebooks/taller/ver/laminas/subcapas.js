// Una pila de bloques con un interruptor por subcapa: la corriente residual sigue siempre.

const { texto, perdidas, letras } = datos;
const n = datos.subcapas;
const vino = Array.from(texto);
const TINTES = [0, 18, 38, 65, 100, 100]; // de menos a más sorpresa
const RECUERDO = 4;
const encendidas = Array(n).fill(true);
const probadas = [];
let tintes, apuestas;

const nombre = (i) => `${i % 2 ? 'feed-forward' : 'atención'} del bloque ${Math.floor(i / 2) + 1}`;
const interruptores = encendidas.map((_, i) => {
  const mando = boton('', () => cambiar(i), 'interruptor');
  mando.append(
    element('span', { class: 'largo' }, i % 2 ? 'feed-forward' : 'atención'),
    element('span', { class: 'corto' }, i % 2 ? 'FF' : 'At'),
  );
  mando.setAttribute('aria-label', i % 2 ? `FF: ${nombre(i)}` : `At: ${nombre(i)}`);
  return mando;
});
const columnas = interruptores.map((mando) =>
  element(
    'div',
    { class: 'subcapa' },
    mando,
    element('span', { class: 'cable', 'aria-hidden': true }),
    element('span', { class: 'mas', 'aria-hidden': true }, '+'),
  ),
);
const bloques = Array.from({ length: n / 2 }, (_, i) =>
  element(
    'div',
    { class: 'bloque', role: 'group', 'aria-label': `Bloque ${i + 1}` },
    element('span', { class: 'titulo', 'aria-hidden': true }, `bloque ${i + 1}`),
    ...columnas.slice(2 * i, 2 * i + 2),
  ),
);
const frase = element('p', { role: 'status', class: 'cifras' });
const lectura = element('div', { class: 'lectura', role: 'img' });
const { caja, cuerpo } = tabla('Lo último que has probado', 'apagado', 'pérdida', 'sube');

/** Devuelve el número de lo que está encendido: el último es todo. */
function cual() {
  return encendidas.reduce((numero, si) => 2 * numero + Number(si), 0);
}

function cambiar(i) {
  encendidas[i] = !encendidas[i];
  pintar();
}

function todo(si) {
  encendidas.fill(si);
  pintar();
}

/** Devuelve lo apagado con palabras, o lo encendido si es menos. */
function apagado(combinacion) {
  const esta = (i) => ((combinacion >> (n - 1 - i)) & 1) === 1;
  const todas = encendidas.map((_, i) => i);
  const [fuera, dentro] = [todas.filter((i) => !esta(i)), todas.filter(esta)];
  if (!fuera.length) return 'nada';
  if (!dentro.length) return 'todo';
  const corto = (i) => `${i % 2 ? 'feed-forward' : 'atención'} ${Math.floor(i / 2) + 1}`;
  const nombrar = (estas) => estas.map(corto).join(', ');
  return fuera.length > dentro.length ? `todo menos ${nombrar(dentro)}` : nombrar(fuera);
}

function pintar() {
  const combinacion = cual();
  interruptores.forEach((mando, i) => {
    mando.setAttribute('aria-pressed', encendidas[i]);
    columnas[i].classList.toggle('apagada', !encendidas[i]);
  });
  let aciertos = 0;
  const palabras = [element('span', { class: 'palabra' })];
  vino.forEach((letra, t) => {
    const lugar = t * perdidas.length + combinacion;
    const dijo = letras[apuestas[lugar]];
    aciertos += dijo === letra;
    palabras[palabras.length - 1].append(columna(letra, dijo, tintes[lugar]));
    if (/\s/.test(letra)) palabras.push(element('span', { class: 'palabra' }));
  });
  lectura.replaceChildren(...palabras);
  lectura.setAttribute('aria-label', `«${texto}»: acierta ${aciertos} letras`);
  const sube = perdidas[combinacion] - perdidas[perdidas.length - 1];
  frase.textContent =
    `Pérdida: ${decimals(perdidas[combinacion])} nats por carácter` +
    (sube ? ` (${sube < 0 ? '' : '+'}${decimals(sube)})` : '') +
    `. De las ${vino.length} letras de abajo acierta ${aciertos}.`;
  anotar(combinacion);
}

/** Devuelve una letra del texto, teñida, y debajo la que habría escrito el modelo si era otra. */
function columna(letra, dijo, tinte) {
  const arriba = element('b', tinte === 5 ? { class: 'mucho' } : {}, letra === '\n' ? '↵' : letra);
  arriba.style.setProperty('--tint-share', `${TINTES[tinte]}%`);
  return element('span', {}, arriba, element('i', {}, dijo === letra ? ' ' : rotulo(dijo)));
}

/** Apunta lo probado, lo último arriba. */
function anotar(combinacion) {
  const antes = probadas.indexOf(combinacion);
  if (antes >= 0) probadas.splice(antes, 1);
  probadas.unshift(combinacion);
  probadas.splice(RECUERDO);
  const entera = perdidas[perdidas.length - 1];
  cuerpo.replaceChildren(
    ...probadas.map((otra) =>
      fila(apagado(otra), decimals(perdidas[otra]), decimals(perdidas[otra] - entera)),
    ),
  );
}

async function abrir() {
  [tintes, apuestas] = await Promise.all([inflate(datos.tintes), inflate(datos.apuestas)]);
  lamina.append(
    element('div', { class: 'pila' }, ...bloques),
    element(
      'div',
      { class: 'extremos', 'aria-hidden': true },
      element('span', {}, 'embedding'),
      element('span', {}, 'corriente residual'),
      element('span', {}, 'cabeza de salida'),
    ),
    element(
      'div',
      { class: 'row' },
      boton('Enciende todo', () => todo(true)),
      boton('Apaga todo', () => todo(false)),
    ),
    frase,
    lectura,
    element(
      'p',
      { class: 'hint' },
      'Más teñida, más sorpresa; debajo, lo que habría escrito donde se equivoca.',
    ),
    caja,
  );
  pintar();
  lista();
}

abrir();
