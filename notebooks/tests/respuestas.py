"""Lo que puede escribir quien aprende: de cada turno, cuatro respuestas malas y dos buenas y raras.

Las de los turnos que son una pieza de mi_gpt.py están en test_piezas.py y en la carpeta otras.

Es para test_tu_turno.py. Cada respuesta es el cuerpo de la función del turno. Una mala se rechaza;
con una buena se llega al final del capítulo.
"""

from pathlib import Path

import hoja
from veredicto import de_una_pieza

OTRAS = sorted((Path(__file__).resolve().parent / "otras").glob("*.py"))


def programa(otra: Path) -> str:
    """Dar la solución entera con las piezas de otra."""
    texto = hoja.SOLUCION.read_text(encoding="utf-8")
    for nombre, escrito in hoja.trozos(otra.read_text(encoding="utf-8")).items():
        texto = hoja.poner(texto, nombre, escrito)
    return texto


def motivo(titulo: str, texto: str) -> str:
    """Dar por qué no pasa una pieza de una hoja, sin buscar la línea; vacío, si pasa."""
    veredicto = de_una_pieza(titulo, texto)
    return "" if veredicto.pasa else veredicto.en_blanco or veredicto.mensaje().que


MALAS = {
    "perdida_media": (
        "return -math.log(math.prod(probabilidades)) / len(probabilidades)",
        "return [-math.log(p) for p in probabilidades]",
        "return sum(math.log(p) for p in probabilidades) / len(probabilidades)",
        "return -math.log(sum(probabilidades) / len(probabilidades))",
    ),
    "descenso": (
        # Un tensor en vez de un número.
        """\
w.grad = b.grad = None
error = (2 * w + b - 7) ** 2
error.backward()
with torch.no_grad():
    w -= tasa * w.grad
    b -= tasa * b.grad
return error.detach()""",
        # No borra el gradiente anterior.
        """\
error = (2 * w + b - 7) ** 2
error.backward()
with torch.no_grad():
    w -= tasa * w.grad
    b -= tasa * b.grad
return error.item()""",
        # Hace otros dos tensores, y los que recibe no se mueven.
        """\
w.grad = b.grad = None
error = (2 * w + b - 7) ** 2
error.backward()
w = w - tasa * w.grad
b = b - tasa * b.grad
return error.item()""",
        # Da el error de después.
        """\
w.grad = b.grad = None
((2 * w + b - 7) ** 2).backward()
with torch.no_grad():
    w -= tasa * w.grad
    b -= tasa * b.grad
return ((2 * w + b - 7) ** 2).item()""",
    ),
    "fundir": (
        'return tuple(" ".join(tokens).replace(" ".join(par), "".join(par)).split())',
        # Compara lo que dicen juntos, no los dos tokens.
        """\
nuevos = list(tokens)
i = 0
while i < len(nuevos) - 1:
    if nuevos[i] + nuevos[i + 1] == "".join(par):
        nuevos[i : i + 2] = ["".join(par)]
    i += 1
return tuple(nuevos)""",
        # Solo la primera vez.
        """\
for i in range(len(tokens) - 1):
    if tokens[i : i + 2] == par:
        return (*tokens[:i], "".join(par), *tokens[i + 2 :])
return tokens""",
        # Una lista.
        """\
nuevos = list(tokens)
i = 0
while i < len(nuevos) - 1:
    if (nuevos[i], nuevos[i + 1]) == par:
        nuevos[i : i + 2] = ["".join(par)]
    i += 1
return nuevos""",
    ),
    "bucle": (
        # No borra el gradiente de antes.
        """\
perdidas = []
for leido, siguiente in lotes:
    valor = F.cross_entropy(modelo(leido).flatten(0, 1), siguiente.flatten())
    valor.backward()
    optimizador.step()
    perdidas.append(valor.item())
return perdidas""",
        # Lo borra antes de usarlo.
        """\
perdidas = []
for leido, siguiente in lotes:
    valor = F.cross_entropy(modelo(leido).flatten(0, 1), siguiente.flatten())
    valor.backward()
    optimizador.zero_grad()
    optimizador.step()
    perdidas.append(valor.item())
return perdidas""",
        # Con view, que no puede con los trozos de las ventanas.
        """\
perdidas = []
for leido, siguiente in lotes:
    logits = modelo(leido)
    valor = F.cross_entropy(logits.view(-1, logits.shape[-1]), siguiente.view(-1))
    optimizador.zero_grad()
    valor.backward()
    optimizador.step()
    perdidas.append(valor.item())
return perdidas""",
        # La softmax, dos veces.
        """\
perdidas = []
for leido, siguiente in lotes:
    p = modelo(leido).softmax(-1).flatten(0, 1)
    valor = F.cross_entropy(p, siguiente.flatten())
    optimizador.zero_grad()
    valor.backward()
    optimizador.step()
    perdidas.append(valor.item())
return perdidas""",
    ),
    "sinusoides": (
        # Los senos delante y los cosenos detrás.
        """\
i, j = torch.arange(n)[:, None], torch.arange(0, d, 2)
angulos = i / 10000 ** (j / d)
return torch.cat((angulos.sin(), angulos.cos()), 1)""",
        # Cada canal, con su propio ángulo.
        """\
angulos = torch.arange(n)[:, None] / 10000 ** (torch.arange(d) / d)
return torch.where(torch.arange(d) % 2 == 0, angulos.sin(), angulos.cos())""",
        # Posiciones contadas desde 1.
        """\
i, j = torch.arange(1, n + 1)[:, None], torch.arange(0, d, 2)
angulos = i / 10000 ** (j / d)
return torch.stack((angulos.sin(), angulos.cos()), -1).flatten(1)""",
        # Canales y posiciones, al revés.
        """\
i, j = torch.arange(n)[:, None], torch.arange(0, d, 2)
angulos = i / 10000 ** (j / d)
return torch.stack((angulos.sin(), angulos.cos()), -1).flatten(1).T""",
    ),
    "Residual": (
        # Solo la nota.
        """\
self.subcapa = subcapa
# ---
return self.subcapa(x)""",
        # La entrada, dos veces.
        """\
self.subcapa = subcapa
# ---
return 2 * x + self.subcapa(x)""",
        # La nota se resta.
        """\
self.subcapa = subcapa
# ---
return x - self.subcapa(x)""",
        # Se escribe encima de lo que entra.
        """\
self.subcapa = subcapa
# ---
x.data += self.subcapa(x)
return x""",
    ),
    "RMSNorm": (
        # Entre la suma de los cuadrados, no su media.
        """\
self.ganancia, self.epsilon = nn.Parameter(torch.ones(C)), epsilon
# ---
return self.ganancia * x / (x.square().sum(-1, keepdim=True) + self.epsilon).sqrt()""",
        # La ε, fuera de la raíz.
        """\
self.ganancia, self.epsilon = nn.Parameter(torch.ones(C)), epsilon
# ---
return self.ganancia * x / (x.square().mean(-1, keepdim=True).sqrt() + self.epsilon)""",
        # Todos los vectores, con la misma medida.
        """\
self.ganancia, self.epsilon = nn.Parameter(torch.ones(C)), epsilon
# ---
return self.ganancia * x / (x.square().mean() + self.epsilon).sqrt()""",
        # La ganancia no se aprende.
        """\
self.ganancia, self.epsilon = torch.ones(C), epsilon
# ---
return self.ganancia * x / (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt()""",
    ),
    "softmax": (
        # Resta en el tensor que recibe.
        """\
s -= s.amax(-1, keepdim=True)
return s.exp() / s.exp().sum(-1, keepdim=True)""",
        """\
potencias = s.exp()
return potencias / potencias.sum(-1, keepdim=True)""",
        """\
potencias = (s - s.amax(-1, keepdim=True)).exp()
return potencias / potencias.sum()""",
        """\
potencias = (s - s.amax(0, keepdim=True)).exp()
return potencias / potencias.sum(0, keepdim=True)""",
    ),
    "sortear": (
        'return int(np.searchsorted(np.cumsum(p), azar, side="right"))',
        'return min(int(np.searchsorted(np.cumsum(p), azar, side="left")), len(p) - 1)',
        """\
for i, probabilidad in enumerate(p):
    if azar < probabilidad:
        return i
return len(p) - 1""",
        "return float(sum(azar >= c for c in np.cumsum(p)[:-1]))",
    ),
    "nucleo": (
        # Una lista.
        """\
quedan, juntado = [False] * len(p), 0.0
for i in np.argsort(-p):
    quedan[i] = True
    juntado += p[i]
    if juntado >= corte:
        break
return quedan""",
        # Sin la letra con la que se llega.
        """\
orden = np.argsort(-p)
quedan = np.zeros(len(p), dtype=bool)
quedan[orden[p[orden].cumsum() <= corte]] = True
return quedan""",
        # Cambia las probabilidades que recibe.
        """\
orden = np.argsort(-p)
p[orden[p[orden].cumsum() - p[orden] >= corte]] = 0
return p > 0""",
        # En el orden en que llegan.
        "return p.cumsum() - p < corte",
    ),
    "escribir": (
        # Sin caché.
        """\
ids, escritas = comienzo, []
for _ in range(n):
    lector.restart()
    escritas.append(elegir(lector.read(ids)[0]))
    ids = np.append(ids, [escritas[-1:]], axis=1)
return escritas""",
        # Lo lee todo otra vez, y lo guarda otra vez.
        """\
ids, escritas = comienzo, []
for _ in range(n):
    escritas.append(elegir(lector.read(ids)[0]))
    ids = np.append(ids, [escritas[-1:]], axis=1)
return escritas""",
        # Del comienzo lee solo la última letra.
        """\
nuevos, escritas = comienzo[:, -1:], []
for _ in range(n):
    escritas.append(elegir(lector.read(nuevos)[0]))
    nuevos = np.array([escritas[-1:]])
return escritas""",
        # Olvida lo leído antes de cada letra.
        """\
nuevos, escritas = comienzo, []
for _ in range(n):
    lector.restart()
    escritas.append(elegir(lector.read(nuevos)[0]))
    nuevos = np.array([escritas[-1:]])
return escritas""",
    ),
    "tres_subcapas": (
        # Pre-norma.
        """\
n = bloque.norma1(y)
y = y + bloque.atencion(n, n, futuro)
y = y + bloque.cruzada(bloque.norma2(y), contexto, relleno)
return y + bloque.ff(bloque.norma3(y))""",
        # La cruzada pregunta desde el contexto.
        """\
y = bloque.norma1(y + bloque.atencion(y, y, futuro))
y = bloque.norma2(y + bloque.cruzada(contexto, y, None).mean(1, keepdim=True))
return bloque.norma3(y + bloque.ff(y))""",
        # No tapa el futuro.
        """\
y = bloque.norma1(y + bloque.atencion(y, y))
y = bloque.norma2(y + bloque.cruzada(y, contexto, relleno))
return bloque.norma3(y + bloque.ff(y))""",
        # La cruzada, sin su residual.
        """\
y = bloque.norma1(y + bloque.atencion(y, y, futuro))
y = bloque.norma2(bloque.cruzada(y, contexto, relleno))
return bloque.norma3(y + bloque.ff(y))""",
    ),
    "descifrar": (
        # No para en el máximo.
        """\
contexto, relleno = modelo.codificar(tensor(fichas))
escrito = torch.full((len(fichas), 1), BOS)
for _ in range(LARGO + 4):
    letra = modelo.descodificar(escrito, contexto, relleno)[:, -1].argmax(-1)
    escrito = torch.cat([escrito, letra[:, None]], 1)
return [texto(fila) for fila in escrito]""",
        # Para cuando acaba la primera.
        """\
contexto, relleno = modelo.codificar(tensor(fichas))
escrito = torch.full((len(fichas), 1), BOS)
while escrito.shape[1] <= maximo and not (escrito == EOS).any():
    letra = modelo.descodificar(escrito, contexto, relleno)[:, -1].argmax(-1)
    escrito = torch.cat([escrito, letra[:, None]], 1)
return [texto(fila) for fila in escrito]""",
        # No mira el relleno.
        """\
contexto, relleno = modelo.codificar(tensor(fichas))
escrito = torch.full((len(fichas), 1), BOS)
while escrito.shape[1] <= maximo and not (escrito == EOS).any(1).all():
    letra = modelo.descodificar(escrito, contexto, torch.zeros_like(relleno))[:, -1].argmax(-1)
    escrito = torch.cat([escrito, letra[:, None]], 1)
return [texto(fila) for fila in escrito]""",
        # Una letra menos que el máximo.
        """\
contexto, relleno = modelo.codificar(tensor(fichas))
escrito = torch.full((len(fichas), 1), BOS)
while escrito.shape[1] < maximo and not (escrito == EOS).any(1).all():
    letra = modelo.descodificar(escrito, contexto, relleno)[:, -1].argmax(-1)
    escrito = torch.cat([escrito, letra[:, None]], 1)
return [texto(fila) for fila in escrito]""",
    ),
    "con_cabeza": (
        # De lo que se pone toma una parte del primer eje: con (B, T, C) no son los canales.
        """\
bloque, cabeza = todas[z]
suyos = slice(cabeza * D, (cabeza + 1) * D)
def cambiar(modulo, recibe):
    y = recibe[0].clone()
    y[..., suyos] = por[suyos]
    return (y,)
asa = modelo.blocks[bloque].attention.proj.register_forward_pre_hook(cambiar)
try:
    return medir()
finally:
    asa.remove()""",
        # No lo quita si medir() falla.
        """\
bloque, cabeza = todas[z]
def cambiar(modulo, recibe):
    return (sustituir(recibe[0], cabeza, por),)
asa = modelo.blocks[bloque].attention.proj.register_forward_pre_hook(cambiar)
dado = medir()
asa.remove()
return dado""",
        # Cambia lo que sale de la matriz, no lo que entra.
        """\
bloque, cabeza = todas[z]
def cambiar(modulo, recibe, entrega):
    return sustituir(entrega, cabeza, por)
asa = modelo.blocks[bloque].attention.proj.register_forward_hook(cambiar)
try:
    return medir()
finally:
    asa.remove()""",
        # Se cuenta desde 1.
        """\
bloque, cabeza = todas[z - 1]
def cambiar(modulo, recibe):
    return (sustituir(recibe[0], cabeza, por),)
asa = modelo.blocks[bloque].attention.proj.register_forward_pre_hook(cambiar)
try:
    return medir()
finally:
    asa.remove()""",
    ),
    "lente": (
        "return corriente @ modelo.head.weight.T",
        "return corriente / (corriente.square().mean() + 1e-6).sqrt() @ modelo.head.weight.T",
        "return corriente / corriente.norm(dim=-1, keepdim=True) @ modelo.head.weight.T",
        "return F.layer_norm(corriente, corriente.shape[-1:]) @ modelo.head.weight.T",
    ),
    "enmascarar": (
        # Una letra tarde.
        """\
objetivos = ids[1:].copy()
objetivos[:desde] = CALLA
return objetivos""",
        # Sin correr una posición.
        """\
objetivos = ids[:-1].copy()
objetivos[: desde - 1] = CALLA
return objetivos""",
        # Calla la primera mitad, empiece donde empiece la respuesta.
        """\
objetivos = ids[1:].copy()
objetivos[: len(objetivos) // 2] = CALLA
return objetivos""",
        # Cambia lo que recibe.
        """\
ids[:desde] = CALLA
return ids[1:]""",
    ),
    "perdida_dpo": (
        # Al revés.
        """\
sube = ahora - al_empezar
return -F.logsigmoid(beta * (sube[1] - sube[0]))""",
        # Sin el modelo de partida.
        "return -F.logsigmoid(beta * (ahora[0] - ahora[1]))",
        # A la rechazada no le llega gradiente.
        """\
sube = ahora - al_empezar
return -F.logsigmoid(beta * (sube[0] - sube[1].detach()))""",
        # Sin beta.
        """\
sube = ahora - al_empezar
return -F.logsigmoid(0.1 * (sube[0] - sube[1]))""",
    ),
    "mejor_peso": (
        # Compara las probabilidades medias, sin logaritmo.
        """\
pesos = np.linspace(0, 1, 101)
return max(pesos, key=lambda w: (w * p_red + (1 - w) * p_cuentas).mean())""",
        # El peso de las cuentas.
        """\
pesos = np.linspace(0, 1, 101)
return min(pesos, key=lambda w: -np.log(w * p_cuentas + (1 - w) * p_red).mean())""",
        # La menor pérdida, y no el peso con que sale.
        """\
pesos = np.linspace(0, 1, 101)
return min(-np.log(w * p_red + (1 - w) * p_cuentas).mean() for w in pesos)""",
        # La mayor.
        """\
pesos = np.linspace(0, 1, 101)
return max(pesos, key=lambda w: -np.log(w * p_red + (1 - w) * p_cuentas).mean())""",
    ),
    "paso_muon": (
        # Sin el vistazo por delante.
        """\
m = b * m + (1 - b) * g
return w - eta * orthogonalise(m[None])[0], m""",
        # La memoria, sin su (1 − b).
        """\
m = b * m + g
rumbo = b * m + g
return w - eta * orthogonalise(rumbo[None])[0], m""",
        # Sin ortogonalizar.
        """\
m = b * m + (1 - b) * g
return w - eta * (b * m + (1 - b) * g), m""",
        # Cambia la memoria que recibe.
        """\
m.mul_(b).add_(g, alpha=1 - b)
return w - eta * orthogonalise((b * m + (1 - b) * g)[None])[0], m""",
    ),
    "lineal_atras": (
        "return d_y @ w",
        "return d_y @ w, d_y.T @ x",
        "return d_y @ w, x.reshape(-1, x.shape[-1]).T @ d_y.reshape(-1, d_y.shape[-1])",
        "return d_y.reshape(-1, d_y.shape[-1]).T @ x.reshape(-1, x.shape[-1]), d_y @ w",
    ),
    "normalizar_atras": (
        "return r * d_y",
        "return r * (d_y - y * (d_y * y).mean())",
        "return r * (d_y - y * (d_y * y).sum(-1, keepdims=True))",
        "return d_y - y * (d_y * y).mean(-1, keepdims=True)",
    ),
}

