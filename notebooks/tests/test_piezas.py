"""Las comprobaciones de las piezas: la solución pasa, y de cada pieza se rechazan cuatro errores."""

import ast
from pathlib import Path

import pytest
import torch

import curso
import hoja
import mi_gpt
from comprobar import ideas, lista
from comprobar.lista import PIEZAS, POR_TITULO
from comprobar.piezas import sortear
from respuestas import OTRAS, motivo, programa
from veredicto import de_una_pieza

SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
BLANCA = curso.hoja_en_blanco()
EN_BLANCO = "está en blanco"
TITULOS = list(POR_TITULO)


@pytest.mark.parametrize("titulo", TITULOS)
def test_la_solucion_pasa(titulo):
    assert motivo(titulo, SOLUCION) == ""


@pytest.mark.parametrize("titulo", TITULOS)
def test_en_blanco_esta_en_blanco(titulo):
    assert motivo(titulo, BLANCA) == EN_BLANCO


@pytest.mark.parametrize("titulo", TITULOS)
def test_cada_pieza_pasa_sola_con_las_demas_en_blanco(titulo):
    nombre = POR_TITULO[titulo].nombre
    sola = hoja.poner(BLANCA, nombre, hoja.leer(SOLUCION, nombre))
    assert motivo(titulo, sola) == ""


@pytest.mark.parametrize("titulo", TITULOS)
@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_una_respuesta_poco_corriente_pasa(otra, titulo):
    assert motivo(titulo, programa(otra)) == ""


def test_las_otras_tienen_todas_las_piezas_y_son_distintas():
    piezas = [hoja.trozos(texto) for texto in (SOLUCION, *(o.read_text("utf-8") for o in OTRAS))]
    for nombre in piezas[0]:
        assert len({cada[nombre] for cada in piezas}) == 3, nombre


def en_blanco(fuente: str) -> str:
    """Dar un programa sin lo que hacen sus funciones: quedan sus nombres y lo que dicen de sí."""
    arbol = ast.parse(fuente)
    del arbol.body[0]  # las primeras líneas
    for nodo in ast.walk(arbol):
        if isinstance(nodo, ast.FunctionDef):
            nodo.body = nodo.body[:1] if ast.get_docstring(nodo) else [ast.Pass()]
    return ast.unparse(arbol)


@pytest.mark.generated
def test_la_hoja_y_la_solucion_piden_lo_mismo():
    escrita = Path(mi_gpt.__file__).read_text(encoding="utf-8")
    if all(map(hoja.esta_en_blanco, hoja.trozos(escrita).values())):
        assert escrita == BLANCA, (
            "notebooks/mi_gpt.py is out of date; run: python notebooks/taller/curso.py"
        )
    assert en_blanco(escrita) == en_blanco(SOLUCION)


def test_cada_pieza_tiene_su_sitio_en_la_hoja_y_su_capitulo():
    sitios = [linea for linea in BLANCA.splitlines() if linea.startswith("# --- ") and "(" in linea]
    debidos = {pieza.nombre: [] for pieza in PIEZAS}
    for pieza in PIEZAS:
        debidos[pieza.nombre].append(pieza.capitulo)
    for linea in sitios:
        nombre = linea.split()[2]
        assert all(numero in linea for numero in debidos.pop(nombre)), linea
    assert debidos == {}


