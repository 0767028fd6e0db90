// La esfera: una consulta en la posición m y una clave en la posición n, giradas lo que les toca.

const GRADO = Math.PI / 180;
const { paso, consulta, clave, posiciones } = datos; // en grados; cada posición gira un paso más
const RECUERDO = 5;
const probadas = [];

const m = deslizador({
  nombre: 'Consulta, en m =',
  desde: 0,
  hasta: posiciones,
  x: 7,
  alMover: pintar,
});
const n = deslizador({
  nombre: 'Clave, en n =',
  desde: 0,
  hasta: posiciones,
  x: 7,
  alMover: pintar,
});
const juntas = (d) => () => {
  if ([m, n].some(({ valor }) => valor + d < 0 || valor + d > posiciones)) return;
  m.mover(m.valor + d);
  n.mover(n.valor + d);
  anotar();
};
const menos = boton('← las dos', juntas(-1));
const mas = boton('las dos →', juntas(1));
const dibujo = svg('svg', { viewBox: '-1.35 -1.35 2.7 2.7', role: 'img' });
const producto = element('p', { class: 'figure', role: 'status' });
const { caja, cuerpo } = tabla('Lo último que has probado', 'm', 'n', 'm − n', 'producto');

/** Devuelve el producto escalar de dos vectores de longitud 1, hecho con sus coordenadas. */
function escalar(a, b) {
  return Math.cos(a) * Math.cos(b) + Math.sin(a) * Math.sin(b);
}

function angulos() {
  return [(consulta + paso * m.valor) * GRADO, (clave + paso * n.valor) * GRADO];
}

function flecha(angulo, clase, nombre) {
  const [x, y] = [Math.cos(angulo), -Math.sin(angulo)];
  const [atras, lado] = [0.86, 0.07];
  const esquina = (s) => `${x * atras - s * y} ${y * atras + s * x}`;
  const punta = `M${x} ${y}L${esquina(lado)}L${esquina(-lado)}Z`;
  return svg(
    'g',
    { class: clase },
    svg('path', { class: 'asta', d: `M0 0L${x * 0.9} ${y * 0.9}` }),
    svg('path', { class: 'punta', d: punta }),
    svg('text', { x: x * 1.18, y: y * 1.18 + 0.06 }, nombre),
  );
}

function marcas() {
  const radios = Array.from({ length: 360 / paso }, (_, i) => {
    const [x, y] = [Math.cos(i * paso * GRADO), Math.sin(i * paso * GRADO)];
    return `M${x * 0.96} ${y * 0.96}L${x} ${y}`;
  });
  return [
    svg('circle', { r: 1, class: 'linea' }),
    svg('path', { d: radios.join(''), class: 'linea' }),
  ];
}

function pintar() {
  const [q, k] = angulos();
  const valor = escalar(q, k);
  const nombres = valor > 0.97 ? ['q, k', ''] : ['q', 'k']; // donde uno taparía al otro
  dibujo.replaceChildren(...marcas(), flecha(q, 'q', nombres[0]), flecha(k, 'k', nombres[1]));
  const grados = (a) => `${Math.round(a / GRADO)}°`;
  dibujo.setAttribute('aria-label', `Esfera: q a ${grados(q)}, k a ${grados(k)}`);
  producto.textContent = `q · k = ${decimals(valor)}`;
  menos.disabled = Math.min(m.valor, n.valor) === 0;
  mas.disabled = Math.max(m.valor, n.valor) === posiciones;
}

/** Apunta lo probado, una vez cada pareja. */
function anotar() {
  const otra = `${m.valor} ${n.valor}`;
  const antes = probadas.indexOf(otra);
  if (antes >= 0) probadas.splice(antes, 1);
  probadas.unshift(otra);
  probadas.splice(RECUERDO);
  cuerpo.replaceChildren(
    ...probadas.map((pareja) => {
      const [a, b] = pareja.split(' ').map(Number);
      const valor = escalar((consulta + paso * a) * GRADO, (clave + paso * b) * GRADO);
      return fila(String(a), String(b), decimals(a - b, 0), decimals(valor));
    }),
  );
}

for (const { mando } of [m, n]) mando.addEventListener('change', anotar);
lamina.append(
  element(
    'div',
    { class: 'dos' },
    element('div', {}, dibujo),
    element(
      'div',
      {},
      mandos(m.caja, n.caja),
      element('div', { class: 'row' }, menos, mas),
      producto,
      caja,
    ),
  ),
);
pintar();
anotar();
lista();
