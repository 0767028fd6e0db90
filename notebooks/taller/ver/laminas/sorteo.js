// El sorteo de la letra siguiente: los mandos de sample.py, y cien sorteos siempre iguales.

const SEMILLA = 1605;
const SORTEOS = 100;
const { puntuaciones, etiquetas } = datos;
const n = puntuaciones.length;
const orden = ranking(puntuaciones);
const antes = softmax(puntuaciones);
const visibles = n > 16 ? orden.slice(0, 14) : orden;
const demas = orden.slice(visibles.length);

const mando = {
  temperature: deslizador({
    nombre: 'Temperatura',
    desde: 0.1,
    hasta: 2,
    paso: 0.05,
    x: 1,
    escribe: (T) => decimals(T),
    alMover: pintar,
  }),
  top_k: deslizador({
    nombre: 'top-k',
    desde: 1,
    hasta: n,
    x: n,
    lee: (k) => (k < n ? k : null),
    escribe: (k) => (k ? `las ${k} primeras` : 'apagado'),
    alMover: pintar,
  }),
  top_p: deslizador({
    nombre: 'top-p',
    desde: 0.05,
    hasta: 1,
    paso: 0.05,
    x: 1,
    lee: (p) => (p < 1 ? p : null),
    escribe: (p) => (p ? decimals(p) : 'apagado'),
    alMover: pintar,
  }),
  min_p: deslizador({
    nombre: 'min-p',
    desde: 0,
    hasta: 0.5,
    paso: 0.01,
    x: 0,
    lee: (p) => (p > 0 ? p : null),
    escribe: (p) => (p ? decimals(p) : 'apagado'),
    alMover: pintar,
  }),
};
const { caja, cuerpo } = tabla(
  'Probabilidad de cada letra',
  'letra',
  'sale',
  'del modelo y con los mandos',
);
const resumen = element('p', { role: 'status', class: 'cifras' });

/** Devuelve los logits después de los mandos; −∞ es una letra que ya no puede salir. */
function conMandos() {
  const ajustes = Object.entries(mando).map(([nombre, { valor }]) => [nombre, valor]);
  return shapeLogits(puntuaciones, { ...SAMPLING_DEFAULTS, ...Object.fromEntries(ajustes) });
}

function pintar(veces = null) {
  const logits = conMandos();
  const ahora = softmax(logits);
  const suma = (numeros, de) => de.reduce((total, i) => total + numeros[i], 0);
  const linea = (rotulado, de) => {
    const fuera = de.every((i) => logits[i] === -Infinity);
    const salidas = veces ? String(suma(veces, de)) : '—';
    const tr = fila(rotulado, fuera ? 'fuera' : salidas, dos(suma(antes, de), suma(ahora, de)));
    if (fuera) tr.className = 'fuera';
    return tr;
  };
  cuerpo.replaceChildren(...visibles.map((i) => linea(signo(etiquetas[i]), [i])));
  if (demas.length) cuerpo.append(linea(`otras ${demas.length}`, demas));
  const quedan = logits.filter((x) => x > -Infinity).length;
  const distintas = veces
    ? `; en ${SORTEOS} sorteos salieron ${veces.filter((v) => v).length}`
    : '';
  resumen.textContent = `Pueden salir ${quedan} de ${n} letras${distintas}.`;
}

function dos(p, q) {
  return element('span', {}, porcion(p), element('span', { class: 'ahora' }, porcion(q)));
}

/** Sortea siempre con los mismos cien números: lo que cambia, cambia por los mandos. */
function sortear() {
  const azar = new Generator(SEMILLA, [SAMPLING, 0]);
  const logits = conMandos();
  const veces = new Array(n).fill(0);
  for (let i = 0; i < SORTEOS; i++) veces[choose(logits, azar.random())]++;
  pintar(veces);
}

lamina.append(
  mandos(...Object.values(mando).map(({ caja }) => caja)),
  element('div', { class: 'row' }, boton(`Sortea ${SORTEOS} letras`, sortear, 'primary'), resumen),
  caja,
);
pintar();
lista();
