"""How well and how fast the page learns a text: from the click to the loss, in Chromium.

    python benchmarks/page.py [--text FILE] [--minutes 1|5|20] [--times 1] [--slower 1]

Without a text the page learns its sample text. --slower 4 throttles the page's processor four times
by the browser's own tool (its workers may not be). Prints the steps, the loss that the page states,
on up to 20,000 letters of the last tenth, and the seconds from the click on "Aprender". Needs
selenium, chromium and chromedriver; run nothing beside it.
"""

import json
import re
import shutil
import time
from pathlib import Path

from common import ROOT, parser_of
from selenium import webdriver

PAGE = ROOT / "docs" / "index.html"


def open_browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.add_experimental_option("prefs", {"intl.accept_languages": "es"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


def lesson(text: Path | None, minutes: int, slower: float) -> dict:
    """Let a new browser learn; return what came of it."""
    with open_browser() as browser:
        browser.set_script_timeout(60)
        browser.get(PAGE.as_uri())
        browser.execute_async_script("sancho.ready.then(arguments[arguments.length - 1])")
        find = browser.find_element
        while browser.execute_script("return sancho.busy"):
            time.sleep(0.1)
        if slower > 1:
            browser.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": slower})
        if text:
            find("id", "archivo").send_keys(str(text.resolve()))
        else:
            browser.execute_script("document.getElementById('muestra').click()")
        while "letras" not in find("id", "leido").text:
            time.sleep(0.05)
        browser.execute_script(f"document.getElementById('tiempo').value = '{minutes}'")
        since = time.perf_counter()
        browser.execute_script("document.getElementById('aprender').click()")
        says = ""
        while not says.startswith("Ha aprendido"):
            time.sleep(0.1)
            says = find("id", "aprendizaje").text
        seconds = time.perf_counter() - since
        said = re.search(r"([\d\u202f]+) pasos .*: (\d\.\d\d) nats", says)
        assert said, says
        steps = int(said[1].replace("\u202f", ""))
        return {"steps": steps, "loss": float(said[2]), "seconds": round(seconds, 1)}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--text", type=Path, help="a text in UTF-8; without one, the sample text")
    parser.add_argument("--minutes", type=int, choices=(1, 5, 20), default=1)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--slower", type=float, default=1)
    args = parser.parse_args()
    for _ in range(args.times):
        print(json.dumps(lesson(args.text, args.minutes, args.slower)))


if __name__ == "__main__":
    main()
