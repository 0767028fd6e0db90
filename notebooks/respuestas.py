"""Lo que puede escribir quien aprende: de cada turno, cuatro respuestas malas y dos buenas y raras.

Es para test_tu_turno.py. Cada respuesta es el cuerpo de la función del turno. Una mala se rechaza;
con una buena se llega al final del capítulo.
"""

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
    w -= ritmo * w.grad
    b -= ritmo * b.grad
return error.detach()""",
        # No borra el gradiente anterior.
        """\
error = (2 * w + b - 7) ** 2
error.backward()
with torch.no_grad():
    w -= ritmo * w.grad
    b -= ritmo * b.grad
return error.item()""",
        # Hace otros dos tensores, y los que recibe no se mueven.
        """\
w.grad = b.grad = None
error = (2 * w + b - 7) ** 2
error.backward()
w = w - ritmo * w.grad
b = b - ritmo * b.grad
return error.item()""",
        # Da el error de después.
        """\
w.grad = b.grad = None
((2 * w + b - 7) ** 2).backward()
with torch.no_grad():
    w -= ritmo * w.grad
    b -= ritmo * b.grad
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
    "Tokenizador": (
        # Los caracteres, repetidos.
        """\
self.vocabulario = sorted(texto)
# ---
return [self.vocabulario.index(c) for c in texto]
# ---
return "".join(self.vocabulario[i] for i in ids)""",
        # Se calla lo desconocido.
        """\
self.vocabulario = sorted(set(texto))
# ---
return [self.vocabulario.index(c) for c in texto if c in self.vocabulario]
# ---
return "".join(self.vocabulario[i] for i in ids)""",
        # Un map, que solo se lee una vez.
        """\
self.vocabulario = sorted(set(texto))
# ---
for c in texto:
    if c not in self.vocabulario:
        raise ValueError(c)
return map(self.vocabulario.index, texto)
# ---
return "".join(self.vocabulario[i] for i in ids)""",
        # En el orden en que aparecen.
        """\
self.vocabulario = list(dict.fromkeys(texto))
# ---
for c in texto:
    if c not in self.vocabulario:
        raise ValueError(c)
return [self.vocabulario.index(c) for c in texto]
# ---
return "".join(self.vocabulario[i] for i in ids)""",
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
    "Entrada": (
        # Sin posiciones.
        """\
self.letras = nn.Embedding(V, C)
self.posiciones = nn.Embedding(ventana, C)
# ---
return self.letras(ids)""",
        # La posición, por la letra.
        """\
self.letras = nn.Embedding(V, C)
self.posiciones = nn.Embedding(ventana, C)
# ---
return self.letras(ids) * self.posiciones.weight[: ids.shape[1]]""",
        # El tamaño de la ventana y el ancho, fijos.
        """\
self.letras = nn.Embedding(V, ANCHO)
self.posiciones = nn.Embedding(VENTANA, ANCHO)
# ---
return self.letras(ids) + self.posiciones.weight[: ids.shape[1]]""",
        # Las posiciones, contadas desde la última.
        """\
self.letras = nn.Embedding(V, C)
self.posiciones = nn.Embedding(ventana, C)
# ---
return self.letras(ids) + self.posiciones.weight[: ids.shape[1]].flip(0)""",
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
    "normalizar": (
        "return (x - x.mean()) / (x.var(correction=0) + epsilon).sqrt()",
        "return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + epsilon).sqrt()",
        "return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + epsilon)",
        "return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt()",
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
    "cabeza": (
        # Sin escala.
        """\
q, k, v = x @ W_q, x @ W_k, x @ W_v
pesos = softmax((q @ k.mT).masked_fill(futuro(q.shape[-2]), -math.inf))
return pesos @ v, pesos""",
        # Sin máscara.
        """\
q, k, v = x @ W_q, x @ W_k, x @ W_v
pesos = softmax(q @ k.mT / math.sqrt(q.shape[-1]))
return pesos @ v, pesos""",
        # Preguntan las claves.
        """\
q, k, v = x @ W_q, x @ W_k, x @ W_v
s = k @ q.mT / math.sqrt(q.shape[-1])
pesos = softmax(s.masked_fill(futuro(q.shape[-2]), -math.inf))
return pesos @ v, pesos""",
        # Solo para un texto: .T traspone todos los ejes.
        """\
q, k, v = x @ W_q, x @ W_k, x @ W_v
s = q @ k.T / math.sqrt(q.shape[-1])
pesos = softmax(s.masked_fill(futuro(q.shape[-2]), -math.inf))
return pesos @ v, pesos""",
    ),
    "Atencion": (
        # Sin máscara.
        """\
self.qkv = nn.Linear(ANCHO, 3 * ANCHO, bias=False)
self.salida = nn.Linear(ANCHO, ANCHO, bias=False)
# ---
return z.view(z.shape[0], z.shape[1], self.cabezas, -1).transpose(1, 2)
# ---
return z.transpose(1, 2).flatten(2)
# ---
q, k, v = (self.partir(z) for z in self.qkv(x).chunk(3, -1))
pesos = softmax(q @ k.mT / math.sqrt(q.shape[-1]))
return self.salida(self.juntar(pesos @ v))""",
        # La escala del ancho entero.
        """\
self.qkv = nn.Linear(ANCHO, 3 * ANCHO, bias=False)
self.salida = nn.Linear(ANCHO, ANCHO, bias=False)
# ---
return z.view(z.shape[0], z.shape[1], self.cabezas, -1).transpose(1, 2)
# ---
return z.transpose(1, 2).flatten(2)
# ---
q, k, v = (self.partir(z) for z in self.qkv(x).chunk(3, -1))
s = (q @ k.mT / math.sqrt(ANCHO)).masked_fill(futuro(x.shape[1]), -math.inf)
return self.salida(self.juntar(softmax(s) @ v))""",
        # Parte de una vez, sin transpose.
        """\
self.qkv = nn.Linear(ANCHO, 3 * ANCHO, bias=False)
self.salida = nn.Linear(ANCHO, ANCHO, bias=False)
# ---
return z.view(z.shape[0], self.cabezas, z.shape[1], -1)
# ---
return z.reshape(z.shape[0], z.shape[2], -1)
# ---
q, k, v = (self.partir(z) for z in self.qkv(x).chunk(3, -1))
s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(futuro(x.shape[1]), -math.inf)
return self.salida(self.juntar(softmax(s) @ v))""",
        # Junta sin transpose.
        """\
self.qkv = nn.Linear(ANCHO, 3 * ANCHO, bias=False)
self.salida = nn.Linear(ANCHO, ANCHO, bias=False)
# ---
return z.view(z.shape[0], z.shape[1], self.cabezas, -1).transpose(1, 2)
# ---
return z.reshape(z.shape[0], z.shape[2], -1)
# ---
q, k, v = (self.partir(z) for z in self.qkv(x).chunk(3, -1))
s = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(futuro(x.shape[1]), -math.inf)
return self.salida(self.juntar(softmax(s) @ v))""",
    ),
    "FeedForward": (
        # Sin activación.
        """\
self.ensanchar = nn.Linear(C, 4 * C)
self.volver = nn.Linear(4 * C, C)
# ---
return self.volver(self.ensanchar(x))""",
        # La ReLU, al final.
        """\
self.ensanchar = nn.Linear(C, 4 * C)
self.volver = nn.Linear(4 * C, C)
# ---
return self.volver(self.ensanchar(x)).relu()""",
        # Ensancha dos veces, no cuatro.
        """\
self.ensanchar = nn.Linear(C, 2 * C)
self.volver = nn.Linear(2 * C, C)
# ---
return self.volver(self.ensanchar(x).relu())""",
        # El ancho, fijo.
        """\
self.ensanchar = nn.Linear(ANCHO, 4 * ANCHO)
self.volver = nn.Linear(4 * ANCHO, ANCHO)
# ---
return self.volver(self.ensanchar(x).relu())""",
    ),
    "Bloque": (
        # Post-norma.
        """\
self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
self.sa = MiAtencion(n_embd, n_head)
self.ffwd = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
# ---
x = self.ln1(x + self.sa(x))
return self.ln2(x + self.ffwd(x))""",
        # Cambia lo que leyó ln1, y no se puede derivar.
        """\
self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
self.sa = MiAtencion(n_embd, n_head)
self.ffwd = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
# ---
x = x.clone()
x += self.sa(self.ln1(x))
return x + self.ffwd(self.ln2(x))""",
        # La misma normalización, dos veces.
        """\
self.ln1 = self.ln2 = nn.LayerNorm(n_embd)
self.sa = MiAtencion(n_embd, n_head)
self.ffwd = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
# ---
x = x + self.sa(self.ln1(x))
return x + self.ffwd(self.ln2(x))""",
        # Sin activación.
        """\
self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
self.sa = MiAtencion(n_embd, n_head)
self.ffwd = nn.Sequential(
    nn.Linear(n_embd, 4 * n_embd), nn.Identity(), nn.Linear(4 * n_embd, n_embd)
)
# ---
x = x + self.sa(self.ln1(x))
return x + self.ffwd(self.ln2(x))""",
    ),
    "Gpt": (
        # Sin posiciones.
        """\
self.blocks = nn.Sequential(*(Bloque(forma.n_embd, forma.n_head) for _ in range(forma.n_layer)))
self.norm = nn.LayerNorm(forma.n_embd)
self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
# ---
return self.head(self.norm(self.blocks(self.token_embedding(ids))))""",
        # Con la softmax.
        """\
self.blocks = nn.Sequential(*(Bloque(forma.n_embd, forma.n_head) for _ in range(forma.n_layer)))
self.norm = nn.LayerNorm(forma.n_embd)
self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
# ---
x = self.token_embedding(ids) + self.position_embedding.weight[: ids.shape[1]]
return self.head(self.norm(self.blocks(x))).softmax(-1)""",
        # El mismo bloque, varias veces.
        """\
self.blocks = nn.Sequential(*[Bloque(forma.n_embd, forma.n_head)] * forma.n_layer)
self.norm = nn.LayerNorm(forma.n_embd)
self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
# ---
x = self.token_embedding(ids) + self.position_embedding.weight[: ids.shape[1]]
return self.head(self.norm(self.blocks(x)))""",
        # Las últimas posiciones de la ventana, no las primeras.
        """\
self.blocks = nn.Sequential(*(Bloque(forma.n_embd, forma.n_head) for _ in range(forma.n_layer)))
self.norm = nn.LayerNorm(forma.n_embd)
self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
# ---
x = self.token_embedding(ids) + self.position_embedding.weight[-ids.shape[1] :]
return self.head(self.norm(self.blocks(x)))""",
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
    "vuelta": (
        # Lo que llega por otro camino borra lo de antes.
        """\
orden = []
def visitar(valor):
    if valor not in orden:
        for padre, _ in valor.padres:
            visitar(padre)
        orden.append(valor)
visitar(fin)
fin.gradiente = 1.0
for valor in reversed(orden):
    for padre, local in valor.padres:
        padre.gradiente = valor.gradiente * local
return orden""",
        # Cada valor se apunta antes que sus padres: alguno reparte sin haber recibido de todos.
        """\
orden = []
def visitar(valor):
    if valor not in orden:
        orden.append(valor)
        for padre, _ in valor.padres:
            visitar(padre)
visitar(fin)
fin.gradiente = 1.0
for valor in orden:
    for padre, local in valor.padres:
        padre.gradiente += valor.gradiente * local
return orden[::-1]""",
        # Nadie pone el primer gradiente.
        """\
orden = []
def visitar(valor):
    if valor not in orden:
        for padre, _ in valor.padres:
            visitar(padre)
        orden.append(valor)
visitar(fin)
for valor in reversed(orden):
    for padre, local in valor.padres:
        padre.gradiente += valor.gradiente * local
return orden""",
        # Un valor que se alcanza por dos caminos está dos veces.
        """\
orden = []
def visitar(valor):
    for padre, _ in valor.padres:
        visitar(padre)
    orden.append(valor)
visitar(fin)
fin.gradiente = 1.0
for valor in reversed(orden):
    for padre, local in valor.padres:
        padre.gradiente += valor.gradiente * local
return orden""",
    ),
    "paso_adam": (
        # Las memorias, sin dividir entre 1 − βᵗ.
        """\
m = b1 * m + (1 - b1) * g
v = b2 * v + (1 - b2) * g**2
return w - eta * encoger * w - eta * m / (v.sqrt() + 1e-8), m, v""",
        # Lo que se encoge entra en la pendiente: Adam, sin la W.
        """\
g = g + encoger * w
m = b1 * m + (1 - b1) * g
v = b2 * v + (1 - b2) * g**2
return w - eta * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + 1e-8), m, v""",
        # Número a número: con una matriz no funciona.
        """\
nuevas = []
for a, b, c, d in zip(w, g, m, v):
    c, d = b1 * c + (1 - b1) * b, b2 * d + (1 - b2) * b**2
    raiz = math.sqrt(d / (1 - b2**t)) + 1e-8
    nuevas.append((float(a * (1 - eta * encoger) - eta * c / (1 - b1**t) / raiz), float(c), float(d)))
return torch.tensor(nuevas).unbind(1)""",
        # Devuelve las memorias ya divididas.
        """\
m = (b1 * m + (1 - b1) * g) / (1 - b1**t)
v = (b2 * v + (1 - b2) * g**2) / (1 - b2**t)
return w - eta * encoger * w - eta * m / (v.sqrt() + 1e-8), m, v""",
    ),
    "entrenar": (
        # No borra el gradiente.
        """\
optimizador = Adam(modelo.parameters(), tasa)
perdidas = []
for _ in range(pasos):
    comienzos = torch.randint(len(texto) - ventana, (lote, 1))
    trozos = texto[comienzos + torch.arange(ventana + 1)]
    perdida = F.cross_entropy(modelo(trozos[:, :-1]).flatten(0, 1), trozos[:, 1:].flatten())
    perdida.backward()
    optimizador.step()
    perdidas.append(perdida.item())
return perdidas""",
        # Cada letra ha de adivinarse a sí misma.
        """\
optimizador = Adam(modelo.parameters(), tasa)
perdidas = []
for _ in range(pasos):
    comienzos = torch.randint(len(texto) - ventana, (lote, 1))
    trozos = texto[comienzos + torch.arange(ventana)]
    perdida = F.cross_entropy(modelo(trozos).flatten(0, 1), trozos.flatten())
    optimizador.zero_grad()
    perdida.backward()
    optimizador.step()
    perdidas.append(perdida.item())
return perdidas""",
        # Siempre las primeras ventanas.
        """\
optimizador = Adam(modelo.parameters(), tasa)
perdidas = []
for _ in range(pasos):
    trozos = texto[torch.arange(lote)[:, None] + torch.arange(ventana + 1)]
    perdida = F.cross_entropy(modelo(trozos[:, :-1]).flatten(0, 1), trozos[:, 1:].flatten())
    optimizador.zero_grad()
    perdida.backward()
    optimizador.step()
    perdidas.append(perdida.item())
return perdidas""",
        # Un optimizador nuevo en cada paso, sin memoria.
        """\
perdidas = []
for _ in range(pasos):
    optimizador = Adam(modelo.parameters(), tasa)
    comienzos = torch.randint(len(texto) - ventana, (lote, 1))
    trozos = texto[comienzos + torch.arange(ventana + 1)]
    perdida = F.cross_entropy(modelo(trozos[:, :-1]).flatten(0, 1), trozos[:, 1:].flatten())
    optimizador.zero_grad()
    perdida.backward()
    optimizador.step()
    perdidas.append(perdida.item())
return perdidas""",
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
        # Tan largos como el diálogo.
        """\
objetivos = np.append(ids[1:], CALLA)
objetivos[: desde - 1] = CALLA
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
        # Un número suelto.
        """\
sube = (ahora - al_empezar).tolist()
return -math.log(sigmoide(beta * (sube[0] - sube[1])))""",
        # Sin beta.
        """\
sube = ahora - al_empezar
return -F.logsigmoid(0.1 * (sube[0] - sube[1]))""",
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
optimizador = torch.optim.SGD([w, b], lr=ritmo)
optimizador.zero_grad()
error = (2 * w + b - 7) ** 2
error.backward()
optimizador.step()
return float(error)""",
        # Con las derivadas hechas a mano.
        """\
with torch.no_grad():
    resto = (2 * w + b - 7).item()
    w.sub_(ritmo * 4 * resto)
    b.sub_(ritmo * 2 * resto)
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
    "Tokenizador": (
        # Dos diccionarios, y el error al final.
        """\
self.vocabulario = "".join(sorted(dict.fromkeys(texto)))
self.de = dict(zip(self.vocabulario, range(len(self.vocabulario))))
self.a = dict(enumerate(self.vocabulario))
# ---
try:
    return list(map(self.de.__getitem__, texto))
except KeyError as error:
    raise ValueError(f"no conozco {error}") from error
# ---
return "".join(map(self.a.get, ids))""",
        # Arrays de NumPy.
        """\
self.vocabulario = np.unique(list(texto)).tolist()
# ---
letras = np.array(list(texto), dtype="<U1")
nuevas = sorted(set(texto) - set(self.vocabulario))
if nuevas:
    raise ValueError("desconocidas: " + " ".join(nuevas))
return np.searchsorted(self.vocabulario, letras)
# ---
return "".join(np.array(self.vocabulario)[np.array(ids, dtype=int)])""",
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
    "Entrada": (
        # Las filas, con el one-hot, y las posiciones, una por una.
        """\
self.posiciones = nn.Embedding(num_embeddings=ventana, embedding_dim=C)
self.letras = nn.Embedding(num_embeddings=V, embedding_dim=C)
# ---
unos = F.one_hot(ids, self.letras.num_embeddings).float()
filas = [self.posiciones.weight[t] for t in range(ids.size(1))]
return unos @ self.letras.weight + torch.stack(filas)""",
        # Las posiciones, repetidas para cada texto.
        """\
self.letras = nn.Embedding(V, C)
self.posiciones = nn.Embedding(ventana, C)
# ---
posiciones = torch.ones_like(ids).cumsum(1) - 1
return self.posiciones(posiciones).add(self.letras(ids))""",
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
    "normalizar": (
        "return F.layer_norm(x, x.shape[-1:], eps=epsilon)",
        """\
varianza, media = torch.var_mean(x, -1, correction=0, keepdim=True)
return (x - media) * torch.rsqrt(varianza + epsilon)""",
    ),
    "softmax": (
        "return (s - s.logsumexp(-1, keepdim=True)).exp()",
        "return s.log_softmax(-1).exp()",
    ),
    "cabeza": (
        # La escala, en las consultas; la máscara, sumada.
        """\
q, k, v = x @ W_q / math.sqrt(W_q.shape[1]), x @ W_k, x @ W_v
T = x.shape[-2]
pesos = softmax(q @ k.transpose(-2, -1) + torch.full((T, T), -math.inf).triu(1))
return pesos @ v, pesos""",
        # Con einsum.
        """\
q, k, v = (torch.einsum("...tc,cd->...td", x, W) for W in (W_q, W_k, W_v))
s = torch.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5
pesos = softmax(torch.where(futuro(x.shape[-2]), -math.inf, s))
return torch.einsum("...ts,...sd->...td", pesos, v), pesos""",
    ),
    "Atencion": (
        # Cabeza a cabeza, con trozos de canales; las capas, en otro orden.
        """\
self.salida = nn.Linear(ANCHO, ANCHO, bias=False)
self.qkv = nn.Linear(ANCHO, 3 * ANCHO, bias=False)
# ---
return torch.stack(z.chunk(self.cabezas, -1), dim=1)
# ---
return torch.cat(z.unbind(1), -1)
# ---
miradas = []
for q, k, v in zip(*(self.partir(z).unbind(1) for z in self.qkv(x).split(ANCHO, -1))):
    s = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(futuro(x.shape[1]), -math.inf)
    miradas.append(softmax(s) @ v)
return self.salida(self.juntar(torch.stack(miradas, dim=1)))""",
        # Con einsum, y sin usar partir ni juntar.
        """\
self.qkv = nn.Linear(ANCHO, ANCHO * 3, bias=False)
self.salida = nn.Linear(ANCHO, ANCHO, bias=False)
# ---
return z.unflatten(-1, (self.cabezas, -1)).movedim(2, 1)
# ---
return torch.einsum("bhtd->bthd", z).flatten(start_dim=2)
# ---
B, T, C = x.shape
q, k, v = self.qkv(x).view(B, T, 3, self.cabezas, -1).unbind(2)
s = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
pesos = torch.where(futuro(T), -math.inf, s).softmax(-1)
return self.salida(torch.einsum("bhts,bshd->bthd", pesos, v).reshape(B, T, C))""",
    ),
    "FeedForward": (
        # Las matrices, a mano, y la ReLU, con un máximo.
        """\
self.volver, self.ensanchar = nn.Linear(C * 4, C), nn.Linear(C, C * 4)
# ---
activo = (x @ self.ensanchar.weight.T + self.ensanchar.bias).clamp(min=0)
return activo @ self.volver.weight.T + self.volver.bias""",
        # La ReLU, con una comparación.
        """\
self.ensanchar = nn.Linear(C, 4 * C)
self.volver = nn.Linear(4 * C, C)
# ---
ancho = self.ensanchar(x)
return self.volver(ancho * (ancho > 0))""",
    ),
    "Bloque": (
        # En un bucle, y las partes en otro orden.
        """\
for nombre in ("ln1", "ln2"):
    setattr(self, nombre, nn.LayerNorm([n_embd]))
capas = [nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd)]
self.ffwd = nn.Sequential(*capas)
self.sa = MiAtencion(n_head=n_head, n_embd=n_embd)
# ---
for normalizar_antes, subcapa in ((self.ln1, self.sa), (self.ln2, self.ffwd)):
    x = torch.add(x, subcapa(normalizar_antes(x)))
return x""",
        # Cada suma, con su nombre, y al revés.
        """\
self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
self.sa = MiAtencion(n_embd, n_head)
self.ffwd = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
# ---
oido = self.sa.forward(self.ln1(x)).add(x)
return sum((self.ffwd(self.ln2(oido)), oido))""",
    ),
    "Gpt": (
        # Una lista de PyTorch, y las posiciones, con sus números.
        """\
self.blocks = nn.ModuleList()
while len(self.blocks) < forma.n_layer:
    self.blocks.append(Bloque(forma.n_embd, forma.n_head))
self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
self.norm = nn.LayerNorm(forma.n_embd)
# ---
x = self.position_embedding(torch.arange(ids.shape[-1], device=ids.device))
x = x + self.token_embedding(ids)
for bloque in self.blocks:
    x = bloque(x)
return self.head(self.norm(x))""",
        # Filas elegidas, y un producto.
        """\
self.blocks = nn.Sequential(*(Bloque(forma.n_embd, forma.n_head) for _ in range(forma.n_layer)))
self.norm = nn.LayerNorm(forma.n_embd)
self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
# ---
x = self.token_embedding.weight[ids]
x = x + self.position_embedding.weight.narrow(0, 0, x.shape[1])
return self.norm(self.blocks.forward(x)) @ self.head.weight.T""",
    ),
    "sortear": (
        'return np.minimum(np.searchsorted(np.cumsum(p), azar, side="right"), len(p) - 1)',
        "return sum(azar >= c for c in np.cumsum(p)[:-1].tolist())",
    ),
    "vuelta": (
        # Cuenta los hijos, y pasa por un valor cuando han repartido todos.
        """\
hijos = {fin: 0}
por_ver = [fin]
while por_ver:
    for padre, _ in por_ver.pop().padres:
        if padre not in hijos:
            hijos[padre] = 0
            por_ver.append(padre)
        hijos[padre] += 1
fin.gradiente = 1.0
orden = []
listos = [fin]
while listos:
    valor = listos.pop()
    orden.insert(0, valor)
    for padre, local in valor.padres:
        padre.gradiente += valor.gradiente * local
        hijos[padre] -= 1
        if not hijos[padre]:
            listos.append(padre)
return orden""",
        # Sin función que se llame a sí misma.
        """\
orden = []
pila = [(fin, False)]
while pila:
    valor, con_padres = pila.pop()
    if valor in orden:
        continue
    if con_padres:
        orden.append(valor)
    else:
        pila.append((valor, True))
        pila += [(padre, False) for padre, _ in valor.padres]
fin.gradiente = 1.0
for valor in orden[::-1]:
    for padre, local in valor.padres:
        padre.gradiente += local * valor.gradiente
return orden""",
    ),
    "paso_adam": (
        """\
m = torch.lerp(m, g, 1 - b1)
v = torch.lerp(v, g.square(), 1 - b2)
tasa = eta / (1 - b1**t)
raiz = v.sqrt() / math.sqrt(1 - b2**t) + 1e-8
return (w * (1 - eta * encoger)).addcdiv(m, raiz, value=-tasa), m, v""",
        """\
memorias = [b * memoria + (1 - b) * x for b, memoria, x in ((b1, m, g), (b2, v, g * g))]
media, cuadrado = (x / (1 - b**t) for b, x in zip((b1, b2), memorias))
return (w - eta * (encoger * w + media / (cuadrado**0.5 + 1e-8)), *memorias)""",
    ),
    "entrenar": (
        # Ventana a ventana, con el gradiente borrado al final y con el AdamW de PyTorch.
        """\
optimizador = torch.optim.AdamW(modelo.parameters(), lr=tasa, weight_decay=0)
perdidas = []
while len(perdidas) < pasos:
    comienzos = torch.randint(0, len(texto) - ventana, (lote,)).tolist()
    entradas = torch.stack([texto[i : i + ventana] for i in comienzos])
    objetivos = torch.stack([texto[i + 1 : i + 1 + ventana] for i in comienzos])
    perdida = F.cross_entropy(modelo(entradas).mT, objetivos)
    perdida.backward()
    optimizador.step()
    optimizador.zero_grad()
    perdidas.append(float(perdida))
return perdidas""",
        # Con unfold, y el gradiente lo borra el modelo.
        """\
optimizador = Adam(modelo.parameters(), lr=tasa)
todas = texto.unfold(0, ventana + 1, 1)
perdidas = [0.0] * pasos
for paso in range(pasos):
    trozos = todas[torch.randperm(len(todas))[:lote]]
    logits = modelo(trozos[:, :-1])
    perdida = -logits.log_softmax(-1).gather(-1, trozos[:, 1:, None]).mean()
    modelo.zero_grad()
    perdida.backward()
    optimizador.step()
    perdidas[paso] = perdida.item()
return perdidas""",
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
