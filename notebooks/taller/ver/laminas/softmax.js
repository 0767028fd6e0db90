// Softmax con temperatura: las mismas puntuaciones, repartidas con más o menos contraste.

const temperatura = deslizador({
  nombre: 'Temperatura',
  desde: -1,
  hasta: 1,
  paso: 0.05,
  x: 0,
  lee: (x) => 10 ** x,
  escribe: (tau) => decimals(tau),
  alMover: pintar,
});
const { caja, cuerpo } = tabla('Probabilidades', 'opción', 'logit', 'logit / τ', 'probabilidad');
const resumen = element('p', { role: 'status', class: 'cifras' });

function pintar() {
  const tau = temperatura.valor;
  const repartido = softmax(datos.puntuaciones.map((logit) => logit / tau));
  cuerpo.replaceChildren(
    ...datos.etiquetas.map((etiqueta, i) =>
      fila(
        signo(etiqueta),
        decimals(datos.puntuaciones[i]),
        decimals(datos.puntuaciones[i] / tau),
        porcion(repartido[i]),
      ),
    ),
  );
  const entropia = repartido.reduce((suma, p) => (p > 0 ? suma - p * Math.log(p) : suma), 0);
  const como = decimals(Math.exp(entropia), 1);
  resumen.textContent = `Con este reparto se duda como entre ${como} opciones iguales.`;
}

lamina.append(mandos(temperatura.caja), caja, resumen);
pintar();
lista();
