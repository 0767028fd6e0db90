"""Las soluciones de los turnos que no son piezas de mi_gpt.py.

Cada una se ejecuta donde están los nombres de su capítulo, que aquí no se ven. El texto de su turno
la trae plegada: la copia ahí `python notebooks/taller/curso.py`.
"""

# ruff: noqa: F821

# --- perdida_media (capítulo 0) -------------------------------------------------------------------


def perdida_media_solucion(probabilidades: list[float]) -> float:
    return sum(-math.log(p) for p in probabilidades) / len(probabilidades)


# --- descenso (capítulo 0½) -----------------------------------------------------------------------


def descenso_solucion(w: torch.Tensor, b: torch.Tensor, tasa: float) -> float:
    w.grad = b.grad = None  # borrar el anterior
    error = (2 * w + b - 7) ** 2
    error.backward()
    with torch.no_grad():
        w -= tasa * w.grad
        b -= tasa * b.grad
    return error.item()


# --- bucle (capítulo 1) ---------------------------------------------------------------------------


def bucle_solucion(
    modelo: nn.Module,
    optimizador: torch.optim.Optimizer,
    lotes: Iterable[tuple[Tensor, Tensor]],
) -> list[float]:
    perdidas = []
    for leido, siguiente in lotes:
        perdida_del_lote = F.cross_entropy(modelo(leido).flatten(0, 1), siguiente.flatten())
        optimizador.zero_grad()
        perdida_del_lote.backward()
        optimizador.step()
        perdidas.append(perdida_del_lote.item())
    return perdidas


# --- sinusoides (capítulo 2) ----------------------------------------------------------------------


def sinusoides_solucion(n: int, d: int) -> Tensor:
    """Las n primeras posiciones sinusoidales, (n, d)."""
    tabla = torch.zeros(n, d)
    for i in range(n):
        for j in range(0, d, 2):
            angulo = i / 10000 ** (j / d)
            tabla[i, j] = math.sin(angulo)
            tabla[i, j + 1] = math.cos(angulo)
    return tabla


# --- softmax (capítulo 3) -------------------------------------------------------------------------


def softmax_solucion(s: Tensor) -> Tensor:
    potencias = (s - s.amax(-1, keepdim=True)).exp()  # la mayor es e⁰ = 1
    return potencias / potencias.sum(-1, keepdim=True)


# --- Residual (capítulo 5) ------------------------------------------------------------------------


class ResidualSolucion(nn.Module):
    def __init__(self, subcapa: nn.Module) -> None:
        super().__init__()
        self.subcapa = subcapa

    def forward(self, x: Tensor) -> Tensor:
        return x + self.subcapa(x)


# --- RMSNorm (rama rmsnorm) -----------------------------------------------------------------------


