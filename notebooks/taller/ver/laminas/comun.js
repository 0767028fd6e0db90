// Lo que comparten las láminas: los datos, los mandos y el marco en que viven.

const datos = JSON.parse($('datos').textContent);
const lamina = $('lamina');
const quieta = matchMedia('(prefers-reduced-motion: reduce)').matches;

/** Devuelve un texto en que se ven los espacios y los saltos de línea. */
function rotulo(texto) {
  return texto.replaceAll(' ', '·').replaceAll('\n', '↵');
}

/** Devuelve una letra como se lee en voz alta. */
function spoken(letra) {
  if (letra === ' ') return 'espacio';
  return letra === '\n' ? 'salto de línea' : `«${visible(letra)}»`;
}

function count(n, uno, varios) {
  return `${thousands(n)} ${n === 1 ? uno : varios}`;
}

/** Devuelve el nombre de una opción: una letra que no se ve, por su abreviatura. */
function signo(texto) {
  const nombre = texto === ' ' ? 'esp.' : rotulo(texto);
  return element('span', { class: 'signo' }, nombre);
}

/** Devuelve una probabilidad, con su cifra y su barra. */
function porcion(p) {
  return element('span', { class: 'porcion' }, percent(p), bar(p));
}

/**
 * Devuelve un mando que se desliza. Su posición x vale lee(x), y escribe() lo dice con palabras.
 */
function deslizador({
  nombre,
  desde,
  hasta,
  paso = 1,
  x,
  lee = (x) => x,
  escribe = String,
  alMover,
}) {
  const salida = element('b');
  const mando = element('input', { type: 'range', min: desde, max: hasta, step: paso, value: x });
  const yo = {
    caja: element('label', { class: 'mando' }, element('span', {}, nombre, ' ', salida), mando),
    mando,
    get valor() {
      return lee(Number(mando.value));
    },
    /** Lleva el mando a la posición x, como si alguien lo moviera. */
    mover(x) {
      mando.value = x;
      anotar();
    },
  };
  function anotar() {
    salida.textContent = escribe(yo.valor);
    mando.setAttribute('aria-valuetext', salida.textContent);
    alMover();
  }
  salida.textContent = escribe(yo.valor);
  mando.setAttribute('aria-valuetext', salida.textContent);
  mando.addEventListener('input', anotar);
  return yo;
}

function boton(texto, alPulsar, clase = null) {
  return element('button', { type: 'button', class: clase, onclick: alPulsar }, texto);
}

function mandos(...cajas) {
  return element('div', { class: 'mandos' }, ...cajas);
}

/** Devuelve una tabla: su título, los nombres de las columnas y un cuerpo todavía vacío. */
function tabla(titulo, ...columnas) {
  const cuerpo = element('tbody');
  const nombres = columnas.map((nombre) => element('th', { scope: 'col' }, nombre));
  const cabeza = element('thead', {}, element('tr', {}, ...nombres));
  const caja = element('table', {}, element('caption', {}, titulo), cabeza, cuerpo);
  return { caja, cuerpo };
}

function fila(...celdas) {
  const [primera, ...otras] = celdas;
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, primera),
    ...otras.map((celda) => element('td', {}, celda)),
  );
}

/** La lámina funciona: la figura quieta ya no hace falta, y el marco toma la altura que pide. */
function lista() {
  document.documentElement.classList.add('lista');
  const marco = window.frameElement;
  if (!marco) return;
  marco.nextElementSibling.style.display = 'none';
  const medir = () => (marco.style.height = `${document.body.offsetHeight}px`);
  new ResizeObserver(medir).observe(document.body);
  medir();
}