LINEAL_SUELTA = "nn.Linear(forma.n_embd, forma.n_embd, bias=forma.bias)"
DEL_NORMAL = "nn.init.normal_(self.position_embedding.weight, std=0.2)"
PONER_LA_TASA = "        optimizador.tasa = tasa * min(t / 50, 1) * (1 - (t - 1) / pasos)\n"
GIRADO = "a * coseno - b * seno, a * seno + b * coseno"
SIN_LETRA = 'raise ValueError(f"{letra!r} no está entre los caracteres que conozco")'
ERRORES = (
    ("Tokenizador", "for letra in texto],", "for letra in sorted(texto)],", "codifica «roma»"),
    ("Tokenizador", SIN_LETRA, "continue", "con una letra nueva da KeyError"),
    ("Tokenizador", SIN_LETRA, 'raise ValueError("?")', "no nombra 'z'"),
    (
        "Tokenizador",
        "enumerate(caracteres)",
        "enumerate(sorted(caracteres))",
        "con los caracteres «zña» codifica «añ» como [0, 2], debería ser [2, 1]",
    ),
    ("Tokenizador", "self.numero", "Tokenizador.numero", "con los caracteres « amor», se detiene"),
    ("Tokenizador", ", dtype=torch.long", "", "de «» codificar da números torch.float32"),
    ("Tokenizador", "ids.tolist()", "ids.numeros()", "pide `numeros` a algo que no lo tiene"),
    (
        "Tokenizador",
        "{letra: i for i, letra in enumerate(caracteres)}",
        "dict(enumerate(caracteres))",
        "no está entre los caracteres que conozco",
    ),
    ("Tokenizador", SIN_LETRA, "return torch.tensor([0])", "de 'maza' da [0], y 'z' no se conoce"),
    (
        "Tokenizador",
        "self.caracteres = caracteres",
        "self.letras = caracteres",
        "self.caracteres es ()",
    ),
    ("Tokenizador", "dtype=torch.long", "dtype=torch.float", "de «roma» codificar da números"),
    (
        "Tokenizador",
        "in ids.tolist())",
        "in ids.tolist()[:-1])",
        "de [4, 3, 2, 1] descodificar da 'rom', debería dar 'roma'",
    ),
    (
        "Tokenizador",
        'return "".join(self.caracteres[i] for i in ids.tolist())',
        'return "".join(self.caracteres[i] for i in ids.tolist()) or None',
        "de [] descodificar da None",
    ),
    (
        "Tokenizador",
        'return "".join(self.caracteres[i] for i in ids.tolist())',
        'letras = dict(enumerate(self.caracteres))\n        return "".join(letras[i] for i in ids)',
        "con un tensor, como lo da codificar, busca tensor(4), que no está",
    ),
    (
        "Tokenizador",
        '        for letra in texto:\n            if letra not in self.numero:\n                raise ValueError(f"{letra!r} no está entre los caracteres que conozco")\n        return torch.tensor([self.numero[letra] for letra in texto], dtype=torch.long)',
        "        return torch.tensor([self.caracteres.find(a) for a in texto], dtype=torch.long)",
        "'z' no se conoce: pide ValueError",
    ),
    ("Entrada", "std=0.2", "std=1", "nace con una desviación típica de 1"),
    ("Entrada", DEL_NORMAL, "pass", "position_embedding.weight nace"),
    ("Entrada", "[: ids.shape[1]]", "", "y ids de forma (3, 4), junta tensores que no encajan"),
    (
        "Entrada",
        'if forma.position == "learned"',
        "if True",
        "tiene de más position_embedding.weight",
    ),
    (
        "Entrada",
        "        self.forma = forma\n",
        "        self._f = forma\n",
        "no guarda la forma en self.forma",
    ),
    ("Entrada", "x = x + self", "x = x + 2 * self", "en [0, 0, 0] da"),
    (
        "Entrada",
        "            x = x + self.position_embedding.weight[: ids.shape[1]]\n        return x",
        "            return x + self.position_embedding.weight[: ids.shape[1]]\n        return 2 * x",
        'position = "rope" y ids de forma (2, 5), en [0, 0, 0] da',
    ),
    ("mirar_atras", ".triu(1)", ".triu(2)", "deja ver una letra de las de después: con q"),
    ("mirar_atras", ".triu(1)", ".triu(0)", "tapa a cada letra también la suya"),
    ("mirar_atras", " / math.sqrt(D)", "", "no divide las puntuaciones entre √D: con q"),
    ("mirar_atras", " / math.sqrt(D)", " / D", "divide las puntuaciones entre D, debería"),
    ("mirar_atras", "softmax(-1)", "softmax(-2)", "hace la softmax por columnas"),
    ("mirar_atras", "k.mT", "k.T", "con q, k y v de forma (2, 3, 6, 4), junta"),
    ("mirar_atras", "pesos @ v, pesos", "pesos, pesos @ v", "devuelve primero los pesos"),
    ("mirar_atras", "return pesos @ v, pesos", "return pesos @ v", "no devuelve dos cosas"),
    (
        "mirar_atras",
        "    puntuaciones = q",
        "    q *= 2\n    puntuaciones = q",
        "cambia q, que recibe",
    ),
    (
        "mirar_atras",
        "return pesos @ v, pesos",
        "return 2 * (pesos @ v), pesos",
        "en lo leído[0, 0] da 1.35 y debería dar 0.67",
    ),
    (
        "mirar_atras",
        "return pesos @ v, pesos",
        "return pesos @ v if v.ndim == 2 else v, pesos",
        "con q, k y v de forma (2, 3, 6, 4), en lo leído[0, 0, 1, 0]",
    ),
    ("mirar_atras", ".softmax(-1)", ".sigmoid()", "en los pesos[0, 0] da"),
    ("mirar_atras", "q @ k.mT", "(q @ k.mT).tanh()", "en los pesos[1, 0] da"),
    (
        "mirar_atras",
        "return pesos @ v, pesos",
        "return pesos.detach() @ v, pesos",
        "en q.grad[1, 0] da",
    ),
    ("Atencion", "leido.transpose(1, 2).reshape", "leido.transpose(1, 2).view", "reshape"),
    (
        "Atencion",
        "H = self.forma.n_head",
        "H = 2",
        "hace siempre 2 cabezas: son forma.n_head; con n_head = 1",
    ),
    (
        "Atencion",
        LINEAL_SUELTA,
        LINEAL_SUELTA.replace("forma.bias", "True"),
        "tiene de más proj.bias",
    ),
    ("Atencion", "        super().__init__()\n", "", "le falta super().__init__()"),
    (
        "Atencion",
        "mirar_atras(q, k, v)",
        "mirar_atras(q, k.flip(2), v)",
        "con n_head = 2 y x de forma (2, 7, 12), en [0, 1, 0] da",
    ),
    ("Atencion", "mirar_atras(q, k, v)", "mirar_atras(2 * q, k, v)", "en [0, 1, 0] da"),
    ("Atencion, con girar", "if self.forma.qk_norm", "elif self.forma.qk_norm", "no iguala las"),
    (
        "FeedForward",
        "4 * forma",
        "2 * forma",
        "tiene expand.weight de forma (24, 12), debería ser (48, 12)",
    ),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "F.dropout(self.activacion(self.expand(x)))",
        "ni dropout",
    ),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "2 * self.activacion(self.expand(x))",
        "y x de forma (7, 12), en [0, 0] da",
    ),
    (
        "FeedForward",
        "return self.proj(self.activacion(self.expand(x)))",
        "with torch.no_grad():\n            return self.proj(self.activacion(self.expand(x)))",
        "no deja derivar",
    ),
    ("FeedForward", "self.expand(x)", "self.expand(x).detach()", "no le llega gradiente"),
    ("LayerNorm", "1e-5", "1.0", "con x de forma (3, 4, 8), en [0, 0, 0] da"),
    ("igualar", "+ 1e-6", "- 1e-5", "da nan y debería dar"),
    (
        "igualar",
        "keepdim=True) + 1e-6).sqrt()",
        "keepdim=True).sqrt() + 1e-5)",
        "en [0, 0, 0, 0, 0] da",
    ),
    ("Entrada", "weight, std=0.2)", "weight, 0.2, 0.2)", "nace con una media de 0."),
    (
        "LayerNorm",
        "(varianza + self.epsilon).sqrt()",
        "(varianza.sqrt() - self.epsilon)",
        "con x de forma (3, 4, 8), en [0, 0, 0] da",
    ),
    (
        "LayerNorm",
        "mean(-1, keepdim=True)",
        "mean(0, keepdim=True)",
        "con x de forma (3, 4, 8), en [0, 0, 0] da",
    ),
    ("LayerNorm", "nn.Parameter(torch.ones(C))", "torch.ones(C)", "weight no es un nn.Parameter"),
    (
        "LayerNorm",
        "x if self.bias is None else ",
        "",
        "con bias = False, epsilon = 0.001 y x de forma (3, 3), hace una cuenta con None",
    ),
    (
        "LayerNorm",
        "torch.ones(C)",
        "torch.zeros(C)",
        "al nacer, en weight[0] da 0.00 y debería dar 1.00",
    ),
    (
        "LayerNorm",
        "torch.zeros(C)",
        "torch.ones(C)",
        "al nacer, en bias[0] da 1.00 y debería dar 0.00",
    ),
    (
        "LayerNorm",
        "desvios = x - x.mean(-1, keepdim=True)",
        "x -= x.mean(-1, keepdim=True)\n        desvios = x",
        "cambia x, que recibe",
    ),
    (
        "LayerNorm",
        "self.weight * desvios",
        "self.weight.square() * desvios",
        "con x de forma (3, 4, 8), en [0, 0, 0] da",
    ),
    ("LayerNorm", ") if bias else None", ")", "tiene de más bias"),
    (
        "LayerNorm",
        "return x if self.bias is None else",
        "return 2 * x if self.bias is None else",
        "epsilon = 0.001 y x de forma (3, 3), en [0, 0] da",
    ),
    ("Bloque", "x = x + self.attention", "x += self.attention", "cambia x, que recibe"),
    (
        "Bloque",
        "self.norm2 = hacer_norma(forma)",
        "self.norm2 = self.norm1",
        "norm2.weight y norm1.weight son el mismo",
    ),
    (
        "Bloque",
        "Atencion(forma)",
        "Atencion(Forma(11, 9, forma.n_embd, n_head=2))",
        "hace siempre 2 cabezas: Atencion recibe la forma entera",
    ),
    ("Bloque", "hacer_norma(forma)", "LayerNorm(forma.n_embd, epsilon=1.0)", "en [0, 0, 0] da"),
    ("Bloque", "hacer_norma(forma)", "LayerNorm(forma.n_embd)", "tiene de más norm1.bias y 1 más"),
    (
        "Bloque",
        "x + self.feed_forward(self.norm2(x))",
        "x + 2 * self.feed_forward(self.norm2(x))",
        "con n_head = 2 y x de forma (3, 5, 12), en [0, 0, 0] da",
    ),
    (
        "Bloque",
        "self.attention = Atencion(forma)",
        "self.attention = Atencion(forma)\n        self.attention.register_forward_hook(lambda _, __, y: 2 * y)",
        "con n_head = 2 y x de forma (3, 5, 12), en [0, 0, 0] da",
    ),
    (
        "Gpt",
        "for _ in range(forma.n_layer)",
        "for _ in range(3)",
        "tiene de más blocks.1.norm1.weight y 11 más",
    ),
    (
        "Gpt",
        "return self.head(self.norm(x))",
        "    return self.head(self.norm(x))",
        "pasa solo por el primer bloque: con n_layer = 3",
    ),
    (
        "Gpt",
        "nn.ModuleList(Bloque(forma) for _ in range(forma.n_layer))",
        "nn.ModuleList([Bloque(forma)] * forma.n_layer)",
        "blocks.1.norm1.weight y blocks.0.norm1.weight son el mismo",
    ),
    (
        "Gpt",
        "bias=False)",
        "bias=False)\n        nn.init.normal_(self.position_embedding.weight)",
        "position_embedding.weight nace con una desviación típica de 0.99",
    ),
    (
        "Gpt",
        "bias=False)",
        "bias=False)\n        self.head.weight = self.token_embedding.weight",
        "head.weight y token_embedding.weight son el mismo",
    ),
    (
        "Gpt",
        "super().__init__(forma)",
        "super().__init__(forma)\n        self.forma = None",
        "no guarda la forma en self.forma",
    ),
    ("Gpt", "self.blocks", "self.bloques", "no tiene blocks"),
    (
        "Gpt",
        "nn.ModuleList(Bloque(forma) for _ in range(forma.n_layer))",
        "[Bloque(forma) for _ in range(forma.n_layer)]",
        "blocks ha de ser una nn.ModuleList",
    ),
    (
        "Gpt",
        "forma.vocab_size, bias=False)",
        "forma.vocab_size, bias=False)\n        nn.init.normal_(self.head.weight)",
        "al nacer pierde",
    ),
    (
        "Gpt",
        "super().__init__(forma)",
        'super().__init__(forma)\n        if forma.position != "learned":\n            self.position_embedding = nn.Embedding(9, 24)',
        "tiene de más position_embedding.weight",
    ),
    (
        "Gpt",
        "Bloque(forma) for",
        "Bloque(Forma(11, 9, 24, n_head=2)) for",
        "tiene blocks.0.norm1.weight de forma (24,), debería ser (12,)",
    ),
    (
        "Gpt",
        "return self.head(self.norm(x))",
        "return 2 * self.head(self.norm(x))",
        "con n_layer = 3 y ids de forma (2, 4), en [0, 0, 0] da",
    ),
    ("entropia_cruzada", ".mean()", ".mean().item()", "da float"),
    (
        "entropia_cruzada",
        "objetivos[..., None]",
        "objetivos.view(-1).view(*objetivos.shape, 1)",
        "objetivos = trozos[:, 1:], view no puede",
    ),
    (
        "entropia_cruzada",
        "    log_p =",
        "    logits -= 1\n    log_p =",
        "cambia logits, que recibe",
    ),
    ("entropia_cruzada", ".mean()", ".median()", "da 6.91 y debería dar 6.46"),
    (
        "entropia_cruzada",
        ".mean()",
        ".sum() / 12",
        "con B = 1, T = 4, V = 5",
    ),
    (
        "entropia_cruzada",
        ".mean()",
        ".mean().detach()",
        "no deja derivar: usa solo operaciones de PyTorch",
    ),
    ("paso_de_adam", "w = w - tasa * encoger * w", "g = g + encoger * w", "no hace caso"),
    ("paso_de_adam", "w = w - tasa * encoger", "w -= tasa * encoger", "cambia w, que recibe"),
    ("paso_de_adam", "return w, m, v", "return w", "no devuelve tres cosas: w, m y v"),
    (
        "paso_de_adam",
        "    return w, m, v",
        "    w = 2 * w\n    return w, m, v",
        "beta2 = 0.7, en w[0, 0] da",
    ),
    ("entrenar", "optimizador.zero_grad()", "pass", "falta zero_grad"),
    (
        "entrenar",
        "valor.backward()",
        "valor.backward()\n        optimizador.zero_grad()",
        "no mueve los parámetros: van zero_grad, backward y step",
    ),
    (
        "entrenar",
        "entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])",
        "F.cross_entropy(modelo(trozos[:, :-1]).softmax(-1).mT, trozos[:, 1:])",
        "pasa dos veces por la softmax",
    ),
    ("entrenar", "len(ids) - ventana", "len(ids) - ventana - 1", "sigue en el mismo lote la que"),
    ("entrenar", "valor.backward()", "pass", "no mueve los parámetros: van"),
    (
        "entrenar",
        "        comienzos",
        "        optimizador = Adam(modelo.parameters(), tasa)\n        comienzos",
        "olvida las memorias de Adam",
    ),
    (
        "entrenar",
        "(lote, 1))",
        "(1, 1)).expand(lote, 1)",
        "no lee ventanas al azar: a la que empieza en 0 sigue en el mismo lote",
    ),
    ("entrenar", "trozos[:, 1:])", "trozos[:, :-1])", "adivinar a cada letra ella misma"),
    ("entrenar", "len(ids) - ventana", "len(ids)", "y un texto de 9 letras, pide el 9 en el eje 0"),
    (
        "entrenar",
        "torch.randint(len(ids) - ventana, (lote, 1))",
        "(8 * t + torch.arange(lote)[:, None]) % (len(ids) - ventana)",
        "no lee ventanas al azar",
    ),
    ("entrenar", ".item()", "", "las pérdidas no son números"),
    (
        "entrenar",
        "Adam(modelo.parameters()",
        "torch.optim.Adam(modelo.parameters()",
        "debería dar",
    ),
    ("entrenar", "valor", "entropia_cruzada", "no llames así a una variable"),
    (
        "entrenar",
        "    return perdidas",
        "    return sum(perdidas)",
        "no devuelve la lista de las pérdidas",
    ),
    (
        "entrenar",
        "    return perdidas",
        "    return perdidas[::2]",
        "lee 6 lotes y devuelve 3 pérdidas, y son 6 pasos",
    ),
    ("entrenar", "range(1, pasos + 1)", "range(1, pasos)", "lee 5 lotes"),
    ("entrenar", "valor.item()", "2 * valor.item()", "en perdidas[0] da"),
    (
        "entrenar",
        "entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])",
        "entropia_cruzada(modelo(trozos[:, :-1])[:, -1:], trozos[:, -1:])",
        "cuenta solo la última letra de cada ventana",
    ),
    (
        "entrenar",
        "entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])",
        "entropia_cruzada(modelo(trozos[:, :-1])[:, 1:], trozos[:, 2:])",
        "y un texto de 9 letras, en perdidas[0] da",
    ),
    (
        "entrenar",
        "modelo(trozos[:, :-1]), trozos[:, 1:]",
        "modelo(trozos[:, :-2]), trozos[:, 1:-1]",
        "da al modelo entradas de forma (4, 2), debería ser (4, 3)",
    ),
    (
        "entrenar",
        "comienzos + torch.arange(ventana + 1)",
        "(comienzos + 2 * torch.arange(ventana + 1)) % len(ids)",
        "toma letras que no van seguidas",
    ),
    (
        "entrenar",
        "        comienzos =",
        "        torch.manual_seed(1)\n        comienzos =",
        "no lee ventanas al azar",
    ),
    (
        "entrenar",
        "        optimizador.step()",
        "        if t % 2:\n            optimizador.step()",
        "en perdidas[2] da",
    ),
    (
        "entrenar",
        "        optimizador.step()",
        "        optimizador.t += 1\n        optimizador.step()",
        "en perdidas[1] da",
    ),
    (
        "entrenar",
        "min(t / 50, 1)",
        "min(t / 40, 1)",
        "tasa = 0.5 y un texto de 9 letras, en perdidas[1] da",
    ),
    ("generar", "len(ids)", "len(comienzo)", "sigue «cdab» con"),
    ("generar", "[None, -modelo.forma.block_size :]", "[None]", "el modelo lee [2, 0, 1, 2, 3, 4]"),
    ("generar", "-modelo.forma.block_size :", "-1:", "el modelo lee [0], debería leer [2, 0]"),
    ("generar", ", generator=azar", "", "con la misma semilla"),
    ("generar", "ids[leidas:]", "ids", "devuelve también el comienzo"),
    (
        "generar",
        "ids[leidas:]",
        "ids[leidas - 1 :]",
        "sigue «ca» con «abcdefabc», debería con «bcdefabc»",
    ),
    ("generar", "temperatura == 0", "False", "con temperatura = 0, block_size = 5, divide entre 0"),
    (
        "generar",
        "    return tokenizador.descodificar(ids[leidas:])",
        "    return ids[leidas:]",
        "da Tensor, debería dar un texto",
    ),
    ("generar", ".manual_seed(semilla)", ".manual_seed(1605)", "con otra semilla escribe lo mismo"),
    (
        "generar",
        "torch.Generator().manual_seed(semilla)",
        "torch.manual_seed(semilla)",
        "mueve el azar de PyTorch",
    ),
    (
        "generar",
        "    for _ in range(cuantas):\n",
        "    for _ in range(cuantas):\n        azar.manual_seed(semilla)\n",
        "saca siempre el mismo número al azar",
    ),
    ("generar", "ids[None, -", "ids[-", "da a leer ids de forma"),
    ("girar", GIRADO, "a * coseno + b * seno, a * seno + b * coseno", "en [0, 0, 1, 0] da"),
    ("girar", "T, D = x.shape[-2:]", "B, H, T, D = x.shape", "con x de forma (9, 6), reparte"),
    ("girar", "    T, D", "    x += 0 * x + 1\n    T, D", "cambia x, que recibe"),
    ("girar", "torch.arange(T,", "0.1 + torch.arange(T,", "en [0, 0, 0, 0] da"),
    ("girar", "10000.0", "1000.0", "en [0, 0, 1, 2] da"),
    (
        "girar",
        "    return girado",
        "    if x.ndim == 2:\n        return x\n    return girado",
        "no gira nada: con x de forma (9, 6)",
    ),
    ("igualar", "x.square()", "(x - x.mean(-1, keepdim=True)).square()", "en [0, 0, 0, 0, 0] da"),
    ("igualar", "    return x /", "    x += 1\n    return x /", "cambia x, que recibe"),
    ("igualar", ").sqrt()", ").sqrt() * 2", "en [0, 0, 0, 0, 0] da"),
    (
        "igualar",
        "    return x / (x.square().mean(-1, keepdim=True)",
        "    return x / (x.square().sum(-1, keepdim=True) / 6",
        "con x de forma (3, 3, 10), en [0, 0, 0] da",
    ),
    ("guardar", 'f"model.{nombre}"', "nombre", 'le falta "model." delante'),
    ("guardar", "json.dumps(contenido)", "str(contenido)", "no está en JSON"),
    ("guardar", "asdict(modelo.forma)", "modelo.forma", "JSON no sabe guardar un objeto Forma"),
    ("guardar", "asdict(modelo.forma)", "str(modelo.forma)", "debería haber un diccionario"),
    ("guardar", "p.detach()", "p.detach().half()", "guarda model.token_embedding.weight en"),
    ("guardar", ', {"content": json.dumps(contenido)}', "", 'en su metadata falta "content"'),
    (
        "guardar",
        "json.dumps(contenido)",
        'json.dumps("hola")',
        'en "content" no hay un diccionario',
    ),
    (
        "guardar",
        "tokenizador.caracteres,",
        "list(tokenizador.caracteres),",
        'en "characters" debería haber un texto',
    ),
    (
        "guardar",
        "tokenizador.caracteres,",
        "tokenizador.caracteres[::-1],",
        'en "characters" hay otras letras',
    ),
    (
        "guardar",
        "save_file(tensores, ruta,",
        'save_file(tensores, f"{ruta}2",',
        "no escribe el archivo en la ruta dada",
    ),
    (
        "guardar",
        'f"model.{nombre}": p.detach()',
        'f"modelo.{nombre}": p.detach()',
        "no guarda model.token_embedding.weight",
    ),
    ("guardar", "p.detach()", "p.detach() + 1", "en model.token_embedding.weight[0, 0] da 1.01"),
    ("guardar", "asdict(modelo.forma)}", '{"n_embd": 24}}', 'en "model" falta'),
    (
        "guardar",
        "asdict(modelo.forma)}",
        'asdict(modelo.forma) | {"n_embd": 9}}',
        'en "model", n_embd es 9, debería ser 12',
    ),
    ("abrir_caja", ".eval()", "", "modo de entrenamiento"),
    (
        "abrir_caja",
        ' or suya.get("embedding_skip")',
        "",
        "abre un archivo con {'ngram_size': 1, 'embedding_skip': True}",
    ),
    ("abrir_caja", 'suya.get("ngram_size", 1)', 'suya["ngram_size"]', "con un archivo de guardar"),
    ("abrir_caja", 'f"model.{nombre}"', "nombre", "pide al archivo el tensor"),
    (
        "abrir_caja",
        "{campo: suya[campo] for campo in Forma.__annotations__}",
        "suya",
        "da a Forma un `dropout`",
    ),
    ("abrir_caja", "torch.no_grad()", "torch.enable_grad()", "fuera de torch.no_grad(): va dentro"),
    ("abrir_caja", "ValueError", "RuntimeError", "pide ValueError"),
    (
        "abrir_caja",
        'suya.get("ngram_size", 1) > 1',
        'suya.get("ngram_size", 1) > 0',
        "'ngram_size': 1, 'embedding_skip': False}, se detiene con ValueError",
    ),
    (
        "abrir_caja",
        'return modelo.eval(), Tokenizador(contenido["characters"])',
        "return modelo.eval()",
        "no devuelve dos cosas: el modelo",
    ),
    (
        "abrir_caja",
        'return modelo.eval(), Tokenizador(contenido["characters"])',
        'return Tokenizador(contenido["characters"]), modelo.eval()',
        "devuelve primero el tokenizador",
    ),
    (
        "abrir_caja",
        "return modelo.eval(),",
        "return dict(modelo.named_parameters()),",
        "devuelve dict, y no el modelo",
    ),
    (
        "abrir_caja",
        'Tokenizador(contenido["characters"])',
        'contenido["characters"]',
        "devuelve str, y no el tokenizador",
    ),
    (
        "abrir_caja",
        'Tokenizador(contenido["characters"])',
        'Tokenizador("abc")',
        "el tokenizador tiene otras letras: 'abc'",
    ),
    (
        "abrir_caja",
        "modelo = Gpt(forma)",
        'modelo = Gpt(Forma(**(vars(forma) | {"n_layer": 1})))',
        "el modelo tiene n_layer = 1, debería ser 2",
    ),
    ("abrir_caja", "return modelo.eval()", "return modelo.bfloat16().eval()", "pide .float()"),
    ("abrir_caja", ".float())", ".float() + 1)", "en token_embedding.weight[0, 0] da 1.01"),
    (
        "abrir_gpt2",
        "suyos[nombre].T if es_matriz else suyos[nombre]",
        "suyos[nombre]",
        'y "wte.weight", junta tensores que no encajan',
    ),
    ("abrir_gpt2", "bloques, n_head", "bloques, 12", "el modelo tiene n_head = 12, debería ser 4"),
    ("abrir_gpt2", '.removeprefix("transformer.")', "", 'y "transformer.wte.weight", busca'),
    (
        "abrir_gpt2",
        "suyos[nombre].T if",
        "suyos[nombre].view(p.shape) if",
        "en blocks.0.attention.qkv.weight[0, 1] da",
    ),
    (
        "abrir_gpt2",
        "            for mia, suya",
        '            if nombre.startswith("head"):\n                continue\n            for mia, suya',
        "en head.weight[0, 0] da",
    ),
    (
        "abrir_gpt2",
        "    suyos = {",
        "    for p in parametros.values():\n        p += 1\n    suyos = {",
        "cambia wte.weight, que recibe",
    ),
    (
        "abrir_gpt2",
        "    return modelo.eval()",
        "    return dict(modelo.named_parameters())",
        "devuelve dict, y no el modelo",
    ),
    (
        "abrir_gpt2",
        "    return modelo.eval()",
        "    modelo.forma = Forma(V, 10, C, bloques, n_head)\n    return modelo.eval()",
        "el modelo tiene block_size = 10, debería ser 12",
    ),
    (
        "abrir_gpt2",
        "    return modelo.eval()",
        "    modelo.head.weight = modelo.token_embedding.weight\n    return modelo.eval()",
        "head.weight y token_embedding.weight son el mismo",
    ),
)


