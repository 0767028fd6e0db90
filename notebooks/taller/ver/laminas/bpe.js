// BPE paso a paso: las fusiones vienen hechas; aquí se aplican, hacia delante y hacia atrás.

const { palabras, fusiones } = datos;
const COLORES = 6;
const nacida = new Map(fusiones.map(([a, b], i) => [a + b, i]));
let paso = 0;

const mando = deslizador({
  nombre: 'Fusiones hechas',
  desde: 0,
  hasta: fusiones.length,
  x: 0,
  alMover: () => ir(mando.valor),
});
const atras = boton('← Deshaz', () => mando.mover(paso - 1));
const adelante = boton('Funde →', () => mando.mover(paso + 1), 'primary');
const frase = element('p', { role: 'status', class: 'cifras' });
const texto = element('p', { class: 'tokens' });
const cuentas = element('p', { class: 'cifras' });
const pares = element('ol', { class: 'pares' });

/** Junta en un token cada aparición de la pareja a, b, de izquierda a derecha. */
function fundir(tokens, a, b) {
  const nuevos = [];
  for (let i = 0; i < tokens.length; i++) {
    if (tokens[i] === a && tokens[i + 1] === b) nuevos.push(a + tokens[++i]);
    else nuevos.push(tokens[i]);
  }
  return nuevos;
}

function despuesDe(n) {
  const hechas = fusiones.slice(0, n);
  return palabras.map((letras) =>
    hechas.reduce((tokens, [a, b]) => fundir(tokens, a, b), [...letras]),
  );
}

/** Devuelve las parejas vecinas dentro de las palabras, la más repetida primero. */
function contarPares(troceadas) {
  const veces = new Map();
  for (const tokens of troceadas) {
    for (let i = 1; i < tokens.length; i++) {
      const par = JSON.stringify([tokens[i - 1], tokens[i]]);
      veces.set(par, (veces.get(par) ?? 0) + 1);
    }
  }
  return Array.from(veces, ([par, n]) => [...JSON.parse(par), n]).sort(
    ([a, b, n], [c, d, m]) => m - n || (a === c ? despues(b, d) : despues(a, c)),
  );
}

/** Entre iguales, primero la última por orden alfabético. */
const despues = (a, b) => (a > b ? -1 : a < b ? 1 : 0);

function ir(n) {
  paso = n;
  atras.disabled = paso === 0;
  adelante.disabled = paso === fusiones.length;
  const troceadas = despuesDe(paso);
  const ultima = paso ? fusiones[paso - 1] : null;
  frase.textContent = ultima
    ? `Fusión ${paso}: «${rotulo(ultima[0])}» + «${rotulo(ultima[1])}», ` +
      `${count(ultima[2], 'vez', 'veces')}.`
    : 'Todavía no hay fusiones: cada token es una letra.';
  texto.replaceChildren(
    ...troceadas.map((tokens) =>
      element('span', { class: 'palabra' }, ...tokens.map((uno) => trozo(uno, ultima))),
    ),
  );
  const total = troceadas.reduce((suma, tokens) => suma + tokens.length, 0);
  const letras = new Set(palabras.join('')).size;
  cuentas.textContent =
    `El texto mide ${count(total, 'token', 'tokens')}. ` +
    `El vocabulario tiene ${letras + paso}: ${letras} letras y ` +
    `${count(paso, 'fusión', 'fusiones')}.`;
  pares.replaceChildren(
    ...contarPares(troceadas)
      .slice(0, 5)
      .map(([a, b, veces]) => element('li', {}, `${rotulo(a)} + ${rotulo(b)}: ${veces}`)),
  );
}

function trozo(uno, ultima) {
  const n = nacida.get(uno);
  const clases = n === undefined ? 'trozo' : `trozo color${n % COLORES}`;
  const nueva = ultima && uno === ultima[0] + ultima[1] ? ' nueva' : '';
  return element('span', { class: clases + nueva }, rotulo(uno));
}

lamina.append(
  mandos(mando.caja),
  element('div', { class: 'row' }, atras, adelante),
  frase,
  texto,
  cuentas,
  element('details', {}, element('summary', {}, 'Las parejas más repetidas ahora'), pares),
);
ir(0);
lista();
