"""A page in a real browser: open it in headless Chromium, ask it questions in JavaScript, take a screenshot.

`python tests/report/browser.py report.html report.png` takes the screenshot in docs/start.md.
"""

import argparse
import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=30000",
]
DARK = "--blink-settings=preferredColorScheme=0"

LISTEN = """
window.complaints = [];
const complain = (kind, what) => window.complaints.push(`${kind}: ${what}`);
addEventListener("error", (event) => complain("error", event.message));
addEventListener("unhandledrejection", (event) => complain("rejection", event.reason));
document.addEventListener("securitypolicyviolation", (event) => complain("policy", event.violatedDirective));
for (const kind of ["error", "warn"]) console[kind] = (...parts) => complain(kind, parts.join(" "));
"""

ASK = """
(async () => {
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  const charts = [...document.querySelectorAll("figure .chart")];
  for (let tries = 0; tries < 200 && !charts.every((chart) => chart.querySelector("svg")); tries++) await wait(50);
  const answer = {};
  try {
    Object.assign(answer, await (async () => { QUESTIONS })());
  } catch (error) {
    answer.failed = String(error);
  }
  answer.complaints = window.complaints;
  answer.fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
  parent.postMessage(JSON.stringify(answer), "*");
})();
"""

FRAME = """<!doctype html><body style="margin: 0"><pre id="answer" hidden></pre><script>
addEventListener("message", (event) => { document.getElementById("answer").textContent = event.data; });
</script><iframe src="%s" style="display: block; border: 0; width: %dpx; height: %dpx"></iframe>"""


def find_chromium() -> str | None:
    """The path of the browser, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _chromium(*arguments: str) -> str:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [find_chromium() or "chromium", *FLAGS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def _framed(page: Path, width: int, height: int) -> str:
    """The address of a page that shows another one in a frame: a window cannot be as narrow as a phone."""
    frame = page.with_name(f"framed-{page.name}")
    frame.write_text(FRAME % (page.name, width, height))
    return frame.resolve().as_uri()


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def ask(page: Path, questions: str, *, width: int = 1000, flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the body of a JavaScript function returns in a copy of the page, once its charts are drawn.

    The page's own content security policy stays; only the two scripts that listen and ask are allowed in addition.
    """
    asking = ASK.replace("QUESTIONS", questions)
    text = page.read_text().replace("script-src ", f"script-src {_hash(LISTEN)} {_hash(asking)} ", 1)
    text = text.replace("<title>", f"<script>{LISTEN}</script><title>", 1)
    rest, end, _ = text.rpartition("</body>")
    text = f"{rest}<script>{asking}</script>{end}</html>"
    copy = page.with_name(f"asked-{page.name}")
    copy.write_text(text)
    dom = _chromium(*flags, f"--window-size={width},1200", "--dump-dom", _framed(copy, width, 1200))
    match = re.search(r'<pre id="answer" hidden="">(.+?)</pre>', dom, re.DOTALL)
    assert match, "the page did not answer"
    answer: dict[str, Any] = json.loads(html.unescape(match[1]))
    return answer


def take_screenshot(page: Path, picture: Path, *, width: int = 900, height: int = 1240) -> None:
    """Save the top of the page as a PNG."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(page, folder))
        address = _framed(copy, width, height)
        _chromium(f"--window-size={width},{height}", f"--screenshot={picture.resolve()}", address)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take a screenshot of a report.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path, help="A .png file.")
    args = parser.parse_args()
    take_screenshot(args.page, args.picture)
