// Tres neuronas de una entrada: se arrastran hasta que su suma calca una línea quebrada.

const { esquinas, pendientes, desde, hasta } = datos;
const INICIO = [
  [-1.5, 1],
  [0, -2],
  [2, 1.5],
]; // la esquina y la pendiente de cada neurona al abrir
const [MEDIDAS, PASO] = [121, 0.5];
const puntos = Array.from(
  { length: MEDIDAS },
  (_, i) => desde + ((hasta - desde) * i) / (MEDIDAS - 1),
);
const relu = (z) => Math.max(0, z);
const meta = puntos.map((x) => suma(x, esquinas, pendientes, relu));
const hallado = { con: Infinity, sin: Infinity };

const activa = element('input', { type: 'checkbox', checked: true, onchange: pintar });
const neuronas = INICIO.map(([esquina, pendiente], i) => {
  const opciones = { paso: PASO, escribe: (x) => decimals(x, 1), alMover: pintar };
  const deEsquina = { nombre: `Esquina ${i + 1}:`, desde, hasta: hasta - 1, x: esquina };
  const dePendiente = { nombre: `Pendiente ${i + 1}:`, desde: -3, hasta: 3, x: pendiente };
  return {
    esquina: deslizador({ ...opciones, ...deEsquina }),
    pendiente: deslizador({ ...opciones, ...dePendiente }),
    linea: svg('path', { class: `neurona n${i + 1}` }),
    asa: svg('circle', { class: `asa n${i + 1}`, r: 0.3 }),
    numero: svg('text', { class: 'numero' }, String(i + 1)),
  };
});
const sumada = svg('path', { class: 'suma' });
const partes = panel(
  'Las tres neuronas, con un asa cada una',
  3.5,
  ...neuronas.flatMap(({ linea, asa, numero }) => [linea, asa, numero]),
);
const total = panel(
  'La suma de las tres, y la línea de trazos que hay que calcar',
  2.6,
  svg('path', { class: 'meta', d: trazo(meta) }),
  sumada,
);
const formula = element('p', { class: 'cifras' });
const frase = element('p', { role: 'status', class: 'cifras' });

/** Devuelve la suma de unas neuronas en un punto. */
function suma(x, esquinas, pendientes, activacion) {
  return esquinas.reduce((total, e, i) => total + pendientes[i] * activacion(x - e), 0);
}

function panel(nombre, techo, ...dibujos) {
  const ancho = hasta - desde + 0.6;
  return svg(
    'svg',
    {
      viewBox: `${desde - 0.3} ${-techo} ${ancho} ${2 * techo}`,
      role: 'img',
      'aria-label': nombre,
    },
    svg('path', { class: 'ejes', d: `M${desde} 0H${hasta}M0 ${-techo}V${techo}` }),
    ...dibujos,
  );
}

function trazo(alturas) {
  return `M${puntos.map((x, i) => `${x.toFixed(2)} ${(-alturas[i]).toFixed(3)}`).join('L')}`;
}

/** Devuelve un sumando, con su signo si no es el primero. */
function termino({ esquina, pendiente }, i) {
  const [v, e] = [pendiente.valor, esquina.valor];
  const signo = v < 0 ? '−' : i ? '+' : '';
  const dentro = e ? `x ${e < 0 ? '+' : '−'} ${Math.abs(e)}` : 'x';
  return `${signo} ${Math.abs(v)} · ${activa.checked ? 'ReLU' : ''}(${dentro})`;
}

function pintar() {
  const activacion = activa.checked ? relu : (z) => z;
  const [todas, valen] = ['esquina', 'pendiente'].map((que) => neuronas.map((n) => n[que].valor));
  neuronas.forEach(({ linea, asa, numero }, i) => {
    linea.setAttribute('d', trazo(puntos.map((x) => valen[i] * activacion(x - todas[i]))));
    for (const [que, valor] of [
      ['x', todas[i] + 1],
      ['y', -valen[i]],
    ]) {
      asa.setAttribute(`c${que}`, valor);
      numero.setAttribute(que, valor);
    }
  });
  const da = puntos.map((x) => suma(x, todas, valen, activacion));
  const error = da.reduce((total, y, i) => total + (y - meta[i]) ** 2, 0) / MEDIDAS;
  const clase = activa.checked ? 'con' : 'sin';
  hallado[clase] = Math.min(hallado[clase], error);
  sumada.setAttribute('d', trazo(da));
  formula.textContent = neuronas.map(termino).join(' ').trim();
  const lo = (clase) => (hallado[clase] < Infinity ? decimals(hallado[clase]) : 'sin probar');
  frase.textContent =
    `Error (media de los cuadrados): ${decimals(error)}. Lo más bajo hasta ahora: ` +
    `con ReLU, ${lo('con')}; sin ReLU, ${lo('sin')}.`;
}

/** Lleva una neurona a donde está el dedo: su asa va un paso a la derecha de la esquina. */
function arrastrar({ esquina, pendiente }, { clientX, clientY }) {
  const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(partes.getScreenCTM().inverse());
  const cerca = (valor) => Math.round(valor / PASO) * PASO;
  if (cerca(x - 1) !== esquina.valor) esquina.mover(cerca(x - 1));
  if (cerca(-y) !== pendiente.valor) pendiente.mover(cerca(-y));
}

for (const neurona of neuronas) {
  const { asa } = neurona;
  asa.addEventListener('pointerdown', (suceso) => {
    suceso.preventDefault();
    asa.setPointerCapture(suceso.pointerId);
  });
  asa.addEventListener('pointermove', (suceso) => {
    if (asa.hasPointerCapture(suceso.pointerId)) arrastrar(neurona, suceso);
  });
}
lamina.append(
  element('label', { class: 'mando casilla' }, activa, ' con ReLU'),
  element(
    'div',
    { class: 'dos' },
    element('div', {}, element('h3', {}, 'Cada neurona'), partes),
    element('div', {}, element('h3', {}, 'Su suma'), total),
  ),
  formula,
  frase,
  mandos(...neuronas.flatMap(({ esquina, pendiente }) => [esquina.caja, pendiente.caja])),
);
pintar();
lista();
