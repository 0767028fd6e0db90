"""Y otro, con otras respuestas que las de una.py.

Es para las pruebas: todo capítulo ha de poder usarlas.
"""


# --- Tokenizador (capítulo 1) -----------------------------------------------------------------


class Tokenizador:
    """Una lista, un tensor que se llena y una propiedad."""

    def __init__(self, caracteres: str) -> None:
        self._letras = list(caracteres)

    @property
    def caracteres(self) -> str:
        return "".join(self._letras)

    def codificar(self, texto: str) -> Tensor:
        ids = torch.empty(len(texto), dtype=torch.int64)
        for lugar, letra in enumerate(texto):
            if letra not in self._letras:
                raise ValueError(f"letra desconocida: {letra}")
            ids[lugar] = self._letras.index(letra)
        return ids

    def descodificar(self, ids: Tensor) -> str:
        texto = ""
        for i in ids:
            texto += self._letras[i]
        return texto


# --- Entrada (capítulo 2) ---------------------------------------------------------------------


class Entrada(nn.Module):
    """Las letras, multiplicando; las posiciones, una a una."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        letras = 0.2 * torch.randn(forma.vocab_size, forma.n_embd)
        self.token_embedding = nn.Embedding(*letras.shape, _weight=letras)
        if forma.position == "learned":
            self.position_embedding = nn.Embedding(forma.block_size, forma.n_embd)
            with torch.no_grad():
                self.position_embedding.weight.mul_(0.2)

    def forward(self, ids: Tensor) -> Tensor:
        x = F.one_hot(ids, self.forma.vocab_size).float() @ self.token_embedding.weight
        if not hasattr(self, "position_embedding"):
            return x
        columnas = x.unbind(1)
        return torch.stack(
            [c + self.position_embedding.weight[t] for t, c in enumerate(columnas)], 1
        )


# --- mirar_atras (capítulo 3) -----------------------------------------------------------------


def mirar_atras(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """La softmax, a mano: las potencias, sin las de después, entre su suma."""
    puntuaciones = torch.einsum("...id,...jd->...ij", q, k) * q.size(-1) ** -0.5
    potencias = (puntuaciones - puntuaciones.amax(-1, keepdim=True)).exp().tril()
    pesos = potencias / potencias.sum(-1, keepdim=True)
    return [torch.einsum("...ij,...jd->...id", pesos, v), pesos]


# --- Atencion (capítulos 3½ y 10) -------------------------------------------------------------


class Atencion(nn.Module):
    """Cabeza a cabeza, sin más ejes; la última vez, los pesos quedan a mano."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.qkv = nn.Linear(forma.n_embd, 3 * forma.n_embd, forma.bias)
        self.proj = nn.Linear(forma.n_embd, forma.n_embd, forma.bias)

    def forward(self, x: Tensor) -> Tensor:
        D = self.forma.n_embd // self.forma.n_head
        leidos, self.pesos = [], []
        for q, k, v in zip(*(z.split(D, -1) for z in self.qkv(x).chunk(3, -1))):
            if self.forma.position == "rope":
                q, k = girar(q), girar(k)
            if self.forma.qk_norm:
                q, k = igualar(q), igualar(k)
            leido, pesos = mirar_atras(q, k, v)
            leidos.append(leido)
            self.pesos.append(pesos.detach())
        return self.proj(torch.cat(leidos, -1))


# --- FeedForward (capítulo 4) -----------------------------------------------------------------


class Activacion(nn.Module):
    """Una activación, como módulo."""

    def __init__(self, cual: str) -> None:
        super().__init__()
        self.cual = cual

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVACIONES[self.cual](x)


