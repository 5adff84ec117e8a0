"""The chat page in a real browser: the system's chromium, or playwright's, driven by playwright."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from pyflame.llm.generate import Model
from pyflame.llm.server import Served, Settings
from pyflame.llm.serving.engine import Engine
from tests.llm.server.live import Live, running
from tests.needs import need

pytestmark = pytest.mark.slow
MARKDOWN = """# Title

Some **bold**, *slanted* and `code <b>`, a [link](https://example.org/a_b_c) and <script>alert(1)</script>.

1. one
2. two
   - inner

> quoted

| a | b |
|---|---|
| 1 | 2 |

```python
print("<hello>")
```
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path  # where `playwright install chromium` was run
        path = need(shutil.which("chromium") or (own if Path(own).exists() else None), "chromium")
        flags = ["--no-sandbox", "--disable-gpu"]
        found = playwright.chromium.launch(executable_path=path, args=flags, headless=True)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser, live: Live) -> Iterator[Page]:
    """The page, and a failure where its policy or its script complains."""
    context = browser.new_context(viewport={"width": 1100, "height": 700})
    made = context.new_page()
    complaints: list[str] = []
    made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.goto(live.url)
    expect(made.locator("#model option")).to_have_text(["letters"])
    yield made
    context.close()
    assert [text for text in complaints if "Failed to load resource" not in text] == []  # that is a refused request


def settle(page: Page, **settings: Any) -> None:
    """Change settings in their dialog."""
    page.get_by_role("button", name="Settings").click()
    for name, value in settings.items():
        page.locator(f"dialog [name={name}]").fill(str(value))
    page.get_by_role("button", name="Close").click()


def ask(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def canned(page: Page, text: str) -> None:
    """Let the page get this answer, in pieces."""
    pieces = [text[n : n + 7] for n in range(0, len(text), 7)]
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    events.append({"choices": [], "usage": {"completion_tokens": len(pieces)}})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def test_asks_and_remembers(page: Page, live: Live) -> None:
    settle(page, temperature=0, max_tokens=12)
    ask(page, "Hi")
    answer = page.locator(".assistant .body")
    want = live.model.generate(messages=[{"role": "user", "content": "Hi"}], max_tokens=12).text
    expect(page.locator(".assistant .tools")).to_contain_text(re.compile(r"12 tokens, [\d.]+ tokens/s"))
    asked = page.evaluate("t => import('/markdown.js').then(m => m.markdown(t))", want)
    assert answer.inner_html() == page.evaluate(
        "h => { const d = document.createElement('div'); d.innerHTML = h; return d.innerHTML }", asked
    )
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".assistant")).to_have_count(1)
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    page.keyboard.press("Control+Shift+O")
    ask(page, "Another")
    expect(page.locator("#chats li")).to_have_count(2)
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    page.reload()
    expect(page.locator("#chats .open")).to_have_text(["Another", "Hi"])
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator(".user .body")).to_have_text("Hi")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete Hi").click()
    expect(page.locator("#chats .open")).to_have_text(["Another"])


def test_stop_frees_the_engine(page: Page, live: Live) -> None:
    settle(page, temperature=1, seed=3)
    cancelled = live.engine.stats().cancelled
    forever = """() => { const send = window.fetch; window.fetch = (path, options) => send(path, options?.body
        ? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})} : options) }"""
    page.evaluate(forever)
    ask(page, "Go on")
    expect(page.locator("#speed")).to_contain_text("tokens/s")
    page.keyboard.press("Escape")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator(".assistant")).to_have_count(1)
    assert live.idle() and live.engine.stats().cancelled == cancelled + 1


def test_markdown(page: Page) -> None:
    canned(page, MARKDOWN)
    ask(page, "Show me")
    body = page.locator(".assistant .body")
    expect(body.locator("h1")).to_have_text("Title")
    expect(body.locator("strong")).to_have_text("bold")
    expect(body.locator("em")).to_have_text("slanted")
    expect(body.locator("p code")).to_have_text("code <b>")
    expect(body.locator("a")).to_have_attribute("href", "https://example.org/a_b_c")
    expect(body.locator("ol > li")).to_have_count(2)
    expect(body.locator("ol ul li")).to_have_text("inner")
    expect(body.locator("blockquote")).to_have_text("quoted")
    expect(body.locator("td")).to_have_text(["1", "2"])
    expect(body.locator("pre")).to_have_text('print("<hello>")')
    assert body.locator("script").count() == 0 and "<script>alert(1)</script>" in body.inner_text()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    body.get_by_role("button", name="Copy").click()
    expect(body.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == 'print("<hello>")'


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        '[x](https://a"onmouseover="alert(1))',
        "`<svg onload=alert(1)>`",
        "```<b>\n<script>alert(1)</script>",
        "\x010\x01 `a` \x011\x01",
        "| <i>a</i> | b |\n|---|---|\n| <i>c</i> | d |",
    ],
)
def test_markdown_makes_no_tags_of_the_text(page: Page, text: str) -> None:
    found = page.evaluate(
        """text => import('/markdown.js').then(m => {
            const made = new DOMParser().parseFromString(m.markdown(text), 'text/html').body;
            return [...made.querySelectorAll('*')].map(e => [e.localName, ...e.getAttributeNames()]) })""",
        text,
    )
    known = {"a", "br", "button", "code", "div", "p", "pre", "span", "table", "tbody", "td", "th", "tr"}
    assert {tag for tag, *_ in found} <= known
    assert {name for _, *names in found for name in names} <= {"class", "type", "href", "target", "rel"}
    links = page.evaluate('t => import(\'/markdown.js\').then(m => m.markdown(t).match(/href="[^"]*"/g))', text)
    assert all(re.match(r'href="https?://', link) for link in links or [])


def test_themes_and_phone(page: Page) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(back) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(back) == "rgb(25, 25, 24)"
    page.get_by_role("button", name="Settings").click()
    page.locator("dialog [name=theme]").select_option("light")
    assert page.evaluate(back) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Close").click()
    canned(page, MARKDOWN + "\n" + "```\n" + "long " * 80 + "\n```")
    page.set_viewport_size({"width": 360, "height": 640})
    expect(page.locator("#side")).to_be_hidden()
    ask(page, "Show me")
    expect(page.locator(".assistant h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.get_by_role("button", name="Settings")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Conversations").click()
    expect(page.locator("#new")).to_be_in_viewport()


@pytest.mark.slow(16)
def test_token_is_asked_for(browser: Browser, model: Model) -> None:
    with running([Served("letters", model, Engine(model, rows=2))], Settings(token="secret")) as live:
        page = browser.new_page()
        page.goto(live.url)
        expect(page.locator("dialog")).to_be_visible()
        expect(page.locator("#notice")).to_contain_text("token")
        page.locator("dialog [name=token]").fill("secret")
        expect(page.locator("#model option")).to_have_text(["letters"])
        page.close()


def test_errors_are_shown(page: Page) -> None:
    settle(page, max_tokens=5000)
    ask(page, "Hi")
    expect(page.locator("#notice")).to_contain_text("context of 1024 tokens")
    expect(page.locator(".assistant")).to_have_count(0)
