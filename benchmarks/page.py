"""Measures how well and how fast the page learns a text in a browser.

    python benchmarks/page.py [--text FILE] [--minutes 1|5|20] [--times 1] [--slower 1] [--new]
    python benchmarks/page.py --firefox [...]
    python benchmarks/page.py --opening [--page FILE] [--times 1]

Without --text, the page learns its sample text. Prints with which model the lesson begins; the
steps; the loss that the page states, which is over up to 4,096 letters of the last tenth; the
seconds from the click on "Aprender"; and the longest time in which the progress line did not change
(until the speed is known, a bar moves instead). --new lets a new model learn. --slower 4 lets the
page's processes run only a quarter of the time (the browser's own throttle does not slow workers
down). --opening prints the seconds until a page is ready instead. Needs selenium, chromium and
chromedriver, or for Firefox marionette_driver and firefox. Run no other program meanwhile.
"""

from common import need  # isort: skip

need("numpy", "torch", "selenium")

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import ROOT, SAMPLE, parser_of
from selenium import webdriver

PAGE = ROOT / "docs" / "index.html"
SLICE = 0.002  # seconds that a slowed process runs at a time
WATCHES = """
const line = document.getElementById('aprendizaje');
window.moved = [];
const note = () => window.moved.push([performance.now(), line.textContent]);
new MutationObserver(note).observe(line, {childList: true});
"""


class Firefox:
    """Firefox by its own protocol, Marionette: what of a Selenium browser is used here."""

    def __init__(self) -> None:
        from marionette_driver.marionette import Marionette

        arguments = ["-headless", "-remote-allow-system-access"]
        prefs = {"intl.accept_languages": "es"}
        log = str(Path(tempfile.mkdtemp()) / "gecko.log")  # what is at this path is replaced
        binary = os.path.realpath(shutil.which("firefox-esr") or shutil.which("firefox") or "")
        self.driver = Marionette(bin=binary, app_args=arguments, prefs=prefs, gecko_log=log)
        self.driver.start_session()
        self.get = self.driver.navigate

    def __enter__(self) -> "Firefox":
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.cleanup()

    def execute_script(self, script: str) -> Any:
        """Run a script in the page; return what it returns."""
        return self.driver.execute_script(script, sandbox=None)

    def execute_async_script(self, script: str) -> Any:
        """Run a script in the page; return what it gives its last argument."""
        return self.driver.execute_async_script(script, sandbox=None)

    def send(self, identity: str, text: str) -> None:
        """Type into an element, or give it a file."""
        self.driver.find_element("id", identity).send_keys(text)


class Chromium(webdriver.Chrome):
    """Chromium by Selenium, without a window, in Spanish."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
            options.add_argument(f"--{argument}")
        options.add_experimental_option("prefs", {"intl.accept_languages": "es"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        super().__init__(options=options, service=service)

    def send(self, identity: str, text: str) -> None:
        """Type into an element, or give it a file."""
        self.find_element("id", identity).send_keys(text)


@contextmanager
def slowed(times: float) -> Iterator[None]:
    """Let the processes of pages run one part in `times`, workers included."""
    found = subprocess.run(["pgrep", "-f", "--", "--type=renderer"], capture_output=True, text=True)
    processes = [int(process) for process in found.stdout.split()] if times > 1 else []
    over = threading.Event()

    def tell(number: int) -> None:
        for process in processes:
            os.kill(process, number)

    def alternate() -> None:
        while not over.is_set():
            tell(signal.SIGSTOP)
            time.sleep(SLICE * (times - 1))
            tell(signal.SIGCONT)
            time.sleep(SLICE)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def opened(browser: Chromium | Firefox, page: Path) -> float:
    """Open a page; return the seconds until it is ready."""
    since = time.perf_counter()
    browser.get(page.as_uri())
    browser.execute_async_script("sancho.ready.then(arguments[arguments.length - 1])")
    return time.perf_counter() - since


def lesson(browser: Chromium | Firefox, args: Any) -> dict:
    """Let a page learn; return what came of it."""
    run = browser.execute_script

    def text_of(identity: str) -> str:
        return run(f"return document.getElementById('{identity}').textContent")

    opened(browser, args.page)
    while run("return sancho.busy"):
        time.sleep(0.1)
    browser.send("archivo", str(args.text.resolve()))
    while "letras" not in text_of("leido"):
        time.sleep(0.05)
    run(f"document.getElementById('tiempo').value = '{args.minutes}'")
    run(f"document.getElementById('desde-cero').checked = {json.dumps(args.new)}")
    run(WATCHES)
    with slowed(args.slower):
        since = time.perf_counter()
        run("document.getElementById('aprender').click()")
        says = ""
        while "Ha aprendido" not in says:
            time.sleep(0.2)
            says = text_of("aprendizaje")
        seconds = time.perf_counter() - since
    moved = run("return window.moved")
    times = [time for time, text in moved if "Faltan" in text]
    longest = max(after - before for before, after in itertools.pairwise(times))
    said = re.search(r"([\d\u202f.]+) pasos .*: (\d[.,]\d\d) nats", says)
    assert said, says
    return {
        "begins": run("return lesson.learned.plan.begins"),
        "steps": int(re.sub(r"\D", "", said[1])),
        "loss": float(said[2].replace(",", ".")),
        "seconds": round(seconds, 1),
        "longest_still": round(longest / 1000, 1),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--text", type=Path, default=SAMPLE, help="in UTF-8 (the sample text)")
    parser.add_argument("--minutes", type=int, choices=(1, 5, 20), default=1)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--new", action="store_true", help="a new model learns")
    parser.add_argument("--slower", type=float, default=1, help="Chromium only")
    parser.add_argument("--firefox", action="store_true")
    parser.add_argument(
        "--opening", action="store_true", help="time the opening of the page instead"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    args.page = args.page.resolve()
    for _ in range(args.times):
        with Firefox() if args.firefox else Chromium() as browser:
            browser.execute_script("return 1")
            if args.opening:
                print(json.dumps({"seconds": round(opened(browser, args.page), 2)}), flush=True)
            else:
                print(json.dumps(lesson(browser, args)), flush=True)


if __name__ == "__main__":
    main()