class FeedForward(nn.Sequential):
    """Una fila de tres módulos con nombre."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.expand = nn.Linear(forma.n_embd, 4 * forma.n_embd, bias=forma.bias)
        self.activacion = Activacion(forma.activation)
        self.proj = nn.Linear(4 * forma.n_embd, forma.n_embd, bias=forma.bias)


# --- LayerNorm (capítulo 5) -------------------------------------------------------------------


class LayerNorm(nn.Module):
    """La media y la varianza, de una vez."""

    def __init__(self, C: int, bias: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.register_buffer("epsilon", torch.tensor(epsilon))
        self.weight = nn.Parameter(torch.full((C,), 1.0))
        self.register_parameter("bias", nn.Parameter(torch.zeros(C)) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        varianza, media = torch.var_mean(x, -1, correction=0, keepdim=True)
        x = (x - media) * torch.rsqrt(varianza + self.epsilon) * self.weight
        if self.bias is not None:
            x = x + self.bias
        return x


# --- Bloque (capítulo 6) ----------------------------------------------------------------------


def sumar(x: Tensor, norma: nn.Module, subcapa: nn.Module) -> Tensor:
    """Una subcapa, con lo suyo."""
    y = x.clone()
    y += subcapa(norma(x))
    return y


class Bloque(nn.Module):
    """Con una función al lado, que suma en una copia."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.norm1 = hacer_norma(forma)
        self.attention = Atencion(forma)
        self.norm2 = hacer_norma(forma)
        self.feed_forward = FeedForward(forma)

    def forward(self, x: Tensor) -> Tensor:
        return sumar(sumar(x, self.norm1, self.attention), self.norm2, self.feed_forward)


# --- Gpt (capítulo 6) -------------------------------------------------------------------------


class Gpt(Entrada):
    """Los bloques, en fila; y con la entrada por su nombre."""

    def __init__(self, forma: Forma) -> None:
        Entrada.__init__(self, forma)
        self.blocks = nn.Sequential(*[Bloque(forma) for _ in range(forma.n_layer)])
        self.norm = hacer_norma(forma)
        self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.blocks(Entrada.forward(self, ids)))
        return torch.einsum("btc,vc->btv", x, self.head.weight)


# --- entropia_cruzada (capítulo 7) ------------------------------------------------------------


def entropia_cruzada(logits: Tensor, objetivos: Tensor) -> Tensor:
    """El logaritmo de la suma de las potencias, menos el logit de la correcta."""
    B, T, V = logits.shape
    filas, letras = logits.reshape(B * T, V), objetivos.reshape(B * T)
    return (filas.logsumexp(1) - filas[torch.arange(B * T), letras]).mean()


# --- paso_de_adam (capítulo 8) ----------------------------------------------------------------


def paso_de_adam(w, g, m, v, t, tasa, beta1=0.9, beta2=0.99, encoger=0.0):
    """Las memorias, entre lo viejo y lo nuevo; y una lista."""
    m, v = torch.lerp(g, m, beta1), torch.lerp(g * g, v, beta2)
    paso = m / (1 - beta1**t) / ((v / (1 - beta2**t)) ** 0.5 + 1e-8)
    return [w - tasa * (paso + encoger * w), m, v]


# --- entrenar (capítulo 8) --------------------------------------------------------------------


def entrenar(modelo, ids, pasos, lote, ventana, tasa):
    """Sin la clase Adam: las memorias, aquí; las pérdidas, en un tensor."""
    parametros = list(modelo.parameters())
    memorias = [[torch.zeros_like(w), torch.zeros_like(w)] for w in parametros]
    perdidas = torch.zeros(pasos)
    ventanas = ids.unfold(0, ventana + 1, 1)
    for t in range(1, pasos + 1):
        trozos = ventanas[torch.randint(len(ventanas), (lote,))]
        valor = entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])
        gradientes = torch.autograd.grad(valor, parametros)
        ahora = tasa * min(t / 50, 1) * (1 - (t - 1) / pasos)
        for i, (w, g) in enumerate(zip(parametros, gradientes)):
            w.data, *memorias[i] = paso_de_adam(w.data, g, *memorias[i], t, ahora)
        perdidas[t - 1] = valor.detach()
    return perdidas.tolist()


# --- generar (capítulo 9) ---------------------------------------------------------------------


