"""Los errores de siempre de cada pieza: qué se cambia en la solución, y qué se dice de ello.

Cuando una pieza no da lo que debe, se compara lo que da con lo que da la solución con cada cambio:
si es lo mismo, la frase va delante del valor con que protesta la comprobación.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

import hoja

Cambio = tuple[str, str]
"""Lo que está escrito en la solución, y lo que se escribe en su lugar."""

SUMAR = "x = x + self.position_embedding.weight[: ids.shape[1]]"
MIRAR = "leido, _ = mirar_atras(q, k, v)"
PARTIR = "qkv = self.qkv(x).view(B, T, 3, H, C // H)"
CON_ROPE = 'if self.forma.position == "rope":'
GIRAR = "q, k = girar(q), girar(k)"
CON_QK_NORM = "if self.forma.qk_norm:"
IGUALAR = "q, k = igualar(q), igualar(k)"
ACTIVAR = "self.proj(self.activacion(self.expand(x)))"
ESCUCHAR = "x = x + self.attention(self.norm1(x))"
PENSAR = "return x + self.feed_forward(self.norm2(x))"
LOGITS = "self.head(self.norm(x))"
UNA_POR_UNA = "-log_p.gather(-1, objetivos[..., None]).mean()"
ENCOGER = "    w = w - tasa * encoger * w\n"
MOVER = "w - tasa * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + 1e-8)"
PONER_LA_TASA = "        optimizador.tasa = tasa * min(t / 50, 1) * (1 - (t - 1) / pasos)\n"
DAR_EL_PASO = "        optimizador.step()\n"
GIRADO = "a * coseno - b * seno, a * seno + b * coseno"
EXPONENTE = "torch.arange(0, D, 2, device=x.device) / D"
FUERA = "(varianza.sqrt() + self.epsilon)"
ENTRENAR = "modelo(trozos[:, :-1]), trozos[:, 1:]"
IGUALADO = "x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()"


BORRA_ANTES = "borra el gradiente antes de usarlo: zero_grad va delante de backward"
SIN_PASO = "no mueve los parámetros: falta optimizador.step()"
NO_OLVIDA = "llega al paso 2 sin olvidar el gradiente del 1: falta zero_grad"
DOS_SOFTMAX = "pasa dos veces por la softmax: F.cross_entropy ya la hace, y quiere los logits"


def antes_de_partir(hacer: str) -> str:
    """Lo que se escribe para hacer algo con las consultas y las claves antes de partirlas en cabezas."""
    return (
        "Q, K, V = self.qkv(x).chunk(3, -1)\n"
        f"            qkv = torch.cat(({hacer}(Q), {hacer}(K), V), -1).view(B, T, 3, H, C // H)"
    )


ERRORES: dict[str, tuple[tuple, ...]] = {
    "Entrada": (
        ("no suma las posiciones", (SUMAR, "pass")),
        ("multiplica por las posiciones, debería sumarlas", ("x + self", "x * self")),
        ("da a todas las letras la misma posición", ("[: ids.shape[1]]", "[ids.shape[1] - 1]")),
        (
            "busca la posición con el número de la letra",
            (".weight[: ids.shape[1]]", "(ids)"),
        ),
        ("pone las posiciones al revés", ("[: ids.shape[1]]", "[: ids.shape[1]].flip(0)")),
        (
            "toma las posiciones por el final: la primera letra va en la 0",
            ("[: ids.shape[1]]", "[-ids.shape[1] :]"),
        ),
        (
            "cuenta las posiciones desde 1: la primera letra va en la 0",
            ("[: ids.shape[1]]", "[1 : ids.shape[1] + 1]"),
        ),
    ),
    "mirar_atras": (
        ("no divide las puntuaciones entre √D", (" / math.sqrt(D)", "")),
        ("divide las puntuaciones entre D, debería entre √D", ("math.sqrt(D)", "D")),
        ("hace la softmax por columnas: va por filas, en el último eje", ("(-1)", "(-2)")),
        ("deja ver una letra de las de después", (".triu(1)", ".triu(2)")),
        (
            "tapa a cada letra también la suya: la primera se queda sin ninguna",
            ("triu(1)", "triu()"),
        ),
        (
            "multiplica por infinito, y 0 · ∞ no es un número",
            ("puntuaciones.masked_fill(futuro, -math.inf)", "(puntuaciones - futuro * math.inf)"),
        ),
        ("no tapa el futuro", (".masked_fill(futuro, -math.inf)", "")),
        ("tapa el pasado, debería tapar el futuro", (".triu(1)", ".tril(-1)")),
        ("tapa el futuro con ceros antes de la softmax, y e⁰ es 1: va con −∞", ("-math.inf", "0")),
        (
            "tapa el futuro después de la softmax: va antes, con −∞",
            (".masked_fill(futuro, -math.inf).softmax(-1)", ".softmax(-1).masked_fill(futuro, 0)"),
        ),
        (
            "devuelve las puntuaciones, debería devolver los pesos",
            ("return pesos @ v, pesos", "return pesos @ v, puntuaciones"),
        ),
        (
            "devuelve las puntuaciones tapadas, debería devolver los pesos",
            (
                "return pesos @ v, pesos",
                "return pesos @ v, puntuaciones.masked_fill(futuro, -math.inf)",
            ),
        ),
        ("pregunta con k y contesta con q", ("q @ k.mT", "k @ q.mT")),
        ("mezcla las k, y se leen los v", ("pesos @ v, pesos", "pesos @ k, pesos")),
    ),
    "Atencion": (
        (
            "reparte la salida de qkv primero por cabezas; van todas las consultas, las claves y "
            "los valores",
            ("view(B, T, 3, H, C // H)", "view(B, T, H, 3, C // H).transpose(2, 3)"),
        ),
        (
            "al juntar las cabezas mezcla las letras: antes, transpose(1, 2)",
            ("leido.transpose(1, 2).reshape", "leido.reshape"),
        ),
        (
            "al partir en cabezas mezcla las letras: view(B, T, H, D) y después transpose(1, 2)",
            ("permute(2, 0, 3, 1, 4)", "permute(2, 0, 1, 3, 4).reshape(3, B, H, T, C // H)"),
        ),
        (
            "al partir en cabezas mezcla las letras: view(B, T, H, D) y después transpose(1, 2)",
            ("permute(2, 0, 3, 1, 4)", "permute(2, 0, 1, 3, 4).reshape(3, B, H, T, C // H)"),
            ("leido.transpose(1, 2).reshape", "leido.reshape"),
        ),
        (
            "mira de una cabeza a otra, y no de una letra a otra: mirar_atras espera (B, H, T, D)",
            ("permute(2, 0, 3, 1, 4)", "permute(2, 0, 1, 3, 4)"),
            ("leido.transpose(1, 2).reshape", "leido.reshape"),
        ),
        *(
            (
                "cambia el orden: en qkv van consultas, claves y valores",
                ("q, k, v = qkv", f"{otro} = qkv"),
            )
            for otro in ("k, q, v", "q, v, k", "v, k, q", "k, v, q", "v, q, k")
        ),
        *(
            (f"hace siempre {H} cabezas: son forma.n_head", ("H = self.forma.n_head", f"H = {H}"))
            for H in (1, 2, 3, 4, 12)
        ),
        ("no pasa lo leído por proj", ("self.proj(leido", "(leido")),
        (
            "suma x a lo que da: eso lo hace el bloque",
            ("return self.proj", "return x + self.proj"),
        ),
        (
            "divide las puntuaciones entre √C, debería entre √D: los canales de una cabeza",
            ("mirar_atras(q,", "mirar_atras(q / math.sqrt(H),"),
        ),
        (
            "no divide las puntuaciones entre √D",
            ("mirar_atras(q,", "mirar_atras(q * math.sqrt(C // H),"),
        ),
        ("no tapa el futuro", (MIRAR, "leido = F.scaled_dot_product_attention(q, k, v)")),
    ),
    "Atencion, con girar": (
        ('gira siempre, debería solo si forma.position es "rope"', (CON_ROPE, "if True:")),
        (
            'no gira las consultas ni las claves, y forma.position es "rope"',
            (GIRAR, "girar(q), girar(k)"),
        ),
        ("gira solo las consultas; también las claves", (GIRAR, "q = girar(q)")),
        ("gira solo las claves; también las consultas", (GIRAR, "k = girar(k)")),
        (
            "gira también los valores; solo las consultas y las claves",
            (GIRAR, "q, k, v = girar(q), girar(k), girar(v)"),
        ),
        (
            "gira antes de partir en cabezas; cada cabeza va por su cuenta",
            (GIRAR, "pass"),
            (PARTIR, f"{PARTIR}\n        {CON_ROPE}\n            {antes_de_partir('girar')}"),
        ),
        (
            "gira lo que entra, debería girar las consultas y las claves",
            (GIRAR, "pass"),
            (PARTIR, f"{CON_ROPE}\n            x = girar(x)\n        {PARTIR}"),
        ),
        ("iguala siempre, debería solo si forma.qk_norm es True", (CON_QK_NORM, "if True:")),
        (
            "no iguala las consultas ni las claves, y forma.qk_norm es True",
            (IGUALAR, "igualar(q), igualar(k)"),
        ),
        ("iguala solo las consultas; también las claves", (IGUALAR, "q = igualar(q)")),
        ("iguala solo las claves; también las consultas", (IGUALAR, "k = igualar(k)")),
        (
            "iguala también los valores; solo las consultas y las claves",
            (IGUALAR, "q, k, v = igualar(q), igualar(k), igualar(v)"),
        ),
        (
            "iguala antes de partir en cabezas; cada cabeza va por su cuenta",
            (IGUALAR, "pass"),
            (PARTIR, f"{PARTIR}\n        {CON_QK_NORM}\n            {antes_de_partir('igualar')}"),
        ),
        (
            "gira o iguala sin mirar lo que dicen forma.position y forma.qk_norm",
            (CON_ROPE, "if True:"),
            (CON_QK_NORM, "if True:"),
        ),
    ),
    "FeedForward": (
        (
            "no activa: sin activación, dos matrices seguidas son una",
            (ACTIVAR, "self.proj(self.expand(x))"),
        ),
        (
            "activa la salida, y no lo ensanchado",
            (ACTIVAR, "self.activacion(self.proj(self.expand(x)))"),
        ),
        ("activa también la salida", (ACTIVAR, f"self.activacion({ACTIVAR})")),
        (
            "activa la entrada, y no lo ensanchado",
            (ACTIVAR, "self.proj(self.expand(self.activacion(x)))"),
        ),
        ("suma x a lo que da: eso lo hace el bloque", (ACTIVAR, f"x + {ACTIVAR}")),
        (
            "usa siempre ReLU: la activación la dice forma.activation",
            ("self.activacion(self.expand(x))", "F.relu(self.expand(x))"),
        ),
        (
            "usa otra GELU que la de ACTIVACIONES, que es la de GPT-2",
            (
                "ACTIVACIONES[forma.activation]",
                '(ACTIVACIONES | {"gelu": F.gelu})[forma.activation]',
            ),
        ),
    ),
    "LayerNorm": (
        (
            "no resta la media: eso es RMSNorm",
            ("desvios = x - x.mean(-1, keepdim=True)", "desvios = x"),
        ),
        ("divide entre la varianza, sin su raíz", (".sqrt()", "")),
        (
            "divide solo la media: x menos la media va entre paréntesis",
            ("self.weight * desvios /", "self.weight * (x - x.mean(-1, keepdim=True) /"),
            ("self.epsilon).sqrt()", "self.epsilon).sqrt())"),
        ),
        (
            "divide la varianza entre C − 1, debería dividir entre C: la poblacional",
            ("desvios.square().mean(-1, keepdim=True)", "x.var(-1, keepdim=True)"),
        ),
        (
            "deja la épsilon fuera de la raíz: va dentro",
            ("(varianza + self.epsilon).sqrt()", FUERA),
        ),
        ("suma siempre 1e-5: épsilon es la que recibe", ("= epsilon\n", "= 1e-5\n")),
        ("no suma épsilon a la varianza", (" + self.epsilon", "")),
        ("resta épsilon: se suma a la varianza", ("varianza + ", "varianza - ")),
        (
            "suma los cuadrados, y la varianza es su media",
            ("desvios.square().mean(-1", "desvios.square().sum(-1"),
        ),
        ("no multiplica por γ, que es weight", ("self.weight * desvios", "desvios")),
        ("no suma β, que es bias", ("x + self.bias", "x")),
        (
            "no usa γ ni β, que son weight y bias",
            ("self.weight * desvios", "desvios"),
            ("x + self.bias", "x"),
        ),
        (
            "suma β antes de multiplicar por γ, debería después",
            ("self.weight * desvios", "desvios"),
            ("else x + self.bias", "else self.weight * (x + self.bias)"),
        ),
    ),
    "Bloque": (
        (
            "no suma lo que da la feed-forward a lo que había",
            (PENSAR, "return self.feed_forward(self.norm2(x))"),
        ),
        (
            "no suma lo que da la atención a lo que había",
            (ESCUCHAR, "x = self.attention(self.norm1(x))"),
        ),
        (
            "no suma en ningún sitio",
            (ESCUCHAR, "x = self.attention(self.norm1(x))"),
            (PENSAR, "return self.feed_forward(self.norm2(x))"),
        ),
        ("no normaliza en ningún sitio", ("self.norm1(x)", "x"), ("self.norm2(x)", "x")),
        ("no normaliza delante de la atención", ("self.norm1(x)", "x")),
        ("no normaliza delante de la feed-forward", ("self.norm2(x)", "x")),
        (
            "hace leer a la feed-forward lo que entró, y no lo que dejó la atención",
            (ESCUCHAR, ESCUCHAR.replace("x =", "y =")),
            (PENSAR, "return y + self.feed_forward(self.norm2(x))"),
        ),
        (
            "suma la feed-forward a lo que entró, y no a lo que dejó la atención",
            (ESCUCHAR, ESCUCHAR.replace("x =", "y =")),
            (PENSAR, "return x + self.feed_forward(self.norm2(y))"),
        ),
        (
            "normaliza las sumas: el original se pierde",
            (ESCUCHAR, "x = self.norm1(x + self.attention(x))"),
            (PENSAR, "return self.norm2(x + self.feed_forward(x))"),
        ),
        (
            "normaliza después de la atención, y no antes",
            ("self.attention(self.norm1(x))", "self.norm1(self.attention(x))"),
        ),
        (
            "normaliza después de la feed-forward, y no antes",
            ("self.feed_forward(self.norm2(x))", "self.norm2(self.feed_forward(x))"),
        ),
        (
            "normaliza lo que entra, y después ya no hay original al que sumar",
            (ESCUCHAR, "x = self.norm1(x)\n        x = x + self.attention(x)"),
        ),
        (
            "normaliza con norm2 también delante de la atención",
            (ESCUCHAR, ESCUCHAR.replace("norm1", "norm2")),
        ),
        (
            "normaliza con norm1 también delante de la feed-forward",
            ("self.norm2(x)", "self.norm1(x)"),
        ),
        (
            "cambia norm1 por norm2: norm1 va delante de la atención",
            (ESCUCHAR, ESCUCHAR.replace("norm1", "norm2")),
            (PENSAR, PENSAR.replace("norm2", "norm1")),
        ),
        (
            "pasa por la feed-forward antes que por la atención",
            (ESCUCHAR, PENSAR.replace("return", "x =")),
            (PENSAR, ESCUCHAR.replace("x =", "return")),
        ),
        (
            "normaliza también lo que devuelve",
            (PENSAR, "return self.norm2(x + self.feed_forward(self.norm2(x)))"),
        ),
        (
            "suma a la copia normalizada, y no al original",
            (ESCUCHAR, "x = self.norm1(x)\n        x = x + self.attention(x)"),
            (PENSAR, "x = self.norm2(x)\n        return x + self.feed_forward(x)"),
        ),
        ("se para después de la atención", (PENSAR, "return x")),
        ("devuelve lo que recibe", (ESCUCHAR, "pass"), (PENSAR, "return x")),
        (
            "usa siempre ReLU: FeedForward recibe la forma entera",
            ("FeedForward(forma)", "FeedForward(Forma(11, 9, forma.n_embd, bias=forma.bias))"),
        ),
        *(
            (
                f"hace siempre {H} cabezas: Atencion recibe la forma entera",
                ("Atencion(forma)", f"Atencion(Forma(11, 9, forma.n_embd, 1, {H}, forma.bias))"),
            )
            for H in (1, 2, 3, 4)
        ),
    ),
    "Gpt": (
        ("no suma las posiciones", ("super().forward(ids)", "self.token_embedding(ids)")),
        (
            "da probabilidades; han de ser los logits, sin softmax",
            (LOGITS, f"{LOGITS}.softmax(-1)"),
        ),
        (
            "da logaritmos; han de ser los logits, sin log_softmax",
            (LOGITS, f"{LOGITS}.log_softmax(-1)"),
        ),
        ("no normaliza delante de la cabeza de salida", (LOGITS, "self.head(x)")),
        (
            "normaliza delante de los bloques; va detrás",
            ("super().forward(ids)", "self.norm(super().forward(ids))"),
            (LOGITS, "self.head(x)"),
        ),
        (
            "normaliza detrás de cada bloque; va solo al final",
            ("x = bloque(x)", "x = self.norm(bloque(x))"),
        ),
        (
            "normaliza dentro del for; va detrás de él",
            ("x = bloque(x)", "x = self.norm(bloque(x))"),
            (LOGITS, "self.head(x)"),
        ),
        ("no pasa por los bloques", ("x = bloque(x)", "bloque(x)")),
        ("pasa solo por el primer bloque", ("in self.blocks", "in self.blocks[:1]")),
        (
            "da a todos los bloques lo mismo: cada uno lee lo que deja el anterior",
            ("x = super()", "entra = x = super()"),
            ("x = bloque(x)", "x = bloque(entra)"),
        ),
        ("pasa por los bloques al revés", ("in self.blocks", "in reversed(self.blocks)")),
        (
            "suma otra vez lo que entra en cada bloque: el bloque ya lo suma",
            ("x = bloque(x)", "x = x + bloque(x)"),
        ),
        (
            "toma las posiciones por el final: la primera letra va en la 0",
            (
                "super().forward(ids)",
                "self.token_embedding(ids) + self.position_embedding.weight[-ids.shape[1] :]",
            ),
        ),
    ),
    "entropia_cruzada": (
        (
            "se desborda con logits grandes: usa log_softmax",
            ("log_softmax(-1)", "softmax(-1).log()"),
        ),
        ("da el logaritmo sin cambiarle el signo", ("-log_p.", "log_p.")),
        ("da la suma, debería dar la media de todas las letras", (".mean()", ".sum()")),
        (
            "suma las letras de un texto y hace la media de los textos",
            (".mean()", ".sum() / len(logits)"),
        ),
        (
            "divide también entre V: la media es de las letras",
            (".mean()", ".mean() / logits.shape[-1]"),
        ),
        (
            "cuenta solo la última letra de cada texto",
            (UNA_POR_UNA, "-log_p[:, -1].gather(-1, objetivos[:, -1:]).mean()"),
        ),
        (
            "da bits, debería dar nats: el logaritmo es el natural",
            (".mean()", ".mean() / math.log(2)"),
        ),
        (
            "da la media de las p correctas, sin logaritmo",
            (UNA_POR_UNA, "log_p.exp().gather(-1, objetivos[..., None]).mean()"),
        ),
        (
            "da menos la media de las p correctas, sin logaritmo",
            ("log_softmax(-1)", "softmax(-1)"),
        ),
        (
            "da −ln de la media de las p, debería dar la media de los −ln",
            (UNA_POR_UNA, "-log_p.exp().gather(-1, objetivos[..., None]).mean().log()"),
        ),
        (
            "toma los logits por logaritmos: falta dividir entre la suma",
            ("logits.log_softmax(-1)", "logits"),
        ),
        (
            "pasa dos veces por la softmax: F.cross_entropy ya la hace",
            ("log_softmax(-1)", "softmax(-1).log_softmax(-1)"),
        ),
        (
            "da la entropía de las p, sin mirar los objetivos",
            (UNA_POR_UNA, "-(log_p.exp() * log_p).sum(-1).mean()"),
        ),
        (
            "cambia la forma sin cambiar los ejes: no es reshape(B, V, T), es .mT",
            (
                "logits.log_softmax",
                "logits.reshape(len(logits), logits.shape[2], -1).mT.log_softmax",
            ),
        ),
        *(
            (
                f"hace la softmax en el eje {eje}: va en el último, el de V",
                ("log_softmax(-1)", f"log_softmax({eje})"),
            )
            for eje in (0, 1)
        ),
    ),
    "paso_de_adam": (
        ("devuelve v delante de m", ("return w, m, v", "return w, v, m")),
        (
            "devuelve m dividida entre 1 − β^t: se guarda sin dividir",
            ("return w, m, v", "return w, m / (1 - beta1**t), v / (1 - beta2**t)"),
        ),
        ("no divide las memorias entre 1 − β^t", (MOVER, "w - tasa * m / (v.sqrt() + 1e-8)")),
        ("no divide v entre 1 − beta2^t", ("(v / (1 - beta2**t))", "v")),
        ("no divide m entre 1 − beta1^t", ("(m / (1 - beta1**t))", "m")),
        (
            "divide siempre como en el paso 1: es 1 − β^t",
            ("beta1**t", "beta1"),
            ("beta2**t", "beta2"),
        ),
        ("faltan los paréntesis de (1 − β1) · g", ("(1 - beta1) * g", "1 - beta1 * g")),
        ("suma 1e8, y el número pequeño es 1e-8", ("1e-8", "1e8")),
        (
            "cuenta los pasos desde 0: t llega contado desde 1",
            ("beta1**t", "beta1 ** (t - 1)"),
            ("beta2**t", "beta2 ** (t - 1)"),
        ),
        (
            "divide entre v, sin su raíz",
            ("((v / (1 - beta2**t)).sqrt() + 1e-8)", "(v / (1 - beta2**t) + 1e-8)"),
        ),
        ("suma el paso: se resta", ("w - tasa * (m", "w + tasa * (m")),
        ("baja por el gradiente, sin usar las memorias", (MOVER, "w - tasa * g")),
        ("suma el 1e-8 dentro de la raíz: va fuera", (".sqrt() + 1e-8)", " + 1e-8).sqrt()")),
        ("no suma el 1e-8", (" + 1e-8", "")),
        ("no eleva g al cuadrado en v", ("* g**2", "* g")),
        ("no multiplica g por 1 − β1", ("(1 - beta1) * g", "g")),
        ("no hace caso de encoger", (ENCOGER, "")),
        (
            "suma encoger · w al gradiente: en AdamW va aparte, tasa · encoger · w",
            (ENCOGER, ""),
            ("    m = beta1", "    g = g + encoger * w\n    m = beta1"),
        ),
        ("encoge sin multiplicar por la tasa", ("tasa * encoger * w", "encoger * w")),
        (
            "encoge lo que ya se ha movido: se encoge el w que entra",
            (ENCOGER, ""),
            ("    return w, m, v", f"{ENCOGER}    return w, m, v"),
        ),
    ),
    "entrenar": (
        (NO_OLVIDA, ("optimizador.zero_grad()", "pass")),
        (
            "no mueve los parámetros: van zero_grad, backward y step, en ese orden",
            (DAR_EL_PASO, ""),
        ),
        (
            "olvida las memorias de Adam en cada paso: el optimizador se hace una vez",
            ("    optimizador = Adam(modelo.parameters(), tasa)\n", ""),
            (
                "        comienzos",
                "        optimizador = Adam(modelo.parameters(), tasa)\n        comienzos",
            ),
        ),
        (DOS_SOFTMAX, (ENTRENAR, "modelo(trozos[:, :-1]).softmax(-1), trozos[:, 1:]")),
        (
            "hace adivinar a cada letra ella misma: los objetivos van una letra por delante",
            (ENTRENAR, "modelo(trozos[:, :-1]), trozos[:, :-1]"),
        ),
        (
            "cuenta solo la última letra de cada ventana, deberían contar todas",
            (ENTRENAR, "modelo(trozos[:, :-1])[:, -1:], trozos[:, -1:]"),
        ),
        ("no pone la tasa de cada paso: ni sube ni baja", (PONER_LA_TASA, "")),
        (
            "la tasa no baja hasta cero: falta · (1 − (t − 1) / pasos)",
            (" * (1 - (t - 1) / pasos)", ""),
        ),
        (
            "la tasa no sube en los 50 primeros pasos: falta · min(t / 50, 1)",
            (" * min(t / 50, 1)", ""),
        ),
        (
            "cuenta t desde 0, y es desde 1: el primer paso no mueve nada",
            ("range(1, pasos + 1)", "range(pasos)"),
        ),
        (
            "la tasa baja con t / pasos, debería con (t − 1) / pasos",
            ("(t - 1) / pasos", "t / pasos"),
        ),
        (
            "pone la tasa detrás de step: va delante",
            (PONER_LA_TASA + DAR_EL_PASO, DAR_EL_PASO + PONER_LA_TASA),
        ),
    ),
    "girar": (
        ("no gira nada", ("return girado.flatten(-2)", "return x")),
        (
            "gira al revés: mira el signo de los senos",
            (GIRADO, "a * coseno + b * seno, b * coseno - a * seno"),
        ),
        (
            "hace las parejas con las dos mitades; son los canales 2j y 2j + 1",
            ("x[..., 0::2], x[..., 1::2]", "x.chunk(2, -1)"),
            (f"torch.stack(({GIRADO}), -1)", f"torch.cat(({GIRADO}), -1)"),
            ("girado.flatten(-2)", "girado"),
        ),
        (
            "deja las parejas en dos mitades: cada una vuelve a los canales 2j y 2j + 1",
            (f"torch.stack(({GIRADO}), -1)", f"torch.stack(({GIRADO}), -2)"),
        ),
        (
            "hace el segundo canal con el primero ya girado: guarda los dos a la vez",
            (
                "    girado = torch.stack((a * coseno - b * seno, a",
                "    a = a * coseno - b * seno\n    girado = torch.stack((a, a",
            ),
        ),
        (
            "cuenta las posiciones desde 1: la primera es la 0, y no se mueve",
            ("torch.arange(T,", "torch.arange(1, T + 1,"),
        ),
        ("gira todas las parejas el mismo ángulo", ("10000.0", "1.0")),
        (
            "gira más las últimas parejas: 10000^(2j / D) divide, no multiplica",
            (f"-{EXPONENTE}", EXPONENTE),
        ),
        ("eleva 10000 a j / D, debería a 2j / D", (EXPONENTE, f"{EXPONENTE} / 2")),
        ("eleva 10000 a 4j / D, debería a 2j / D", (EXPONENTE, f"{EXPONENTE} * 2")),
    ),
    "igualar": (
        ("da lo que recibe, sin igualar nada", (IGUALADO, "x")),
        (
            "resta la media, y RMSNorm no la resta",
            (IGUALADO, "F.layer_norm(x, x.shape[-1:], eps=1e-6)"),
        ),
        *(
            (
                "divide entre la desviación típica: RMSNorm no mira la media",
                (IGUALADO, f"x / {una}"),
            )
            for una in ("x.std(-1, keepdim=True)", "x.std(-1, keepdim=True, correction=0)")
        ),
        (
            "deja cada vector con longitud 1; lo que vale 1 es la media de los cuadrados",
            (".mean(-1, keepdim=True)", ".sum(-1, keepdim=True)"),
        ),
        ("divide entre la media de los cuadrados, sin su raíz", (".sqrt()", "")),
        (
            "deja la épsilon fuera de la raíz: va dentro",
            (IGUALADO, "x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-6)"),
        ),
        ("no suma la épsilon, 1e-6", (" + 1e-6", "")),
        *(
            (f"suma una épsilon de {otra}, y es 1e-6", ("1e-6", otra))
            for otra in ("1e-5", "1e-8", "-1e-6")
        ),
        ("multiplica por la raíz, debería dividir", ("x / (", "x * (")),
        (
            "junta todas las posiciones: cada vector va por su cuenta",
            ("mean(-1, keepdim=True)", "mean((-2, -1), keepdim=True)"),
        ),
        (
            "junta todos los vectores: cada uno va por su cuenta",
            ("mean(-1, keepdim=True)", "mean()"),
        ),
        (
            "hace la media en el eje de las posiciones: va en el último",
            ("mean(-1, keepdim=True)", "mean(-2, keepdim=True)"),
        ),
    ),
    "generar": (
        (
            "multiplica los logits por la temperatura: se dividen",
            ("logits / temperatura", "logits * temperatura"),
        ),
        ("no hace caso de la temperatura: divide los logits", ("(logits / temperatura)", "logits")),
        ("elige siempre la más probable: se sortea, con las p", ("temperatura == 0", "True")),
        (
            "saca siempre el mismo número al azar: el Generator se hace una vez",
            ("        logits = ", "        azar.manual_seed(semilla)\n        logits = "),
        ),
    ),
}
"""Por título de la pieza: la frase y, detrás, uno o más cambios en la solución."""


def distintos(uno: Tensor, otro: Tensor) -> Tensor:
    """Decir dónde dos tensores de la misma forma no dan lo mismo, salvo por el redondeo."""
    uno, otro = uno.detach().double(), otro.detach().double()
    tipico = otro[otro.isfinite()].abs().mean().nan_to_num().item()
    cerca = torch.isclose(uno, otro, rtol=1e-4, atol=1e-5 + 1e-4 * tipico, equal_nan=True)
    return ~cerca


def iguales(uno: object, otro: object) -> bool:
    if not isinstance(uno, Tensor) or not isinstance(otro, Tensor) or uno.shape != otro.shape:
        return False
    return not distintos(uno, otro).any()


@cache
def con_el_error(nombre: str, *cambios: Cambio) -> ModuleType:
    """La solución con unos cambios en una de sus piezas."""
    solucion = hoja.SOLUCION.read_text(encoding="utf-8")
    escrito = hoja.leer(solucion, nombre)
    for bien, mal in cambios:
        escrito = escrito.replace(bien, mal)
    return hoja.cargar(hoja.poner(solucion, nombre, escrito))


_se_calla: list[bool] = []


@contextmanager
def sin_nombrar() -> Iterator[None]:
    """Comprobar solo si pasa: quien busca prueba cientos de programas, y no dice nada de ellos."""
    _se_calla.append(True)
    try:
        yield
    finally:
        _se_calla.pop()


def nombrar(nombre: str, dadas: list[Tensor], dar: Callable[[ModuleType], list[Tensor]]) -> str:
    """Dar la frase del error que da lo mismo que lo dado; si no es ninguno, nada.

    `dar` hace con un módulo, que es la solución con un error, lo mismo que dio `dadas`.
    """
    if _se_calla:
        return ""
    for titulo, errores in ERRORES.items():
        if titulo.partition(",")[0] == nombre:
            for frase, *cambios in errores:
                if _da_lo_mismo(con_el_error(nombre, *cambios), dadas, dar):
                    return frase
    return ""


def _da_lo_mismo(errado: ModuleType, dadas: list[Tensor], dar: Callable) -> bool:
    with torch.random.fork_rng(devices=[]):
        try:
            suyas = dar(errado)
        except Exception:  # con eso, el error se detiene
            return False
    return len(suyas) == len(dadas) and all(map(iguales, suyas, dadas))
