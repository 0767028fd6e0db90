// LayerNorm y RMSNorm con los mismos cuatro números, que se mueven de uno en uno o todos a la vez.

const { limite, paso, eps } = datos;
const MAYOR_SALIDA = 2; // √C: más no puede salir de cuatro canales
const MEDIDAS = { media, 'desviación típica': desviacion, 'media cuadrática': cuadratica };

const canales = datos.numeros.map((x, i) =>
  deslizador({
    nombre: `Canal ${i + 1}:`,
    desde: -limite,
    hasta: limite,
    paso,
    x,
    escribe: (x) => decimals(x, 1),
    alMover: pintar,
  }),
);
const { caja, cuerpo } = tabla('Antes y después', 'canal', 'números', 'LayerNorm', 'RMSNorm');
const frase = element('p', { role: 'status', class: 'hint' });

function media(x) {
  return x.reduce((suma, valor) => suma + valor, 0) / x.length;
}

function varianza(x) {
  const centro = media(x);
  return media(x.map((valor) => (valor - centro) ** 2));
}

function desviacion(x) {
  return Math.sqrt(varianza(x));
}

function cuadratica(x) {
  return Math.sqrt(media(x.map((valor) => valor ** 2)));
}

function layerNorm(x) {
  const [centro, divisor] = [media(x), Math.sqrt(varianza(x) + eps.layernorm)];
  return x.map((valor) => (valor - centro) / divisor);
}

function rmsNorm(x) {
  const divisor = Math.sqrt(media(x.map((valor) => valor ** 2)) + eps.rmsnorm);
  return x.map((valor) => valor / divisor);
}

/** Devuelve un número con dos decimales, y sin signo si se quedan en cero. */
function cifra(x) {
  return decimals(Math.round(100 * x) / 100);
}

/** Devuelve un número y su barra, que sale del centro: a la izquierda si es negativo. */
function conSigno(x, mayor) {
  const largo = (50 * Math.abs(x)) / mayor;
  const barra = element('span', { class: `salto ${x < 0 ? 'menos' : 'mas'}`, 'aria-hidden': true });
  barra.append(element('span'));
  barra.firstChild.style.width = `${largo}%`;
  return element('span', { class: 'medido' }, cifra(x), barra);
}

function pintar() {
  const antes = canales.map((canal) => canal.valor);
  const columnas = [antes, layerNorm(antes), rmsNorm(antes)];
  cuerpo.replaceChildren(
    ...antes.map((_, i) =>
      fila(String(i + 1), ...columnas.map((x, c) => conSigno(x[i], c ? MAYOR_SALIDA : limite))),
    ),
    ...Object.entries(MEDIDAS).map(([nombre, medir]) => {
      const renglon = fila(nombre, ...columnas.map((x) => cifra(medir(x))));
      renglon.classList.add('medida');
      return renglon;
    }),
  );
  const [una, otra] = columnas.slice(1).map((x) => x.map(cifra).join(', '));
  decir(`LayerNorm da ${una}. RMSNorm da ${otra}.`);
}

/** Lo que ya dice la tabla se dice solo a quien no la ve. */
function decir(texto, aLaVista = false) {
  frase.textContent = texto;
  frase.classList.toggle('hidden', !aLaVista);
}

/** Cambia los cuatro números a la vez, si caben. */
function cambiar(como) {
  const nuevos = canales.map((canal) => como(canal.valor));
  if (nuevos.some((x) => Math.abs(x) > limite))
    decir(`No cabe: alguno se saldría de −${limite} a ${limite}.`, true);
  else canales.forEach((canal, i) => canal.mover(nuevos[i]));
}

function empezar() {
  canales.forEach((canal, i) => canal.mover(datos.numeros[i]));
}

lamina.append(
  mandos(...canales.map((canal) => canal.caja)),
  element(
    'div',
    { class: 'row' },
    boton('Suma 1 a todos', () => cambiar((x) => x + 1)),
    boton('Multiplica todos por 2', () => cambiar((x) => 2 * x)),
    boton('Como al principio', empezar),
  ),
  caja,
  frase,
);
pintar();
lista();