DE_LA_TABLA = [
    (titulo, frase, cambios) for titulo, filas in ideas.ERRORES.items() for frase, *cambios in filas
]


def test_hay_cuatro_errores_de_cada_pieza():
    todos = [error[0] for error in (*ERRORES, *DE_LA_TABLA)]
    veces = {titulo: todos.count(titulo) for titulo in TITULOS}
    assert min(veces.values()) >= 4, veces


def fallo_de(titulo: str, cambios: list[ideas.Cambio]) -> str:
    """Dar lo que se dice de la solución con unos cambios en una pieza."""
    nombre = POR_TITULO[titulo].nombre
    escrita = hoja.leer(SOLUCION, nombre)
    for bien, mal in cambios:
        assert bien in escrita
        escrita = escrita.replace(bien, mal)
    return motivo(titulo, hoja.poner(SOLUCION, nombre, escrita))


@pytest.mark.parametrize(("titulo", "bien", "mal", "frase"), ERRORES)
def test_un_error_se_nombra(titulo, bien, mal, frase):
    fallo = fallo_de(titulo, [(bien, mal)])
    assert fallo and frase in fallo, fallo
    assert "\n" not in fallo


@pytest.mark.parametrize(("titulo", "frase", "cambios"), DE_LA_TABLA)
def test_cada_error_de_la_tabla_se_nombra_a_si_mismo(titulo, frase, cambios):
    assert fallo_de(titulo, cambios).startswith(frase)


