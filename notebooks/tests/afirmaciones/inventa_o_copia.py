"""Lo que la rama de lo copiado dice de sus valores."""

# --- palabras ---------------------------------------------------------------------------------

if corpus.name == "quijote":
    assert palabras["diez segundos, τ = 0.8"] + 0.05 < palabras["sancho, τ = 0.8"]
    assert palabras["sancho, τ = 0.8"] > 0.9 and 0.94 < palabras["Cervantes, no leído"] < 0.98

# --- a_mano -----------------------------------------------------------------------------------

for pagina, de_dos, de_tres, de_cuatro in (("abcdef", 1, 1, 0), ("abcdez", 5 / 6, 0.5, 0)):
    dadas = [copied(pagina, "xabcx ... def", n).mean() for n in (2, 3, 4)]
    assert dadas == [de_dos, de_tres, de_cuatro]

# --- copiado ----------------------------------------------------------------------------------

a_las_32 = {nombre: valores[largos.index(32)] for nombre, valores in fracciones.items()}
assert a_las_32["leído (entrenamiento)"] == 1  # el control que tiene que dar 100 %
if corpus.name == "quijote":
    media = {nombre: f.mean() for nombre, f in a_las_16.items()}
    cervantes = a_las_16["Cervantes, no leído"]
    assert media["copista de 12 letras"] > 0.95 and a_las_32["copista de 12 letras"] > 0.6
    assert media["otro autor"] + 0.1 < cervantes.mean()
    assert abs(media["sancho, τ = 0.8"] - cervantes.mean()) < 2 * cervantes.std()
    assert media["sancho, τ = 0.3"] > cervantes.mean() + 2 * cervantes.std()
    assert a_las_32["sancho, τ = 0.8"] < 0.15 and a_las_32["Cervantes, no leído"] < 0.1
    assert a_las_32["sancho, τ = 0.3"] < 0.5
    assert cervantes.std() > 0.05  # una página sola no dice casi nada
    assert a_las_32["diez segundos, τ = 0.8"] < a_las_32["Cervantes, no leído"]

# --- lo_mas_largo -----------------------------------------------------------------------------

if corpus.name == "quijote":
    cervantes = longest_copy("\f".join(autores["Cervantes, no leído"]), libro, 16)
    suyas = longest_copy("\f".join(autores["diez segundos, τ = 0.8"]), libro, 16)
    assert len(suyas) < len(cervantes)

# --- con_el_comienzo --------------------------------------------------------------------------

if corpus.name == "quijote":
    assert (de_lo_leido == 50).sum() <= 1
    assert abs(de_lo_leido.mean() - de_lo_nuevo.mean()) < 2
