"""Lo que dicen Python y PyTorch, en inglés, cuando lo escrito se detiene, dicho en español."""

import re

from decir.mensaje import Donde, Mensaje


def detenido(error: BaseException, donde: Donde) -> Mensaje:
    """Dar qué ha detenido una comprobación, y en qué línea de lo escrito.

    Lo que dice una comprobación, que es un AssertionError, ya está en español.
    """
    if isinstance(error, AssertionError):
        return Mensaje(_de_la_comprobacion(error))
    if isinstance(error, SystemExit):
        return Mensaje("acaba el programa con exit(): una pieza devuelve lo que da")
    linea = donde.de_un_error(error)
    if isinstance(error, SyntaxError):
        que = f"no se puede leer: {_que_pasa(error, '', error.msg)}"
        return Mensaje(que, linea, es_de_python=True)
    lineas = donde.escrito.splitlines()
    de_ahi = lineas[linea - 1] if 1 <= linea <= len(lineas) else ""
    return Mensaje(f"{getattr(error, 'caso', '')}{_que_pasa(error, de_ahi)}", linea)


def _de_la_comprobacion(error: AssertionError) -> str:
    """La frase; las de torch.testing y numpy.testing no lo son."""
    primera = str(error).strip().partition("\n")[0]
    return primera if primera and not primera.endswith("!") else "no da lo que debe"


def _que_pasa(error: BaseException, linea: str, dicho: str = "") -> str:
    dicho = dicho or (str(error).splitlines() or [""])[0]
    for patron, frase in FRASES:
        hallado = re.search(patron, f"{type(error).__name__}: {dicho}")
        if hallado:
            dicha = hallado.expand(frase).replace(", and ", ", ").replace(" and ", " y ")
            return dicha + _pista(dicho, linea)
    if isinstance(error, SyntaxError):
        return dicho
    return f"se detiene con {type(error).__name__}: {dicho}"


def _pista(dicho: str, linea: str) -> str:
    """Lo que se ve en la línea en que algo se ha detenido."""
    for de_que, en_la_linea, frase in PISTAS:
        hallado = re.search(en_la_linea, linea)
        if hallado and re.search(de_que, dicho):
            return f" ({hallado.expand(frase)})"
    return ""


PISTAS = (
    (
        "converted|real number|one element",
        r"math\.(\w+)\(",
        r"math es de números; torch.\1, de tensores",
    ),
    (
        "too many values",
        r"^\s*\w+(, \w+)+ = [\w.]+\.shape\b(?!\[)",
        r"puede haber más ejes delante: .shape[-2:] da los dos últimos",
    ),
    (
        "unpack",
        r"\bfor \(?\w+, \w+\)? in ([A-Za-z_]\w*)\s*[:\])}]",
        r"\1 da una sola cosa en cada vuelta: ¿\1.items(), o enumerate(\1)?",
    ),
    (
        "size of tensor|multiplied|dimensions",
        r"(?<!weight)\.T\b",
        r".T da la vuelta a todos los ejes; .mT, a los dos últimos",
    ),
)
"""En qué errores se mira, qué se busca en la línea, y qué se dice."""