DE_LETRA_A_NUMERO = hoja.leer(SOLUCION, "Tokenizador")


def test_las_letras_se_pueden_guardar_en_una_lista():
    en_lista = DE_LETRA_A_NUMERO.replace("= caracteres\n", "= list(caracteres)\n")
    assert en_lista != DE_LETRA_A_NUMERO
    texto = hoja.poner(SOLUCION, "Tokenizador", en_lista)
    assert [motivo(titulo, texto) for titulo in TITULOS] == [""] * len(TITULOS)


def test_la_tabla_de_posiciones_puede_ser_none():
    escrita = hoja.leer(SOLUCION, "Entrada")
    con_none = escrita.replace(
        "        if forma.position",
        "        self.position_embedding = None\n        if forma.position",
        1,
    )
    texto = hoja.poner(SOLUCION, "Entrada", con_none)
    assert con_none != escrita and motivo("Entrada", texto) == motivo("Gpt", texto) == ""


def test_lo_que_rompe_el_gradiente_se_dice_en_su_pieza():
    pesos = [("    return pesos", "    pesos[..., futuro] = 0\n    return pesos")]
    assert "cambia en su sitio" in fallo_de("mirar_atras", pesos)


def test_lo_que_no_acaba_se_detiene_y_dice_donde(monkeypatch):
    monkeypatch.setattr(lista, "LIMITE", 0.5)
    sin_fin = "def igualar(x):\n    while True:\n        x = x + 1\n    return x\n"
    mensaje = de_una_pieza("igualar", hoja.poner(SOLUCION, "igualar", sin_fin)).mensaje()
    assert mensaje.que.startswith("no ha acabado en un minuto") and mensaje.linea in (2, 3)