BUENAS = {
    "perdida_media": (
        "return float(-np.log(probabilidades).mean())",
        "return math.fsum(math.log(1 / p) for p in probabilidades) / len(probabilidades)",
    ),
    "descenso": (
        # Con torch.optim.
        """\
optimizador = torch.optim.SGD([w, b], lr=tasa)
optimizador.zero_grad()
error = (2 * w + b - 7) ** 2
error.backward()
optimizador.step()
return float(error)""",
        # Con las derivadas hechas a mano.
        """\
with torch.no_grad():
    resto = (2 * w + b - 7).item()
    w.sub_(tasa * 4 * resto)
    b.sub_(tasa * 2 * resto)
return resto**2""",
    ),
    "fundir": (
        # Cambia una lista según avanza.
        """\
nuevos = list(tokens)
i = 0
while i < len(nuevos) - 1:
    if (nuevos[i], nuevos[i + 1]) == par:
        nuevos[i : i + 2] = ["".join(par)]
    i += 1
return tuple(nuevos)""",
        # Una pila, sin volver a fundir lo fundido.
        """\
pila = []
for token in tokens:
    if pila and pila[-1] == (par[0], False) and token == par[1]:
        pila[-1] = (par[0] + par[1], True)
    else:
        pila.append((token, False))
return tuple(token for token, _ in pila)""",
    ),
    "bucle": (
        # Los lotes, todos de una vez, y el gradiente se borra al final del paso.
        """\
perdidas = []
for lote_entero in list(lotes):
    logits = modelo(lote_entero[0]).transpose(1, 2)
    valor = F.cross_entropy(logits, lote_entero[1])
    valor.backward()
    optimizador.step()
    optimizador.zero_grad(set_to_none=False)
    perdidas += [float(valor)]
return perdidas""",
        # Sin cross_entropy.
        """\
perdidas = []
for leido, siguiente in lotes:
    optimizador.zero_grad()
    logs = modelo(leido).log_softmax(-1)
    valor = -logs.gather(-1, siguiente[..., None]).mean()
    valor.backward()
    perdidas.append(valor.detach().item())
    optimizador.step()
return perdidas""",
    ),
    "sinusoides": (
        """\
i, j = torch.arange(n)[:, None], torch.arange(0, d, 2)
angulos = i / 10000 ** (j / d)
return torch.stack((angulos.sin(), angulos.cos()), -1).flatten(1)""",
        """\
filas = []
for i in range(n):
    angulos = [i / 10000 ** ((j - j % 2) / d) for j in range(d)]
    filas.append([math.cos(a) if j % 2 else math.sin(a) for j, a in enumerate(angulos)])
return torch.tensor(filas)""",
    ),
    "Residual": (
        "self.f = subcapa\n# ---\nreturn torch.add(self.f(x), x)",
        # La subcapa, dentro de una lista de módulos.
        """\
self.partes = nn.ModuleList([subcapa])
# ---
for parte in self.partes:
    x = x + parte(x)
return x""",
    ),
    "RMSNorm": (
        # Con la función de PyTorch.
        """\
self.ganancia = nn.Parameter(torch.ones(C))
self.pequeno = epsilon
# ---
return F.rms_norm(x, self.ganancia.shape, self.ganancia, self.pequeno)""",
        # Con la norma de cada vector.
        """\
self.register_buffer("epsilon", torch.tensor(epsilon))
self.ganancia = nn.Parameter(torch.full((C,), 1.0))
# ---
largo = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
return x * torch.rsqrt(largo**2 / x.shape[-1] + self.epsilon) * self.ganancia""",
    ),
    "softmax": (
        "return (s - s.logsumexp(-1, keepdim=True)).exp()",
        "return s.log_softmax(-1).exp()",
    ),
    "sortear": (
        'return np.minimum(np.searchsorted(np.cumsum(p), azar, side="right"), len(p) - 1)',
        "return sum(azar >= c for c in np.cumsum(p)[:-1].tolist())",
    ),
    "nucleo": (
        """\
orden = np.argsort(p)[::-1]
antes = np.concatenate(([0.0], p[orden].cumsum()[:-1]))
quedan = np.zeros(p.shape, bool)
quedan[orden[antes < corte]] = True
return quedan""",
        # Lo que juntan las más probables que cada una.
        "return np.array([p[p > x].sum() < corte for x in p])",
    ),
    "escribir": (
        # El comienzo, letra a letra; y elige una letra que no escribe.
        """\
for t in range(comienzo.shape[1]):
    logits = lector.read(comienzo[:, t : t + 1])
letra, escritas = elegir(logits[0]), []
while len(escritas) < n:
    escritas.append(letra)
    letra = elegir(lector.read(np.array([[letra]]))[0])
return escritas""",
        # Un array, en vez de una lista.
        """\
todo = comienzo
leidas = 0
for _ in range(n):
    logits = lector.read(todo[:, leidas:])
    leidas = todo.shape[1]
    todo = np.append(todo, [[elegir(logits[0])]], axis=1)
return todo[0, -n:]""",
    ),
    "tres_subcapas": (
        # En bucle.
        """\
subcapas = (
    (bloque.norma1, lambda x: bloque.atencion(x, x, futuro)),
    (bloque.norma2, lambda x: bloque.cruzada(x, contexto, relleno)),
    (bloque.norma3, bloque.ff),
)
for norma, subcapa in subcapas:
    y = norma(subcapa(y) + y)
return y""",
        # Cada cosa con su nombre, y la normalización a mano.
        """\
def normalizar(x, norma):
    media, varianza = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return norma.weight * (x - media) / (varianza + norma.eps).sqrt() + norma.bias

leido = normalizar(y + bloque.atencion(x=y, contexto=y, tapado=futuro), bloque.norma1)
del_contexto = bloque.cruzada(x=leido, contexto=contexto, tapado=relleno)
consultado = normalizar(leido + del_contexto, bloque.norma2)
return normalizar(consultado + bloque.ff(consultado), bloque.norma3)""",
    ),
    "descifrar": (
        # Cada una por su cuenta.
        """\
frases = []
for una in fichas:
    contexto, relleno = modelo.codificar(tensor([una]))
    escrito = [BOS]
    while len(escrito) <= maximo and escrito[-1] != EOS:
        logits = modelo.descodificar(torch.tensor([escrito]), contexto, relleno)
        escrito.append(logits[0, -1].argmax().item())
    frases.append(texto(torch.tensor(escrito)))
return frases""",
        # Siempre hasta el máximo.
        """\
contexto, relleno = modelo.codificar(tensor(fichas))
escrito = torch.full((len(fichas), 1), BOS)
for _ in range(maximo):
    logits = modelo.descodificar(escrito, contexto, relleno)
    escrito = torch.cat([escrito, logits[:, -1:].argmax(-1)], 1)
return [texto(fila) for fila in escrito]""",
    ),
    "con_cabeza": (
        # Sin gancho: otro forward, y después el suyo.
        """\
bloque, cabeza = todas[z]
proj = modelo.blocks[bloque].attention.proj
suyo = proj.forward
proj.forward = lambda y: suyo(sustituir(y, cabeza, por))
try:
    return medir()
finally:
    del proj.forward""",
        """\
from contextlib import ExitStack

bloque, cabeza = todas[z]
proj = modelo.blocks[bloque].attention.proj
with ExitStack() as pila:
    asa = proj.register_forward_pre_hook(lambda _, recibe: sustituir(recibe[0], cabeza, por))
    pila.callback(asa.remove)
    return medir()""",
    ),
    "lente": (
        "return modelo.head(modelo.norm(corriente))",
        """\
C = corriente.shape[-1]
return torch.nn.functional.rms_norm(corriente, (C,), eps=1e-6) @ modelo.head.weight.mT""",
    ),
    "enmascarar": (
        "return np.where(np.arange(1, len(ids)) >= desde, ids[1:], CALLA)",
        """\
objetivos = np.full(len(ids) - 1, CALLA)
for t in range(desde, len(ids)):
    objetivos[t - 1] = ids[t]
return objetivos""",
    ),
    "perdida_dpo": (
        """\
sube = ahora - al_empezar
return F.softplus(-beta * (sube[0] - sube[1]))""",
        """\
bien, mal = (beta * (ahora - al_empezar)).unbind()
return -torch.stack((bien, mal)).log_softmax(0)[0]""",
    ),
    "mejor_peso": (
        """\
pesos = np.arange(101)[:, None] / 100
perdidas = -np.log(pesos * p_red + (1 - pesos) * p_cuentas).mean(1)
return perdidas.argmin() / 100""",
        """\
mejor, menor = 0.0, math.inf
for centesima in range(101):
    w = centesima / 100
    perdida = 0.0
    for a, b in zip(p_red, p_cuentas):
        perdida -= math.log(w * a + (1 - w) * b)
    if perdida < menor:
        mejor, menor = w, perdida
return mejor""",
    ),
    "paso_muon": (
        """\
nueva = torch.lerp(g, m, b)
rumbo = torch.lerp(g, nueva, b)
return w.sub(orthogonalise(rumbo.unsqueeze(0)).squeeze(0), alpha=eta), nueva""",
        """\
nueva = m + (1 - b) * (g - m)
[paso] = orthogonalise(torch.stack([nueva + (1 - b) * (g - nueva)]))
return w - eta * paso, nueva""",
    ),
    "lineal_atras": (
        """\
delante = list(range(x.ndim - 1))
return [np.einsum("...s,se->...e", d_y, w), np.tensordot(d_y, x, (delante, delante))]""",
        """\
d_w = np.zeros_like(w)
for place in np.ndindex(d_y.shape[:-1]):
    d_w += np.outer(d_y[place], x[place])
return d_y.dot(w), d_w""",
    ),
    "normalizar_atras": (
        'return r * d_y - r * y * np.einsum("...c,...c->...", d_y, y)[..., None] / y.shape[-1]',
        """\
C = y.shape[-1]
matriz = np.eye(C) - y[..., :, None] * y[..., None, :] / C
return r * (matriz @ d_y[..., None])[..., 0]""",
    ),
}
