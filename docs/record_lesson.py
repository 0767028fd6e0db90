"""Record the lesson that the page shows before anybody has taught it: python docs/record_lesson.py.

It opens docs/index.html in Chromium, lets it learn the sample text for a minute, and writes the
texts that the model wrote on the way to page/ui/lesson.json. It needs selenium,
Chromium and its driver. Seconds are those of this machine, so nothing else should run meanwhile.
Afterwards docs/make_page.py makes the page again.
"""

import json
import os
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

ROOT = Path(__file__).resolve().parent.parent
LESSON = ROOT / "page" / "ui" / "lesson.json"
SHOWN = (0, 5, 20, 60)
"""Seconds after which a text is kept, or the first one after them."""
LETTERS = 160
"""Characters of each text that are kept."""
COLLECT = """
window.lesson_texts = [];
const take = ({ seconds, loss, letters }) => window.lesson_texts.push({ seconds, loss, letters });
let last = null;
setInterval(() => {
  const newest = (lesson.run ?? lesson.learned)?.writings.at(-1);
  if (newest && newest !== last) take((last = newest));
}, 50);
document.getElementById('muestra').click();
"""


def main() -> None:
    """Teach the page and write the lesson."""
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--lang=es"):
        options.add_argument(option)
    with webdriver.Chrome(options=options) as driver:
        driver.get(f"{(ROOT / 'docs' / 'index.html').as_uri()}?lang=es")
        driver.set_script_timeout(60)
        driver.execute_async_script("sancho.ready.then(arguments[0])")
        driver.execute_script(COLLECT)
        WebDriverWait(driver, 300).until(
            lambda page: page.execute_script("return !lesson.run && Boolean(lesson.learned)")
        )
        texts = driver.execute_script("return window.lesson_texts")
    kept = [next((text for text in texts if text["seconds"] >= at), texts[-1]) for at in SHOWN]
    writings = [
        {
            "seconds": round(text["seconds"]),
            "loss": round(text["loss"], 2),
            "letters": text["letters"][:LETTERS],
        }
        for text in kept
    ]
    found = {"cores": os.cpu_count(), "writings": writings}
    LESSON.write_text(
        json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", newline="\n"
    )


if __name__ == "__main__":
    main()