def test_python_no_avisa_en_ingles(recwarn):
    con_is = [("temperatura == 0", "temperatura is 0")]
    assert "con temperatura = 0.0, block_size = 4, divide entre 0" in fallo_de("generar", con_is)
    assert not [aviso for aviso in recwarn if aviso.category is SyntaxWarning]


def test_el_adam_de_la_comprobacion_es_el_de_pytorch():
    mio = hoja.cargar(SOLUCION)
    parametro = torch.nn.Parameter(torch.tensor([[1.0, -3.0], [0.5, 2.0]]))
    oficial = torch.optim.AdamW([parametro], lr=0.2, betas=(0.8, 0.9), weight_decay=0.3)
    w, (m, v) = parametro.detach().clone(), torch.zeros(2, 2, 2)
    for t in range(1, 6):
        w, m, v = mio.paso_de_adam(w, w**2 - 1, m, v, t, 0.2, 0.8, 0.9, 0.3)
        parametro.grad = parametro.detach() ** 2 - 1
        oficial.step()
        torch.testing.assert_close(w, parametro.detach())


def test_lo_que_no_esta_en_su_sitio_no_pasa():
    escrita = hoja.leer(SOLUCION, "igualar")
    texto = hoja.poner(SOLUCION, "igualar", f"# --- dado: lo mío ---\n{escrita}")
    assert "no está debajo de su línea" in motivo("igualar", texto)


