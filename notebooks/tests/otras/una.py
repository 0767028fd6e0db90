"""Una respuesta buena y poco corriente de cada pieza; lo demás del programa es de solucion.py.

Es para las pruebas: todo capítulo ha de poder usarlas.
"""


# --- Tokenizador (capítulo 1) -----------------------------------------------------------------


class Tokenizador:
    """Dos diccionarios, como en nanoGPT; el error que da uno se cambia por otro."""

    def __init__(self, caracteres: str) -> None:
        self.caracteres = caracteres
        self.stoi = {c: i for i, c in enumerate(caracteres)}
        self.itos = dict(enumerate(caracteres))

    def codificar(self, texto: str) -> Tensor:
        try:
            return torch.tensor([self.stoi[c] for c in texto]).long()
        except KeyError as error:
            raise ValueError(f"no conozco {error}") from error

    def descodificar(self, ids: Tensor) -> str:
        return "".join(self.itos[int(i)] for i in ids)


# --- Entrada (capítulo 2) ---------------------------------------------------------------------


class Entrada(nn.Module):
    """Con los números de las posiciones guardados, y con una tabla o con ninguna."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.token_embedding = nn.Embedding(forma.vocab_size, forma.n_embd)
        self.position_embedding = None
        if forma.position == "learned":
            self.position_embedding = nn.Embedding(forma.block_size, forma.n_embd)
        self.register_buffer("lugares", torch.arange(forma.block_size))
        for tabla in self.parameters():
            nn.init.normal_(tabla, mean=0.0, std=0.2)

    def forward(self, ids: Tensor) -> Tensor:
        _, T = ids.shape
        x = self.token_embedding(ids)
        if self.position_embedding is None:
            return x
        return x + self.position_embedding(self.lugares[:T])


# --- mirar_atras (capítulo 3) -----------------------------------------------------------------


def mirar_atras(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Tapar con un número muy negativo, no con menos infinito."""
    T = q.size(-2)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(torch.tril(torch.ones(T, T)) == 0, -1e9)
    att = F.softmax(att, dim=-1)
    return att @ v, att


# --- Atencion (capítulos 3½ y 10) -------------------------------------------------------------


class Atencion(nn.Module):
    """La de nanoGPT: tres trozos, y la máscara guardada con los parámetros."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        assert forma.n_embd % forma.n_head == 0
        self.qkv = nn.Linear(forma.n_embd, 3 * forma.n_embd, bias=forma.bias)
        self.proj = nn.Linear(forma.n_embd, forma.n_embd, bias=forma.bias)
        self.n_head = forma.n_head
        self.rotatoria, self.qk_norm = forma.position == "rope", forma.qk_norm
        tril = torch.tril(torch.ones(forma.block_size, forma.block_size))
        self.register_buffer("tril", tril.view(1, 1, forma.block_size, forma.block_size))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.qk_norm:
            q, k = igualar(q), igualar(k)
        if self.rotatoria:
            q, k = girar(torch.stack((q, k)))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.tril[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


# --- FeedForward (capítulo 4) -----------------------------------------------------------------


class FeedForward(nn.Module):
    """Sin llamar a las partes: con sus números."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.expand = nn.Linear(forma.n_embd, 4 * forma.n_embd, bias=forma.bias)
        self.proj = nn.Linear(4 * forma.n_embd, forma.n_embd, bias=forma.bias)

    def forward(self, x: Tensor) -> Tensor:
        oculto = F.linear(x, self.expand.weight, self.expand.bias)
        oculto = ACTIVACIONES[self.forma.activation](oculto)
        return F.linear(oculto, self.proj.weight, self.proj.bias)


# --- LayerNorm (capítulo 5) -------------------------------------------------------------------


