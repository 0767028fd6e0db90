// La cuenta de la atención, entera y a la vista, mientras se mueven los números de una palabra.

const { palabras } = datos;
const CLASES = { q: 'la consulta', k: 'la clave', v: 'el valor' };
const d_k = datos.q[0].length;
const raiz = Math.sqrt(d_k);
const orden = palabras.map((_, i) => i);
let vectores;
let elegido = { clase: 'k', palabra: 0 };

const quien = element(
  'select',
  { id: 'quien', onchange: pintar },
  ...palabras.map((palabra, i) => element('option', { value: i }, palabra)),
);
quien.value = datos.quien;
const aEscala = casilla(`÷ √${d_k}`);
const conMascara = casilla('máscara');

const botones = [];
const tablaDeVectores = tabla('Elige qué mover', 'palabra', 'consulta q', 'clave k', 'valor v');
const quePasa = element('p', { class: 'hint' });
const numeros = Array.from({ length: d_k }, (_, i) =>
  deslizador({
    nombre: `número ${i + 1}`,
    desde: datos.menor,
    hasta: datos.mayor,
    paso: datos.paso,
    x: 0,
    escribe: (x) => decimals(x),
    alMover: () => {
      vectores[elegido.clase][elegido.palabra][i] = numeros[i].valor;
      pintar();
    },
  }),
);
const puntos = matriz(palabras);
const puntuaciones = matriz(palabras);
const pesos = matriz(palabras);
const salidas = matriz(numeros.map((_, i) => String(i + 1)));
const frase = element('p', { role: 'status', class: 'cifras' });

function casilla(nombre) {
  const marca = element('input', { type: 'checkbox', checked: true, onchange: pintar });
  return { caja: element('label', { class: 'casilla' }, marca, ` ${nombre}`), marca };
}

/** Devuelve una tabla con una fila por palabra que pregunta, todavía sin números. */
function matriz(columnas) {
  const titulo = element('caption');
  const esquina = element('td', {}, '');
  const nombres = columnas.map((nombre) => element('th', { scope: 'col' }, nombre));
  const cuerpo = element('tbody');
  const cabeza = element('thead', {}, element('tr', {}, esquina, ...nombres));
  return { caja: element('table', { class: 'matriz' }, titulo, cabeza, cuerpo), titulo, cuerpo };
}

/** Pone los números en una matriz; viste(celda, i, j) puede cambiar cómo se ve cada uno. */
function llenar({ titulo, cuerpo }, nombre, filas, viste = () => {}) {
  titulo.textContent = nombre;
  cuerpo.replaceChildren(
    ...filas.map((valores, i) => {
      const renglon = fila(palabras[i], ...valores.map(escribir));
      if (i === Number(quien.value)) renglon.classList.add('pregunta');
      Array.from(renglon.children)
        .slice(1)
        .forEach((celda, j) => viste(celda, i, j));
      return renglon;
    }),
  );
}

/** Devuelve un número sin ceros de más, que en un botón no caben. */
function corto(x) {
  return String(x).replace('-', '−');
}

function escribir(x) {
  return x === -Infinity ? '−∞' : decimals(x);
}

function escalar(a, b) {
  return a.reduce((suma, x, i) => suma + x * b[i], 0);
}

/** Devuelve los cuatro pasos: productos, puntuaciones, pesos y salidas, una fila por palabra. */
function calcular() {
  const { q, k, v } = vectores;
  const tapado = (i, j) => conMascara.marca.checked && j > i;
  const divisor = aEscala.marca.checked ? raiz : 1;
  const productos = q.map((consulta) => k.map((clave) => escalar(consulta, clave)));
  const escaladas = productos.map((fila, i) =>
    fila.map((s, j) => (tapado(i, j) ? -Infinity : s / divisor)),
  );
  const repartos = escaladas.map((fila) => Array.from(softmax(fila)));
  const columnas = v[0].map((_, c) => v.map((valor) => valor[c]));
  const mezclas = repartos.map((a) => columnas.map((columna) => escalar(a, columna)));
  return { productos, escaladas, repartos, mezclas };
}

function elegir(clase, palabra) {
  elegido = { clase, palabra };
  vectores[clase][palabra].slice().forEach((x, i) => numeros[i].mover(x));
  pintar();
}

function pintar() {
  const { productos, escaladas, repartos, mezclas } = calcular();
  for (const { boton, clase, palabra } of botones) {
    const partes = vectores[clase][palabra].map((x) => element('span', {}, corto(x)));
    const suNombre = `${CLASES[clase]} de ${palabras[palabra]}: `;
    const nombre = element('span', { class: 'hidden' }, suNombre);
    boton.replaceChildren(nombre, ...partes.flatMap((parte) => [parte, ' ']));
    const suyo = clase === elegido.clase && palabra === elegido.palabra;
    boton.setAttribute('aria-pressed', suyo);
  }
  quePasa.textContent = `Mueves ${CLASES[elegido.clase]} de «${palabras[elegido.palabra]}»:`;
  const tapada = (celda, i, j) => celda.classList.toggle('tapada', escaladas[i][j] === -Infinity);
  const hecho = [aEscala.marca.checked && `÷ √${d_k}`, conMascara.marca.checked && 'máscara'];
  llenar(puntos, '1. q · k', productos);
  llenar(puntuaciones, `2. ${hecho.filter(Boolean).join(', ') || 'sin tocar'}`, escaladas, tapada);
  llenar(pesos, '3. softmax: pesos', repartos, (celda, i, j) => {
    tapada(celda, i, j);
    celda.style.setProperty('--peso', `${Math.round(80 * repartos[i][j])}%`);
  });
  llenar(salidas, '4. mezcla de v', mezclas);
  contar(Number(quien.value), repartos, mezclas);
}

function contar(i, repartos, mezclas) {
  const partes = orden
    .filter((j) => !(conMascara.marca.checked && j > i))
    .map((j) => `${percent(repartos[i][j])} a «${palabras[j]}»`);
  const salida = mezclas[i].map((x) => decimals(x)).join(', ');
  frase.textContent = `«${palabras[i]}» da ${partes.join(', ')}. Sale [${salida}].`;
}

function empezar() {
  vectores = Object.fromEntries(
    Object.keys(CLASES).map((clase) => [clase, datos[clase].map((vector) => vector.slice())]),
  );
  elegir(elegido.clase, elegido.palabra);
}

palabras.forEach((nombre, palabra) => {
  const suyos = Object.keys(CLASES).map((clase) => {
    const uno = boton('', () => elegir(clase, palabra), 'vector');
    botones.push({ boton: uno, clase, palabra });
    return uno;
  });
  tablaDeVectores.cuerpo.append(fila(nombre, ...suyos));
});
lamina.append(
  element(
    'div',
    { class: 'dos' },
    tablaDeVectores.caja,
    element('div', {}, quePasa, ...numeros.map(({ caja }) => caja)),
  ),
  element(
    'div',
    { class: 'row' },
    element('label', { for: 'quien' }, 'Pregunta '),
    quien,
    aEscala.caja,
    conMascara.caja,
    boton('Como al principio', empezar),
  ),
  element('div', { class: 'matrices' }, puntos.caja, puntuaciones.caja, pesos.caja, salidas.caja),
  frase,
);
empezar();
lista();