def test_una_pieza_que_llama_a_exit_no_acaba_con_todo():
    texto = hoja.poner(SOLUCION, "igualar", "def igualar(x):\n    exit()\n    return x\n")
    assert "exit()" in motivo("igualar", texto)


def test_lo_que_una_pieza_cambia_en_pytorch_no_alcanza_a_las_demas():
    escrita = hoja.leer(SOLUCION, "entrenar").replace(
        "    perdidas", "    torch.set_grad_enabled(False)\n    perdidas", 1
    )
    assert "el gradiente no llega" in motivo("entrenar", hoja.poner(SOLUCION, "entrenar", escrita))
    assert torch.is_grad_enabled()


def test_abre_un_gpt2_de_otros():
    transformers = pytest.importorskip("transformers", reason='here: pip install ".[convert]"')
    suya = transformers.GPT2Config(vocab_size=95, n_positions=64, n_layer=3, n_head=4, n_embd=48)
    suyo = sortear(transformers.GPT2LMHeadModel(suya).eval())
    parametros = {n: p for n, p in suyo.state_dict().items() if n != "lm_head.weight"}
    ids = torch.randint(95, (2, 64))
    mio = hoja.cargar(SOLUCION)
    with torch.inference_mode():
        logits = mio.abrir_gpt2(parametros, n_head=4)(ids)
        torch.testing.assert_close(logits, suyo(ids).logits, rtol=1e-4, atol=1e-4)