class LayerNorm(nn.LayerNorm):
    """La de PyTorch, con otros argumentos."""

    def __init__(self, C: int, bias: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__(C, eps=epsilon, bias=bias)


# --- Bloque (capítulo 6) ----------------------------------------------------------------------


class Bloque(nn.Module):
    """Las dos subcapas, en bucle."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.attention, self.feed_forward = Atencion(forma), FeedForward(forma)
        self.norm1, self.norm2 = hacer_norma(forma), hacer_norma(forma)

    def forward(self, x: Tensor) -> Tensor:
        for norma, subcapa in ((self.norm1, self.attention), (self.norm2, self.feed_forward)):
            x = torch.add(subcapa(norma(x)), x)
        return x


# --- Gpt (capítulo 6) -------------------------------------------------------------------------


class Gpt(nn.Module):
    """Sin Entrada, con sus propias tablas; la cabeza de salida nace a cero."""

    def __init__(self, forma: Forma) -> None:
        super().__init__()
        self.forma = forma
        self.token_embedding = nn.Embedding(forma.vocab_size, forma.n_embd)
        nn.init.normal_(self.token_embedding.weight, std=0.2)
        if forma.position == "learned":
            self.position_embedding = nn.Embedding(forma.block_size, forma.n_embd)
            nn.init.normal_(self.position_embedding.weight, std=0.2)
        self.blocks = nn.ModuleList([Bloque(forma) for _ in range(forma.n_layer)])
        self.norm = hacer_norma(forma)
        self.head = nn.Linear(forma.n_embd, forma.vocab_size, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        _, T = ids.size()
        assert T <= self.forma.block_size, f"{T} letras, y caben {self.forma.block_size}"
        x = self.token_embedding(ids)
        if self.forma.position == "learned":
            x = x + self.position_embedding(torch.arange(T, device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# --- entropia_cruzada (capítulo 7) ------------------------------------------------------------


def entropia_cruzada(logits: Tensor, objetivos: Tensor) -> Tensor:
    """La de PyTorch, con V en el segundo eje."""
    return F.cross_entropy(logits.mT, objetivos)


# --- paso_de_adam (capítulo 8) ----------------------------------------------------------------


@torch.no_grad()
def paso_de_adam(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    tasa: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    encoger: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """En su sitio, y en copias."""
    w, m, v = w.clone(), m.clone(), v.clone()
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    w.mul_(1 - tasa * encoger)
    raiz = (v / (1 - beta2**t)).sqrt_().add_(1e-8)
    w.addcdiv_(m, raiz, value=-tasa / (1 - beta1**t))
    return w, m, v


# --- entrenar (capítulo 8) --------------------------------------------------------------------


def entrenar(
    modelo: nn.Module, ids: Tensor, pasos: int, lote: int, ventana: int, tasa: float
) -> list[float]:
    """El bucle de nanoGPT: las ventanas se apilan, y el gradiente se borra al final."""
    optimizador = Adam(modelo.parameters(), tasa)
    modelo.train()
    perdidas = []
    for paso in range(pasos):
        ix = torch.randint(len(ids) - ventana, (lote,))
        x = torch.stack([ids[i : i + ventana] for i in ix])
        y = torch.stack([ids[i + 1 : i + 1 + ventana] for i in ix])
        perdida = entropia_cruzada(modelo(x), y)
        perdida.backward()
        subida = (paso + 1) / 50 if paso < 50 else 1.0
        optimizador.tasa = tasa * subida * (pasos - paso) / pasos
        optimizador.step()
        modelo.zero_grad(set_to_none=True)
        perdidas.append(float(perdida))
    return perdidas


# --- generar (capítulo 9) ---------------------------------------------------------------------


@torch.no_grad()
def generar(
    modelo: nn.Module,
    tokenizador: Tokenizador,
    comienzo: str,
    cuantas: int,
    temperatura: float = 1.0,
    semilla: int = 1605,
) -> str:
    """Como en nanoGPT: con el eje de los textos todo el rato."""
    modelo.eval()
    g = torch.Generator()
    g.manual_seed(semilla)
    idx = tokenizador.codificar(comienzo).unsqueeze(0)
    leidas = idx.size(1)
    for _ in range(cuantas):
        block_size = modelo.forma.block_size
        idx_cond = idx if idx.size(1) <= block_size else idx[:, -block_size:]
        logits = modelo(idx_cond)[:, -1, :]
        if temperatura > 0:
            probs = F.softmax(logits / temperatura, dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1, generator=g)
        else:
            _, idx_next = torch.topk(logits, k=1, dim=-1)
        idx = torch.cat((idx, idx_next), dim=1)
    return tokenizador.descodificar(idx[0, leidas:])


# --- girar (capítulo 10) ----------------------------------------------------------------------


def girar(x: Tensor) -> Tensor:
    """Con números complejos."""
    T, D = x.shape[-2:]
    frecuencias = 1.0 / 10000 ** (torch.arange(0, D, 2).float() / D)
    giros = torch.exp(1j * torch.outer(torch.arange(T).float(), frecuencias))
    complejos = torch.view_as_complex(x.reshape(*x.shape[:-1], D // 2, 2))
    return torch.view_as_real(complejos * giros).flatten(-2)


# --- igualar (capítulo 10) --------------------------------------------------------------------


def igualar(x: Tensor) -> Tensor:
    """La de PyTorch."""
    return F.rms_norm(x, (x.size(-1),), eps=1e-6)


# --- guardar (capítulo 10) --------------------------------------------------------------------


def guardar(ruta: str | Path, modelo: Gpt, tokenizador: Tokenizador) -> None:
    """También lo que no son parámetros: las máscaras y las posiciones."""
    tensores = {"model." + nombre: valor for nombre, valor in modelo.state_dict().items()}
    contenido = {"characters": tokenizador.caracteres, "model": asdict(modelo.forma)}
    save_file(tensores, str(ruta), metadata={"content": json.dumps(contenido, ensure_ascii=False)})


# --- abrir_caja (capítulo 10) -----------------------------------------------------------------


def abrir_caja(ruta: str | Path) -> tuple[Gpt, Tokenizador]:
    """Con load_state_dict, que no pide las máscaras."""
    with safe_open(str(ruta), framework="pt", device="cpu") as f:
        contenido = json.loads(f.metadata()["content"])
        tensores = {n.removeprefix("model."): f.get_tensor(n).float() for n in f.keys()}  # noqa: SIM118
    suya = contenido["model"]
    if suya.get("ngram_size", 1) > 1 or suya.get("embedding_skip", False):
        raise ValueError("ese modelo tiene una tabla de secuencias")
    modelo = Gpt(Forma(**{k: v for k, v in suya.items() if k in Forma.__dataclass_fields__}))
    modelo.load_state_dict(tensores, strict=False)
    modelo.eval()
    return modelo, Tokenizador(contenido["characters"])


# --- abrir_gpt2 (capítulo 10) -----------------------------------------------------------------


def abrir_gpt2(parametros: dict[str, Tensor], n_head: int) -> Gpt:
    """Parte a parte, sin la lista de los nombres."""
    p = {n[12:] if n.startswith("transformer.") else n: v for n, v in parametros.items()}
    n_layer = 1 + max(int(n.split(".")[1]) for n in p if n.startswith("h."))
    V, C = p["wte.weight"].shape
    modelo = Gpt(Forma(V, p["wpe.weight"].shape[0], C, n_layer, n_head, activation="gelu"))
    with torch.no_grad():
        modelo.token_embedding.weight.copy_(p["wte.weight"])
        modelo.position_embedding.weight.copy_(p["wpe.weight"])
        modelo.head.weight.copy_(p["wte.weight"])
        modelo.norm.weight.copy_(p["ln_f.weight"])
        modelo.norm.bias.copy_(p["ln_f.bias"])
        for i, b in enumerate(modelo.blocks):
            partes = {
                "ln_1": b.norm1,
                "attn.c_attn": b.attention.qkv,
                "attn.c_proj": b.attention.proj,
            }
            partes |= {"ln_2": b.norm2, "mlp.c_fc": b.feed_forward.expand}
            partes |= {"mlp.c_proj": b.feed_forward.proj}
            for suya, mia in partes.items():
                mia.weight.copy_(p[f"h.{i}.{suya}.weight"].T)
                mia.bias.copy_(p[f"h.{i}.{suya}.bias"])
    return modelo
