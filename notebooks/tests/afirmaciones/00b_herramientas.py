"""Lo que el capítulo 0½ dice de sus valores."""

# --- por_comprension --------------------------------------------------------------------------

assert mayores == ["Sancho", "Teresa"]

# --- parejas ----------------------------------------------------------------------------------

assert por_edad == ["Sanchica", "Teresa", "Sancho"]
assert max(*edades) == max(45, 42, 14) == 45
assert mitad(45) == 22.5

# --- cabras -----------------------------------------------------------------------------------

otra_barca = pasar_cabras()
assert next(otra_barca) == 1 and next(otra_barca) == 2
assert siguientes == [3, 4, 5]
assert titulo.startswith("# ") and pagina.closed

# --- formas -----------------------------------------------------------------------------------

assert resultados["x.T"].shape == resultados["x.view(3, 2)"].shape == (3, 2)

# --- sumas ------------------------------------------------------------------------------------

assert por_columnas.tolist() == [1 + 4, 2 + 5, 3 + 6]
assert por_filas.tolist() == [1 + 2 + 3, 4 + 5 + 6]
assert con_su_eje.shape == (2, 1)

# --- mas_formas -------------------------------------------------------------------------------

assert resultados["flatten(0, 1)"].shape == (6, 4)
assert resultados["transpose(1, 2)"].shape == (2, 4, 3)
assert resultados["transpose(1, 2)"][1, 3, 0] == cubo[1, 0, 3]
assert izquierda.shape == derecha.shape == (2, 3, 2)
assert torch.equal(resultados["cat"], cubo)
assert futuro.tolist() == [[columna > fila for columna in range(3)] for fila in range(3)]

# --- difusion ---------------------------------------------------------------------------------

assert (x + columnas).tolist() == [[11, 22, 33], [14, 25, 36]]
assert (x + filas).tolist() == [[101, 102, 103], [204, 205, 206]]

# --- tabla_de_multiplicar ---------------------------------------------------------------------

a_mano = [[a * b for b in (1, 2, 3, 4)] for a in (1, 2, 3)]
assert tabla.tolist() == a_mano

# --- centrada ---------------------------------------------------------------------------------

assert centrada.tolist() == [[-1, 0, 1], [-1, 0, 1]]

# --- con_y_sin_keepdim ------------------------------------------------------------------------

assert bien.sum(dim=1).abs().max() == 0  # cada fila ha quedado centrada
assert mal.sum(dim=1).abs().max() > 1  # aquí no

# --- lo_que_debe_sancho -----------------------------------------------------------------------

assert debe == 26
assert (torch.tensor(pedido) @ torch.tensor(precio)).item() == 26

# --- flechas ----------------------------------------------------------------------------------

assert (norte @ norte, norte @ este, norte @ sur) == (1, 0, -1)
assert math.sqrt(flecha @ flecha) == flecha.norm() == 5

# --- dos_clientes -----------------------------------------------------------------------------

assert cuenta.tolist() == a_mano == [[26, 24], [12, 15]]

# --- capa_lineal ------------------------------------------------------------------------------

torch.testing.assert_close(venta(pedidos), pedidos @ venta.weight.T + venta.bias)
assert venta(pedidos).tolist() == [[26, 29], [12, 20]]

# --- letra_a_letra ----------------------------------------------------------------------------

assert salida.shape == (4, 8, 2)
torch.testing.assert_close(salida, una_a_una)

# --- bolsas -----------------------------------------------------------------------------------

assert Bolsa(100).gastar(30) == 70
assert de_sancho.escudos == 70 and del_cura.escudos == 7

# --- lineal_a_mano ----------------------------------------------------------------------------

torch.testing.assert_close(lineal(pedidos), venta(pedidos))
assert cuantos == 3 * 2 + 2

# --- pendiente_medida -------------------------------------------------------------------------

assert abs((despues - antes) / paso - 6) < 0.01

# --- segun_las_reglas -------------------------------------------------------------------------

for _, f, x0, segun_la_regla in funciones:
    assert abs(pendiente(f, x0) - segun_la_regla) < 1e-6

# --- cadena -----------------------------------------------------------------------------------

assert dz_dy * dy_dx == 24
assert abs(pendiente(lambda x: (3 * x + 1) ** 2, 1.0) - 24) < 1e-6

# --- autograd ---------------------------------------------------------------------------------

assert x.grad.item() == 24

# --- gradiente --------------------------------------------------------------------------------

assert (error.item(), w.grad.item(), b.grad.item()) == (25, -20, -10)

# --- cinco_pasos ------------------------------------------------------------------------------

assert errores[0] == 25 and errores[-1] < 0.1

# --- exponencial_y_logaritmo ------------------------------------------------------------------

assert math.isclose(math.exp(1 + 2), math.exp(1) * math.exp(2))
assert math.isclose(math.log(2 * 5), math.log(2) + math.log(5))
assert math.exp(-math.inf) == 0
assert torch.tensor(0.0).log() == -math.inf

# --- softmax ----------------------------------------------------------------------------------

torch.testing.assert_close(F.softmax(torch.tensor([1.0, 2.0]), dim=0), torch.tensor(repartido))
assert [round(p, 4) for p in repartido] == [0.2689, 0.7311]

# --- no_cabe ----------------------------------------------------------------------------------

assert probabilidades.prod() == 0
assert math.isclose(probabilidades.log().sum().item(), 200 * math.log(0.1), rel_tol=1e-5)

# --- bits -------------------------------------------------------------------------------------

assert math.isclose(perdida / math.log(2), 2) and math.isclose(math.exp(perdida), 4)