class RMSNormSolucion(nn.Module):
    def __init__(self, C: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.ganancia = nn.Parameter(torch.ones(C))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        cuadrados = x.square().mean(-1, keepdim=True)
        return self.ganancia * x / (cuadrados + self.epsilon).sqrt()


# --- sortear (capítulo 7) -------------------------------------------------------------------------


def sortear_solucion(p: Sequence[float], azar: float) -> int:
    suma = 0.0
    for i, probabilidad in enumerate(p):
        suma += probabilidad
        if azar < suma:
            return i
    return len(p) - 1  # si el redondeo dejó la suma algo por debajo de 1


# --- nucleo (capítulo 9) --------------------------------------------------------------------------


def nucleo_solucion(p: np.ndarray, corte: float) -> np.ndarray:
    quedan, juntado = np.zeros(len(p), dtype=bool), 0.0
    for i in np.argsort(-p):
        quedan[i] = True
        juntado += p[i]
        if juntado >= corte:
            break
    return quedan


# --- escribir (capítulo 9) ------------------------------------------------------------------------


def escribir_solucion(comienzo, n, elegir, lector):
    nuevos, escritas = comienzo, []
    for _ in range(n):
        letra = elegir(lector.read(nuevos)[0])
        escritas.append(letra)
        nuevos = np.array([[letra]])
    return escritas


# --- tres_subcapas (rama codificador_y_descodificador) --------------------------------------------


def tres_subcapas_solucion(y, contexto, futuro, relleno, bloque):
    y = bloque.norma1(y + bloque.atencion(y, y, futuro))  # (B, T, C)
    y = bloque.norma2(y + bloque.cruzada(y, contexto, relleno))  # q de y; k y v del contexto
    return bloque.norma3(y + bloque.ff(y))


# --- descifrar (rama codificador_y_descodificador) ------------------------------------------------


@torch.no_grad()
def descifrar_solucion(fichas, maximo=LARGO + 4):
    contexto, relleno = modelo.codificar(tensor(fichas))
    escrito = torch.full((len(fichas), 1), BOS)  # (B, 1)
    while escrito.shape[1] <= maximo and not (escrito == EOS).any(1).all():
        letra = modelo.descodificar(escrito, contexto, relleno)[:, -1].argmax(-1)  # (B,)
        escrito = torch.cat([escrito, letra[:, None]], 1)
    return [texto(fila) for fila in escrito]


# --- con_cabeza (rama rayos_x) --------------------------------------------------------------------


def con_cabeza_solucion(z, por, medir):
    bloque, cabeza = todas[z]

    def cambiar(modulo, recibe):
        return (sustituir(recibe[0], cabeza, por),)

    asa = modelo.blocks[bloque].attention.proj.register_forward_pre_hook(cambiar)
    try:
        return medir()
    finally:  # también si medir() falla
        asa.remove()


# --- lente (rama rayos_x) -------------------------------------------------------------------------


def lente_solucion(corriente):
    raiz = (corriente.square().mean(-1, keepdim=True) + 1e-6).sqrt()  # (…, 1)
    return (corriente / raiz) @ modelo.head.weight.T


# --- enmascarar (rama de_sancho_a_un_asistente) ---------------------------------------------------


def enmascarar_solucion(ids: np.ndarray, desde: int) -> np.ndarray:
    objetivos = ids[1:].copy()
    objetivos[: desde - 1] = CALLA
    return objetivos


# --- perdida_dpo (rama de_sancho_a_un_asistente) --------------------------------------------------


def perdida_dpo_solucion(ahora: Tensor, al_empezar: Tensor, beta: float = 0.1) -> Tensor:
    sube = ahora - al_empezar  # (2,)
    return -F.logsigmoid(beta * (sube[0] - sube[1]))


# --- mejor_peso (rama tabla_de_secuencias) --------------------------------------------------------


def mejor_peso_solucion(p_red: np.ndarray, p_cuentas: np.ndarray) -> float:
    pesos = np.linspace(0, 1, 101)
    return min(pesos, key=lambda w: -np.log(w * p_red + (1 - w) * p_cuentas).mean())


# --- fundir (rama otros_tokens) -------------------------------------------------------------------


def fundir_solucion(tokens: tuple[str, ...], par: tuple[str, str]) -> tuple[str, ...]:
    """Juntar en un token cada aparición de la pareja, de izquierda a derecha."""
    nuevos, i = [], 0
    while i < len(tokens):
        if tokens[i : i + 2] == par:
            nuevos.append(tokens[i] + tokens[i + 1])
            i += 2
        else:
            nuevos.append(tokens[i])
            i += 1
    return tuple(nuevos)


# --- paso_muon (rama muon) ------------------------------------------------------------------------


def paso_muon_solucion(
    w: Tensor, g: Tensor, m: Tensor, eta: float, b: float = 0.95
) -> tuple[Tensor, Tensor]:
    m = b * m + (1 - b) * g
    rumbo = b * m + (1 - b) * g
    return w - eta * orthogonalise(rumbo[None])[0], m


# --- lineal_atras (rama microsancho) --------------------------------------------------------------


def lineal_atras_solucion(d_y: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple:
    d_w = d_y.reshape(-1, d_y.shape[-1]).T @ x.reshape(-1, x.shape[-1])
    return d_y @ w, d_w


# --- normalizar_atras (rama microsancho) ----------------------------------------------------------


def normalizar_atras_solucion(d_y: np.ndarray, y: np.ndarray, r: np.ndarray) -> np.ndarray:
    return r * (d_y - y * (d_y * y).mean(-1, keepdims=True))