FRASES = (
    (r"U\+00A0", r"hay un espacio que no es el corriente (U+00A0, de algo copiado): bórralo"),
    (
        r"invalid (?:non-printable )?character '?(\S*?)'? ?\(?(U\+\w+)",
        r"el carácter \1 (\2) no es de Python",
    ),
    (r"'return' outside function", r"hay un return fuera de una función: mira su sangría"),
    (r"Maybe you meant '=='", r"= guarda; para comparar es =="),
    (r"Perhaps you forgot a comma", r"¿falta una coma, o un signo como *?"),
    (r"was never closed|unmatched|does not match opening", r"los paréntesis no cuadran"),
    (r"unterminated", r"faltan unas comillas"),
    (r"SyntaxError: expected ':'", r"faltan dos puntos"),
    (
        r"expected an indented block after",
        r"la sangría no cuadra: esta línea lleva más que la de encima",
    ),
    (
        r"invalid decimal literal|invalid imaginary literal",
        r"un número y una letra van juntos: ¿falta un *, o unos paréntesis?",
    ),
    (r"IndentationError|TabError", r"la sangría no cuadra"),
    (
        r"expected 'else' after 'if' expression",
        r"a un if de una línea le falta el else, o lleva = donde va ==",
    ),
    (r"SyntaxError: invalid syntax", r"eso no es Python"),
    (
        r"UnboundLocalError:.*'(\w+)'",
        r"usa `\1` antes de darle valor: si es el nombre de una función, no llames así a una variable",
    ),
    (r"NameError:.*'(\w+)'", r"usa `\1`, que no está definido"),
    (
        r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\).*dimension (\d+)",
        r"junta tensores que no encajan: \1 y \2 en el eje \3",
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied \((.*) and (.*)\)",
        r"no se pueden multiplicar matrices de \1 y \2",
    ),
    (
        r"shape '(\[.*\])' is invalid for input of size (\d+)",
        r"quiere la forma \1 para un tensor de \2 números",
    ),
    (
        r"cannot be multiplied|Expected size for first two dimensions|mismatch in its core",
        r"esas matrices no se pueden multiplicar",
    ),
    (r"index out of range in self", r"pide a una tabla (nn.Embedding) una fila que no tiene"),
    (
        r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)",
        r"pide el \1 en el eje \2, que tiene \3 y se cuenta desde 0",
    ),
    (r"Dimension out of range.*got (-?\d+)", r"pide el eje \1, que no hay"),
    (r"too many indices for tensor of dimension (\d+)", r"pide más ejes de los que hay, \1"),
    (
        r"not enough values to unpack \(expected (\d+), got (\d+)",
        r"reparte \2 cosas en \1 nombres",
    ),
    (
        r"too many values to unpack \(expected (\d+)|not enough values to unpack \(expected (\d+)",
        r"reparte en \1\2 nombres otro número de cosas",
    ),
    (
        r"'(?:builtin_function_or_method|method|function)'(?: object (?:is not (?!callable)|has no)|$| and)",
        r"usa una función sin llamarla: faltan sus paréntesis",
    ),
    (
        r"cannot unpack non-iterable (?:builtin_function_or_method|method|function)",
        r"usa una función sin llamarla: faltan sus paréntesis",
    ),
    (r"'int' object is not iterable", r"recorre un número: ¿falta range(…)?"),
    (
        r"unsupported operand type\(s\) for \^|bitwise_xor",
        r"^ no es una potencia: en Python es **",
    ),
    (
        r"Index tensor must have the same number of dimensions",
        r"los índices de gather llevan tantos ejes como la tabla: ¿falta [..., None]?",
    ),
    (r"'torch.Size' object is not callable", r"shape va con corchetes: x.shape[1]"),
    (
        r"'(?:int|float)' object has no attribute '(backward|item|mean|sum)'",
        r"llama a \1 de un número, y es cosa de los tensores: .item() va al final",
    ),
    (
        r"'tuple' object has no attribute '(\w+)'",
        r"pide \1 a varias cosas juntas: sepáralas antes, a, b = …",
    ),
    (
        r"'(Linear|Embedding|LayerNorm|Atencion|FeedForward|Bloque)' object "
        r"(?:has no attribute '(?:view|shape|transpose|reshape|self)'|is not subscriptable)",
        r"\1 es una capa: para usarla se llama, con paréntesis y lo que lee dentro",
    ),
    (
        r"(\w+)\(\) received an invalid combination of arguments - got (\(.*?\))",
        r"da a \1 lo que no espera: \2",
    ),
    (
        r"'list' object has no attribute '(?:shape|dim|size|view|float|reshape|mean|sum)'",
        r"es una lista, y no un tensor: torch.stack la junta, o torch.tensor",
    ),
    (
        r"'(Linear|Embedding)' object has no attribute '(?:normal_|uniform_|dim|size)'",
        r"\1 es una capa; sus números son .weight",
    ),
    (
        r"[Oo]nly Tensors of floating point",
        r"solo se aprenden números con decimales, y se le dan enteros: .float()",
    ),
    (
        r"descriptor '(\w+)' for '[\w.]*?\.?(\w+)' objects doesn't apply",
        r"llama a \1 de la clase: faltan los paréntesis de uno hecho con ella",
    ),
    (
        r"torch\.return_types\.(\w+)",
        r"con un eje, \1 da dos cosas, los valores y sus lugares: .values",
    ),
    (
        r"unsupported operand.*'(?:Falsa|Linear|Embedding|LayerNorm|RMSNorm|Atencion|FeedForward|Bloque)'",
        r"hace una cuenta con una capa, y no con lo que da: se llama, con lo que lee entre paréntesis",
    ),
    (
        r"(\w+)\(\): argument '\w+' .*must be Tensor, not ([A-Z]\w+)(?<!NoneType)",
        r"da a \1 una capa, \2, y quiere un tensor: se hace, \2(), y después se llama",
    ),
    (
        r"(\w+)\(\): argument '\w+' .*must be Tensor, not (range|list|tuple|int|float|generator|str)",
        r"\1 quiere un tensor, y se le da algo de tipo \2",
    ),
    (
        r"(\w+)\(\): argument '\w+' .*must be tuple of ints, not int",
        r"\1 quiere la forma entre paréntesis, con su coma: (n,)",
    ),
    (
        r"only supports boolean masks",
        r"la máscara de masked_fill es de verdadero y falso: dtype=torch.bool, o .bool()",
    ),
    (
        r"could not be broadcast together with shapes (\(.*?\)) (\(.*?\))",
        r"junta arrays que no encajan: \1 y \2",
    ),
    (
        r"truth value of an array",
        r"pregunta si un array de varios números es verdad: ¿falta .mean(), .all() o .any()?",
    ),
    (r"must be real number, not (\w+)", r"math quiere un solo número, y se le da algo de tipo \1"),
    (
        r"list indices must be integers or slices, not (\w+)",
        r"busca en una lista con algo de tipo \1, y se busca con un entero: ¿range(len(…))?",
    ),
    (r"missing .*'self'", r"usa una clase donde va uno hecho con ella: faltan sus paréntesis"),
    (r"dump\(\) missing .*'fp'", r"json.dump escribe en un archivo; el texto lo da json.dumps"),
    (
        r"argument 'tensors' .*not Tensor",
        r"torch.cat y torch.stack reciben una lista: torch.cat([a, b])",
    ),
    (
        r"module '([\w.]+)' has no attribute '(\w+)'",
        r"\1 no tiene `\2`: ¿se escribe así, con esas mayúsculas?",
    ),
    (
        r"'type' object is not (?:iterable|subscriptable)|type object '(\w+)' has no attribute",
        r"usa una clase donde va uno hecho con ella: faltan sus paréntesis",
    ),
    (
        r"(\w+) is not a Module subclass",
        r"pone en una nn.ModuleList algo que no es un módulo: ¿la clase, sin sus paréntesis?",
    ),
    (
        r"Module \[ModuleList\] is missing",
        r"llama a una nn.ModuleList, que es una lista: recórrela con for y llama a cada uno",
    ),
    (
        r"Module \[(\w+)\] is missing",
        r"\1 no tiene forward: ¿se llama así, y está dentro de la clase?",
    ),
    (
        r"Boolean value of Tensor",
        r"pregunta si un tensor de varios números es verdad (if, and, or, not): para saber si lo "
        r"hay, `is not None`; para mirar sus números, .all() o .any()",
    ),
    (
        r"'Tensor' object has no attribute '(n_embd|n_head|n_layer|bias|block_size|vocab_size|position|norm|activation|qk_norm)'",
        r"da un tensor a una clase que espera la forma: se hace uno en __init__, y en forward se usa "
        r"ese, con self.",
    ),
    (
        r"'Tensor' object has no attribute '(append|extend)'",
        r"un tensor no tiene \1: torch.cat une dos",
    ),
    (
        r"got 'type'|not type$|must be .* not type\b",
        r"da una clase donde va uno hecho con ella: faltan sus paréntesis",
    ),
    (
        r"type must be tuple of ints,but got float|'float'.* as an integer|not be float",
        r"da un número con decimales donde va un entero: / lleva decimales, // no",
    ),
    (
        r"'(\w+)' object cannot be interpreted as an integer",
        r"da algo de tipo \1 donde va un entero: ¿falta len(…), o sobra range?",
    ),
    (
        r"TypeError: (\w+)\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given",
        r"da a \1 \3 cosas, y recibe \2",
    ),
    (
        r"(\w+)\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given",
        r"llama a \1 con \3 cosas, contando self, y espera \2",
    ),
    (r"(\w+)\(\) takes no arguments", r"\1 no recibe nada: ¿su método se llama `__init__`?"),
    (
        r"(?:list|tuple|string) index out of range",
        r"pide un lugar que no hay: se cuentan desde 0",
    ),
    (
        r"probability tensor contains",
        r"sortea con p que no lo son: ¿divide entre 0, o falta la softmax?",
    ),
    (
        r"stack expects each tensor to be equal size",
        r"torch.stack une tensores de la misma forma, y uno es más corto: ¿se sale del final?",
    ),
    (r"division by zero", r"divide entre 0"),
    (r"unsupported operand.*'NoneType'", r"hace una cuenta con None"),
    (r"'NoneType' object", r"usa algo que es None: ¿falta un return?"),
    (
        r"AttributeError: '(\w+)' object has no attribute '(\w+)'",
        r"pide `\2` a algo que no lo tiene (\1)",
    ),
    (r"before Module.__init__\(\) call", r"le falta super().__init__() al principio de __init__"),
    (r"(\w+)\.__init__\(\) missing .*: (.*)", r"al hacer \1 le falta \2"),
    (r"(\w+)\(\) missing .*: (.*)", r"al llamar a \1 le falta \2"),
    (
        r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'",
        r"da a \1 un `\2`, que no conoce: toma solo lo suyo",
    ),
    (
        r"(\w+)\(\) got an unexpected keyword argument '(\w+)'",
        r"da a \1 un `\2`, que no conoce: ¿se escribe así?",
    ),
    (
        r"'(dict|list|tuple)' object is not callable",
        r"llama a algo de tipo \1 como a una función: se busca con corchetes",
    ),
    (
        r"'(Tensor|int|float)' object is not callable",
        r"llama a algo de tipo \1 como a una función: ¿falta un *, o hay dos cosas con ese nombre?",
    ),
    (r"'(\w+)' object is not callable", r"llama como a una función a algo que no lo es (\1)"),
    (
        r"'(\w+)' object is not (?:iterable|subscriptable)",
        r"toma por una lista algo que no lo es (\1)",
    ),
    (r"KeyError: (.*)", r"busca \1, que no está"),
    (
        r"view size is not compatible",
        r"view no puede: los números no están seguidos en la memoria; ¿falta antes un transpose? Si no, reshape",
    ),
    (
        r"does not require grad and does not have a grad_fn",
        r"el gradiente no llega de la pérdida a los parámetros: ¿hay un .item(), .detach() o no_grad?",
    ),
    (
        r"leaf Variable that requires grad",
        r"cambia un parámetro en su sitio fuera de torch.no_grad(): va dentro",
    ),
    (
        r"modified by an inplace operation",
        r"cambia en su sitio (+=) algo que el gradiente necesita",
    ),
    (r"Can't call numpy\(\) on Tensor", r"usa NumPy, y el gradiente no lo atraviesa"),
    (
        r"Expected target size|Expected input batch_size",
        r"F.cross_entropy quiere los logits como (B, V, T), con .mT, o como (B · T, V)",
    ),
    (
        r"only one element tensors|only integer tensors of a single",
        r"toma por un número un tensor que tiene varios",
    ),
    (r"same number of dimensions: got (\d+) and (\d+)", r"torch.cat une tensores de \1 y \2 ejes"),
    (
        r"expected Tensor as element|argument 'tensors'",
        r"une con torch.cat o torch.stack algo que no son tensores",
    ),
    (
        r"Object of type (\w+) is not JSON serializable",
        r"JSON no sabe guardar un objeto \1: hazlo texto o diccionario",
    ),
    (r"does not contain tensor (\S+)", r"pide al archivo el tensor \1, que no tiene"),
    (
        r"SafetensorError: File is closed",
        r"lee del archivo cuando ya está cerrado: va dentro del with",
    ),
    (r"string indices must be integers", r"busca por un nombre en un texto: falta json.loads"),
    (
        r"could not infer output dtype|not implemented for 'Long'|must have the same dtype",
        r"mezcla enteros y números con decimales, en una cuenta que no los mezcla",
    ),
    (
        r"unsupported operand type\(s\) for (\S+): '(\w+)' and '(\w+)'",
        r"hace la cuenta \1 con cosas que no la admiten (\2 y \3)",
    ),
    (r"NoAcaba", r"no ha acabado en un minuto: ¿hay un while que no termina nunca?"),
    (r"RecursionError", r"se llama a sí misma sin fin"),
)
"""Lo que dicen Python y PyTorch cuando algo se detiene, y cómo se cuenta."""
