// Una bola en un valle alargado: descenso de gradiente, con inercia o sin ella.

const { curvas, salida, cerca, lejos, limite } = datos;
const [ANCHO, ALTO] = [20, 8.4];
let camino, velocidad, reloj;

const tasa = deslizador({
  nombre: 'Tasa de aprendizaje',
  desde: 0.01,
  hasta: 0.4,
  paso: 0.01,
  x: 0.05,
  escribe: (x) => decimals(x),
  alMover: empezar,
});
const inercia = deslizador({
  nombre: 'Inercia (momentum)',
  desde: 0,
  hasta: 0.95,
  paso: 0.05,
  x: 0,
  escribe: (x) => decimals(x),
  alMover: empezar,
});
const uno = boton('Un paso', () => (parar(), dar()));
const correr = boton('Corre', () => (reloj ? parar() : arrancar()), 'primary');
const huella = svg('path', { class: 'huella' });
const puntos = svg('g', { class: 'puntos' });
const bola = svg('circle', { class: 'bola', r: 0.26 });
const frase = element('p', { role: 'status', class: 'cifras' });

/** La altura del valle: la mitad de c₁x² + c₂y². */
function altura([x, y]) {
  return (curvas[0] * x * x + curvas[1] * y * y) / 2;
}

/** Da un paso: la velocidad guarda parte de la anterior y suma el gradiente, como en PyTorch. */
function dar() {
  if (estado()) return;
  const aqui = camino[camino.length - 1];
  velocidad = velocidad.map((v, i) => inercia.valor * v + curvas[i] * aqui[i]);
  camino.push(aqui.map((x, i) => x - tasa.valor * velocidad[i]));
  pintar();
}

/** Devuelve cómo acabó, o nada si la bola sigue en marcha. */
function estado() {
  const alto = altura(camino[camino.length - 1]);
  const pasos = camino.length - 1;
  if (alto < cerca) return `Llegó al fondo en ${count(pasos, 'paso', 'pasos')}.`;
  if (!(alto < lejos * altura(salida)))
    return `Diverge: salió disparada en ${count(pasos, 'paso', 'pasos')}.`;
  if (pasos >= limite) return `No ha llegado en ${pasos} pasos.`;
  return '';
}

function pintar() {
  const [x, y] = camino[camino.length - 1];
  huella.setAttribute(
    'd',
    `M${camino.map(([x, y]) => `${x.toFixed(3)} ${(-y).toFixed(3)}`).join('L')}`,
  );
  puntos.replaceChildren(...camino.map(([x, y]) => svg('circle', { r: 0.1, cx: x, cy: -y })));
  bola.setAttribute('cx', x);
  bola.setAttribute('cy', -y);
  const fin = estado();
  const alto = altura([x, y]);
  const perdida = alto < 1e6 ? decimals(alto, alto < 100 ? 3 : 0) : alto.toExponential(1);
  frase.textContent = `Paso ${camino.length - 1}: pérdida ${perdida}. ${fin}`;
  frase.classList.toggle('mal', fin.startsWith('Diverge'));
  uno.disabled = correr.disabled = Boolean(fin);
  if (fin) parar();
}

function arrancar() {
  if (quieta) {
    while (!estado()) dar();
    return;
  }
  correr.textContent = 'Para';
  reloj = setInterval(dar, 120);
}

function parar() {
  clearInterval(reloj);
  reloj = null;
  correr.textContent = 'Corre';
}

function empezar() {
  camino = [salida];
  velocidad = [0, 0];
  pintar();
}

const curvasDeNivel = Array.from({ length: 7 }, (_, i) => {
  const nivel = 1.5 * (i + 1) ** 2;
  const [rx, ry] = curvas.map((c) => Math.sqrt((2 * nivel) / c));
  return svg('ellipse', { class: 'nivel', rx, ry });
});
lamina.append(
  mandos(tasa.caja, inercia.caja),
  element(
    'div',
    { class: 'row' },
    uno,
    correr,
    boton('Al principio', () => (parar(), empezar())),
  ),
  svg(
    'svg',
    {
      viewBox: `${-ANCHO / 2} ${-ALTO / 2} ${ANCHO} ${ALTO}`,
      role: 'img',
      'aria-label': 'El valle desde arriba, con curvas de nivel, y el camino de la bola',
    },
    ...curvasDeNivel,
    svg('path', { class: 'fondo', d: 'M-.25 0H.25M0 -.25V.25' }),
    huella,
    puntos,
    bola,
  ),
  frase,
);
empezar();
lista();
