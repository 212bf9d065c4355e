"""The page of the server in a real browser."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from typing import Any

import pytest
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import predbn
from predbn.serving.app import PAGE_POLICY

from ..report import browser
from ..report.test_results_page import needs_browser
from .running import classifier, infer_body, pixels, running, tiny_service

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=complain('error','ran')>"
HELPERS = """
const until = async (test) => { for (let i = 0; i < 200 && !test(); i++) await wait(50); return test(); };
const rows = () => [...document.querySelectorAll("#streams tr")].map((row) => [...row.cells].map((c) => c.innerText));
const button = (id) => [...document.querySelectorAll("#streams button")].find((b) => b.textContent === id);
const text = (id) => document.getElementById(id).innerText;
"""


def ask(questions: str, *requests: tuple[str, int], width: int = 900, **settings: Any) -> dict[str, Any]:
    """What the body of a JavaScript function returns in the page of a server that has had some requests.

    The page is put into a frame, because a window cannot be as narrow as a phone.
    """
    page = (files("predbn.serving") / "page.html").read_text()
    page = page.replace("<title>", f"<script>{browser.LISTEN}</script><title>", 1)
    asking = browser.ASK.replace("QUESTIONS", HELPERS + questions)
    page = page.replace("</body>", f"<script>{asking}</script></body>")
    frame = browser.FRAME % ("/asked", width, 1200)

    async def asked(request: Any) -> Response:
        return HTMLResponse(page, headers={"content-security-policy": PAGE_POLICY})

    async def framed(request: Any) -> Response:
        return HTMLResponse(frame)

    with running(tiny_service(**settings), [Route("/asked", asked), Route("/framed", framed)]) as server:
        for stream, seed in requests:
            server.infer(pixels(seed=seed), stream=stream)
        dom = browser._chromium(f"--window-size={width},1200", "--dump-dom", f"http://{server.address}/framed")
        origin = f"http://{server.address}/"
    match = re.search(r'<pre id="answer" hidden="">(.+?)</pre>', dom, re.DOTALL)
    assert match, "the page did not answer"
    answer: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert "failed" not in answer, answer
    assert {address.removeprefix(origin).partition("/")[0] for address in answer["fetched"]} <= {"v2"}
    return answer


def test_the_page_is_served_with_its_policy():
    with running(tiny_service()) as server:
        answer = server.ask("GET", "/")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", answer.body.decode())


@pytest.mark.parametrize("width", [340, 1200])
def test_streams_are_listed_and_shown_by_layer_on_any_screen_and_without_a_mouse(width):
    questions = """
    await until(() => rows().length === 3);
    const list = rows(), head = [text("model"), text("strategy"), text("count"), text("rows")];
    button("camera-7").click();
    await until(() => !document.getElementById("details").hidden);
    const cells = (row) => [...row.cells].slice(0, 2).map((cell) => cell.innerText);
    const layers = [...document.querySelectorAll("#layers tr")].map(cells);
    const buttons = [...document.querySelectorAll("button")].filter((b) => b.offsetParent);
    return {
      list, head, layers, title: text("details-title"), summary: text("details-summary"), hash: location.hash,
      focus: document.activeElement.id,
      overflow: document.documentElement.scrollWidth - innerWidth,
      unnamed: buttons.filter((b) => !b.innerText.trim()).length,
      expanded: button("camera-7").getAttribute("aria-expanded"),
      captions: [...document.querySelectorAll("table")].every((t) => t.caption),
      headers: [...document.querySelectorAll("thead th")].every((h) => h.scope === "col"),
      live: document.getElementById("message").getAttribute("aria-live"),
      language: document.documentElement.lang,
    };
    """
    long = "a-very-long-name-of-a-stream-without-any-space-" * 2
    answer = ask(questions, ("camera-7", 1), ("camera-7", 2), (HOSTILE, 3), (long, 2), width=width)
    model = predbn.adapt(classifier(), "ema")
    for seed in (1, 2):
        model(pixels(seed=seed))
    expected = [[layer.name, f"{layer.distance:.2f}"] for layer in predbn.describe(model)]
    mean = sum(layer.distance for layer in predbn.describe(model)) / len(expected)
    if width == 1200:  # a narrow screen has fewer columns
        assert [row[:3] for row in answer["list"][1:]] == [[HOSTILE, "1", "4"], ["camera-7", "2", "8"]]
        assert answer["list"][2][4] == f"{mean:.2f}"
    assert answer["head"] == ["model", str(predbn.Ema()), "3", "16"]
    assert answer["layers"] == expected
    assert answer["title"] == answer["hash"].removeprefix("#") == "camera-7"
    assert answer["summary"].startswith("8 examples in 2 requests since ")
    assert answer["focus"] == "details-title"
    assert answer["complaints"] == []
    assert answer["overflow"] <= 0
    assert answer["unnamed"] == 0
    assert answer["expanded"] == "true"
    assert answer["captions"]
    assert answer["headers"]
    assert (answer["live"], answer["language"]) == ("polite", "en")


def test_streams_appear_and_forgotten_ones_go():
    body = json.dumps(infer_body(pixels(), stream="new"))
    questions = f"""
    await until(() => text("empty"));
    const empty = text("empty");
    await fetch("v2/models/model/infer", {{ method: "POST", body: {json.dumps(body)} }});
    const appeared = await until(() => rows().length === 1 && rows()[0][0] === "new");
    window.confirm = () => true;
    button("new").click();
    await until(() => text("details-title") === "new");
    document.getElementById("forget").click();
    const gone = await until(() => rows().length === 0);
    return {{ empty, appeared, gone, closed: document.getElementById("details").hidden }};
    """
    answer = ask(questions)
    assert answer["empty"].startswith("There are no streams yet.")
    assert answer["appeared"]
    assert answer["gone"]
    assert answer["closed"]
    assert answer["complaints"] == []


def test_a_server_with_a_token_asks_for_it():
    questions = """
    const form = document.getElementById("access"), field = document.getElementById("token");
    await until(() => !form.hidden);
    field.value = "wrong"; form.requestSubmit();
    const refused = await until(() => text("message") === "The token is wrong.");
    field.value = "secret"; form.requestSubmit();
    const shown = await until(() => form.hidden && text("model") === "model");
    return { refused, shown, message: text("message") };
    """
    answer = ask(questions, token="secret")
    assert (answer["refused"], answer["shown"], answer["message"]) == (True, True, "")
