// La curva de aprendizaje, y lo que el modelo escribía en cada punto de ella.

const { pasos, muestras } = datos;
const [ANCHO, ALTO, IZQUIERDA, ABAJO] = [600, 250, 40, 34];
const lineas = [
  { nombre: 'entrenamiento', clase: 'aprende', valores: datos.entrenamiento },
  { nombre: 'validación', clase: 'examen', valores: datos.validacion },
];
const todos = lineas.flatMap(({ valores }) => valores.filter((v) => v !== null));
const techo = Math.max(...todos) * 1.05;
const final = Math.max(pasos[pasos.length - 1], ...muestras.map(([paso]) => paso));
const x = (paso) => IZQUIERDA + ((ANCHO - IZQUIERDA - 30) * paso) / final;
const y = (perdida) => (ALTO - ABAJO) * (1 - perdida / techo) + 4;

const mando = deslizador({
  nombre: 'Punto de la curva:',
  desde: 0,
  hasta: muestras.length - 1,
  x: 0,
  lee: (i) => muestras[i][0],
  escribe: (paso) => `paso ${miles(paso)}`,
  alMover: pintar,
});
const aguja = svg('path', { class: 'aguja' });
const grafica = svg(
  'svg',
  { viewBox: `0 0 ${ANCHO} ${ALTO}`, role: 'img', 'aria-label': 'La pérdida, paso a paso' },
  ...ejes(),
  aguja,
  ...lineas.map(({ clase, valores }) => svg('path', { class: clase, d: trazo(valores) })),
);
const discos = muestras.map(([paso]) =>
  svg('circle', { r: 5, cx: x(paso), cy: y(perdidas(paso)[1]) }),
);
const cifras = element('p', { role: 'status', class: 'cifras' });
const texto = element('blockquote', { class: 'muestra' });

/** Devuelve un número: cuatro cifras van juntas. */
function miles(n) {
  return n < 10000 ? String(n) : thousands(n);
}

function ejes() {
  const alturas = Array.from({ length: Math.floor(techo) + 1 }, (_, i) => i);
  const decena = 10 ** Math.floor(Math.log10(final / 6));
  const entre = decena * [1, 2, 5, 10].find((veces) => final / (veces * decena) <= 6);
  const marcas = Array.from({ length: Math.floor(final / entre) + 1 }, (_, i) => i * entre);
  return [
    svg('path', {
      class: 'reja',
      d: alturas.map((v) => `M${IZQUIERDA} ${y(v)}H${ANCHO}`).join(''),
    }),
    ...alturas.map((v) =>
      svg('text', { x: IZQUIERDA - 8, y: y(v) + 4, class: 'derecha' }, String(v)),
    ),
    ...marcas.map((paso) => svg('text', { x: x(paso), y: ALTO - 8, class: 'centro' }, miles(paso))),
  ];
}

function trazo(valores) {
  const puntos = pasos.map((paso, i) => [paso, valores[i]]).filter(([, v]) => v !== null);
  return `M${puntos.map(([paso, v]) => `${x(paso).toFixed(1)} ${y(v).toFixed(1)}`).join('L')}`;
}

/** Devuelve las pérdidas medidas más cerca de un paso. */
function perdidas(paso) {
  return lineas.map(({ valores }) => {
    const medidos = pasos.map((_, i) => i).filter((i) => valores[i] !== null);
    const lejos = (i) => Math.abs(pasos[i] - paso);
    return valores[medidos.reduce((a, b) => (lejos(b) < lejos(a) ? b : a))];
  });
}

function pintar() {
  const i = Number(mando.mando.value);
  const [paso, escrito] = muestras[i];
  aguja.setAttribute('d', `M${x(paso)} 4V${ALTO - ABAJO + 4}`);
  discos.forEach((disco, j) => disco.setAttribute('class', i === j ? 'disco elegido' : 'disco'));
  const medidas = perdidas(paso).map((v, j) => `${lineas[j].nombre} ${decimals(v)}`);
  cifras.textContent = `Paso ${miles(paso)}: ${medidas.join(', ')} nats por carácter.`;
  texto.textContent = escrito;
}

/** Lleva el mando a la muestra más cercana a donde se señala. */
function senalar({ clientX }) {
  const { left, width } = grafica.getBoundingClientRect();
  const donde = ((clientX - left) / width) * ANCHO;
  const lejos = (i) => Math.abs(x(muestras[i][0]) - donde);
  const cerca = muestras.map((_, i) => i).reduce((a, b) => (lejos(b) < lejos(a) ? b : a));
  if (cerca !== Number(mando.mando.value)) mando.mover(cerca);
}

grafica.append(...discos);
grafica.addEventListener('pointermove', senalar);
grafica.addEventListener('pointerdown', senalar);
const clave = ({ nombre, clase }) =>
  element(
    'span',
    { class: 'key' },
    svg(
      'svg',
      { viewBox: '0 0 32 4', 'aria-hidden': true },
      svg('path', { class: clase, d: 'M0 2H32' }),
    ),
    nombre,
  );
lamina.append(
  element(
    'p',
    { class: 'legend' },
    'Pérdida (nats por carácter) según el paso:',
    ...lineas.map(clave),
  ),
  grafica,
  mandos(mando.caja),
  cifras,
  texto,
);
pintar();
lista();