@torch.inference_mode()
def generar(modelo, tokenizador, comienzo, cuantas, temperatura=1.0, semilla=1605):
    """Con una lista, y un número al azar que se busca en las sumas."""
    azar = torch.Generator().manual_seed(semilla)
    leidas = tokenizador.codificar(comienzo).tolist()
    escritas: list[int] = []
    while len(escritas) < cuantas:
        contexto = torch.tensor([(leidas + escritas)[-modelo.forma.block_size :]])
        *_, logits = modelo(contexto)[0]
        if temperatura == 0:
            escritas.append(int(logits.argmax()))
            continue
        sumas = (logits / temperatura).double().softmax(0).cumsum(0)
        dado = torch.rand(1, generator=azar, dtype=torch.double)
        escritas += torch.searchsorted(sumas, dado, right=True).clamp(max=len(sumas) - 1).tolist()
    return tokenizador.descodificar(torch.tensor(escritas, dtype=torch.long))


# --- girar (capítulo 10) ----------------------------------------------------------------------


def girar(x):
    """Cada canal, por su coseno; y su pareja, por su seno."""
    T, D = x.shape[-2:]
    exponentes = (torch.arange(D) // 2 * 2) / D
    angulos = torch.arange(T)[:, None] * torch.exp(-math.log(10000.0) * exponentes)
    parejas = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * angulos.cos() + parejas * angulos.sin()


# --- igualar (capítulo 10) --------------------------------------------------------------------


def igualar(x):
    """Por la longitud de cada vector."""
    longitud = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.rsqrt(longitud**2 / x.shape[-1] + 1e-6)


# --- guardar (capítulo 10) --------------------------------------------------------------------


def guardar(ruta, modelo, tokenizador):
    """Una copia de cada uno, y algo de más en la metadata."""
    tensores = {}
    with torch.no_grad():
        for nombre, p in modelo.named_parameters():
            tensores[f"model.{nombre}"] = p.clone()
    contenido = json.dumps(
        {"model": asdict(modelo.forma), "characters": tokenizador.caracteres}, indent=1
    )
    save_file(tensores, ruta, {"content": contenido, "de": "mi_gpt"})


# --- abrir_caja (capítulo 10) -----------------------------------------------------------------


def abrir_caja(ruta):
    """Quita lo que sobra, y pone otros números en cada parámetro."""
    archivo = safe_open(ruta, "pt")
    todo = json.loads(archivo.metadata()["content"])
    suya = dict(todo["model"])
    if suya.pop("ngram_size", 1) != 1 or suya.pop("embedding_skip", False):
        raise ValueError(f"{ruta}: con tabla de secuencias no sé")
    for sobra in set(suya) - set(vars(Forma(1, 1, 1))):
        del suya[sobra]
    modelo = Gpt(Forma(**suya))
    for nombre, p in modelo.named_parameters():
        p.data = archivo.get_tensor("model." + nombre).to(torch.float32)
    return modelo.train(False), Tokenizador(todo["characters"])


# --- abrir_gpt2 (capítulo 10) -----------------------------------------------------------------


def abrir_gpt2(parametros, n_head):
    """Con los nombres cambiados al revés: de los suyos a los míos."""
    delante = "transformer." if "transformer.wte.weight" in parametros else ""
    V, C = parametros[f"{delante}wte.weight"].shape
    block_size, _ = parametros[f"{delante}wpe.weight"].shape
    bloques = 0
    while f"{delante}h.{bloques}.ln_1.weight" in parametros:
        bloques += 1
    medidas = {"n_embd": C, "n_layer": bloques, "n_head": n_head, "activation": "gelu"}
    modelo = Gpt(Forma(vocab_size=V, block_size=block_size, **medidas))
    nuevos = {}
    for nombre, _ in modelo.named_parameters():
        suyo = nombre
        for mia, suya in NOMBRES_EN_GPT2.items():
            suyo = suyo.replace(mia, suya)
        valor = parametros[delante + suyo]
        nuevos[nombre] = valor.t() if ".c_" in suyo and valor.ndim == 2 else valor
    modelo.load_state_dict(nuevos, strict=False)
    return modelo
