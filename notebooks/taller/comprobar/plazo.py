"""Lo que se espera a lo escrito: si no acaba a tiempo, se detiene."""

import _thread
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class NoAcaba(Exception):
    """Lo escrito no ha acabado a tiempo."""


LIMITE = 60
"""Los segundos que se esperan: lo escrito tarda dos o tres."""


@contextmanager
def no_mas_de(segundos: float) -> Iterator[None]:
    """Detener lo de dentro si no acaba, como lo detendría Ctrl-C."""
    vencido = threading.Event()

    def parar() -> None:
        vencido.set()
        _thread.interrupt_main()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reloj = threading.Timer(segundos, parar)
    reloj.daemon = True
    antes = signal.signal(signal.SIGINT, signal.default_int_handler)
    empieza = time.monotonic()
    reloj.start()
    try:
        try:
            yield
        finally:
            reloj.cancel()
            if time.monotonic() - empieza > 0.8 * segundos:
                reloj.join()  # si ya sonaba, se oye aquí y no después
    except KeyboardInterrupt as error:
        if not vencido.is_set():
            raise
        raise NoAcaba from error
    finally:
        signal.signal(signal.SIGINT, antes)
