"""The attention page: what it holds, how text is escaped, and what a person sees in a real browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
import torch
from attention_models import analysis, recomputed, translator

from vaswani_plugin.tools import attention_maps, attention_page
from vaswani_plugin.tools.attention_maps import Analysis

SOURCE, TARGET = "\u2581A \u2581dog s \u2581run ning .", "\u2581Hun de \u2581laufen"
NASTY = ["</script>", "<b>bold</b>", '"quoted"', "'single'", "&amp;", "<!--", "@DATA@", "a\u2028b", "\\u003c"]
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1200,900",
]  # fmt: skip


def nasty() -> Analysis:
    """A pair of sentences whose words are markup."""
    return analysis(" ".join(NASTY[:5]), " ".join(NASTY[5:]), pieces=NASTY)


def page(made: Analysis, kind: str = "encoder-self", merged: bool = False) -> str:
    view = made.pieces[kind]
    return attention_page.page(made, kind, 0, list(range(view.weights.size(1))), merged)


class Scripts(HTMLParser):
    """The elements of a page by name, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: List[Tuple[str, Dict[str, Any]]] = []
        self.texts: List[str] = []
        self.title = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.texts.append(data)
        if self.tags and self.tags[-1][0] == "title":
            self.title += data.strip()


def parsed(text: str) -> Scripts:
    parser = Scripts()
    parser.feed(text)
    return parser


# --- without a browser ------------------------------------------------------------------------------------------------


def test_markup_in_words_stays_text() -> None:
    text = page(nasty())
    parser = parsed(text)
    assert [tag for tag, _ in parser.tags].count("script") == 2
    assert "b" not in [tag for tag, _ in parser.tags]
    assert parser.title == "Attention: " + " ".join(NASTY[:5])
    data = json.loads(parser.texts[0])
    assert data["pieces"]["encoder-self"]["keys"]["names"] == [*NASTY[:5], "<end>"]
    assert data["pieces"]["encoder-decoder"]["queries"]["names"] == [*NASTY[5:7], "a", "b", "\\u003c", "<end>"]
    assert "\u2028" not in text


def test_the_weights_in_the_page_are_the_model_s_bit_for_bit() -> None:
    made = analysis(SOURCE, TARGET)
    data = json.loads(parsed(page(made)).texts[0])
    for unit, views in (("pieces", made.pieces), ("words", made.words)):
        for kind, view in views.items():
            raw = base64.b64decode(data[unit][kind]["weights"])
            values = struct.unpack(f"<{len(raw) // 4}f", raw)
            assert list(values) == view.weights.flatten().tolist()
            assert data[unit][kind]["shape"] == list(view.weights.shape)


def test_the_page_needs_nothing_from_outside() -> None:
    text = page(analysis(SOURCE, TARGET))
    for tag, attributes in parsed(text).tags:
        assert not {"src", "href", "srcset"} & set(attributes), tag
    assert re.findall(r"https?://[^\"\s]+", text) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert "@import" not in text
    assert "url(" not in text
    assert "default-src 'none'" in text


def test_json_is_the_same_without_packing() -> None:
    made = analysis(SOURCE, TARGET)
    data = json.loads(json.dumps(attention_page.as_json(made)))
    table = torch.tensor(data["words"]["encoder-decoder"]["weights"])
    torch.testing.assert_close(table, made.words["encoder-decoder"].weights, rtol=0, atol=1e-7)


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium; the tests that want it are skipped where it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="driving the page needs selenium: pip install .[dev]")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("driving the page needs Chromium and its driver: apt-get install chromium chromium-driver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens pages in the browser; afterwards nothing may have been fetched, and no script may have failed."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    def show(text: str, width: int = 1200) -> Any:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        mouse = ActionBuilder(browser)
        mouse.pointer_action.move_to_location(0, 0)  # where nothing is hovered over
        mouse.perform()
        browser.get(path.as_uri())
        return browser

    browser.get_log("browser")
    yield show
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)") == []


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def hover(browser: Any, side: str, index: int) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).move_to_element(find(browser, f".word[data-side={side}][data-index='{index}']")).perform()


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def numbers(browser: Any) -> Dict[int, List[str]]:
    """The table of weights as it is read: for each word looked at, the mean and then each head's weight."""
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#weights tbody tr')].map("
        "row => [Number(row.dataset.index), [...row.querySelectorAll('td')].map(cell => cell.innerText)])"
    )
    return dict(rows)


def pick(browser: Any, **wanted: object) -> None:
    """Choose options by their group and value, as a click on the label does."""
    for group, value in wanted.items():
        find(browser, f"label:has(input[name={group}][value='{value}'])").click()


def test_a_head_is_chosen_and_a_word_hovered_over(shown: Any) -> None:
    of = translator()
    pair = of.pair(SOURCE, TARGET)
    made = analysis(SOURCE, TARGET)
    previous = torch.tensor([of.target_dictionary.eos(), *pair.target_ids[:-1].tolist()])
    truth = recomputed(of.model, pair.source_ids, previous)
    browser = shown(page(made))
    for kind, layer, head, query in (
        ("encoder-self", 1, 2, 3),
        ("encoder-decoder", 2, 0, 1),
        ("decoder-self", 0, 1, 2),
    ):
        pick(browser, kind=kind, layer=layer)
        find(browser, "#no-head").click()
        pick(browser, head=head)
        hover(browser, "query", query)
        row = truth[kind][layer][head][query]
        assert numbers(browser) == {k: [f"{w:.3f}"] * 2 for k, w in enumerate(row)}
        assert find(browser, "#subject").text == f"{made.pieces[kind].queries.names[query]} looks at"
        hover(browser, "key", 1)
        column = [truth[kind][layer][head][q][1] for q in range(len(truth[kind][layer][head]))]
        assert {q: cells[1] for q, cells in numbers(browser).items()} == {q: f"{w:.3f}" for q, w in enumerate(column)}
        assert find(browser, "#subject").text == f"{made.pieces[kind].keys.names[1]} is looked at by"


def test_several_heads_lines_and_their_mean(shown: Any) -> None:
    made = analysis(SOURCE, TARGET)
    table = made.pieces["encoder-self"].weights[0]
    browser = shown(page(made))
    count = "return document.querySelectorAll('#lines svg line').length"
    assert browser.execute_script(count) == int((table >= 0.01).sum())
    hover(browser, "query", 2)
    assert browser.execute_script(count) == int((table[:, 2] >= 0.01).sum())
    cells = numbers(browser)[4]
    assert cells[1:] == [f"{float(w):.3f}" for w in table[:, 2, 4]]
    assert float(cells[0]) == pytest.approx(float(table[:, 2, 4].mean()), abs=6e-4)
    assert list(numbers(browser)) == table[:, 2].mean(dim=0).argsort(descending=True, stable=True).tolist()


def test_words_instead_of_pieces_and_the_numbers_of_heads(shown: Any) -> None:
    made = analysis(SOURCE, TARGET)
    browser = shown(page(made, "encoder-decoder"))
    pick(browser, unit="words", layer=2)
    hover(browser, "query", 0)
    table = made.words["encoder-decoder"].weights[2, :, 0]
    assert {k: cells[1:] for k, cells in numbers(browser).items()} == {
        k: [f"{float(w):.3f}" for w in table[:, k]] for k in range(4)
    }
    cells = find(browser, "#heads-table tr[data-layer='2'][data-head='1']").text.split()
    wanted = attention_page.as_json(made)["words"]["encoder-decoder"]["statistics"][2][1]
    assert cells[4:] == [f"{value:.3f}" for value in wanted.values()]
    find(browser, "#heads-table tr[data-layer='1'][data-head='0'] .pick").click()
    chosen = "return [...document.querySelectorAll('#controls :checked')].map(input => input.value)"
    assert browser.execute_script(chosen) == ["encoder-decoder", "1", "0", "words", "lines"]


def test_the_keyboard_is_enough(shown: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    made = analysis(SOURCE, TARGET)
    table = made.pieces["encoder-self"].weights
    browser = shown(page(made))
    press(browser, Keys.TAB, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)  # the kinds are a group of radio buttons
    press(browser, Keys.TAB, Keys.ARROW_RIGHT)  # layer 2
    press(browser, Keys.TAB, Keys.SPACE)  # without head 1
    press(browser, Keys.TAB * 5, Keys.TAB * 2)  # heads 2 and 3, all, none, units, forms, and the first word
    focused = "return document.activeElement.dataset"
    for _ in range(3):
        if browser.execute_script(focused).get("side") == "query":
            break
        press(browser, Keys.TAB)
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.execute_script(focused) == {"side": "query", "index": "2"}
    assert {k: cells[1:] for k, cells in numbers(browser).items()} == {
        k: [f"{float(w):.3f}" for w in table[1, 1:, 2, k]] for k in range(7)
    }
    press(browser, Keys.ARROW_RIGHT, Keys.END)
    assert browser.execute_script(focused) == {"side": "key", "index": "6"}
    press(browser, Keys.ESCAPE)
    assert numbers(browser) == {}


def test_a_heat_map_by_mouse_and_by_keyboard(shown: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    made = analysis(SOURCE, TARGET)
    table = made.pieces["encoder-self"].weights[0]
    browser = shown(page(made))
    pick(browser, form="maps")
    canvases = browser.find_elements("css selector", "canvas")
    assert len(canvases) == 3
    browser.execute_script("arguments[0].focus()", canvases[1])
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)  # the first one shows where one is
    told = find(browser, "#cell").text
    assert told == "row 2 of 7, dog: " + ", ".join(f"head {h + 1} {float(table[h, 1, 1]):.3f}" for h in range(3))
    pixel = (
        "const c = arguments[0], at = mapLayout(c.getContext('2d')); return [...c.getContext('2d').getImageData("
        "(at.left + 4.5 * at.size) * devicePixelRatio, (at.top + 3.5 * at.size) * devicePixelRatio, 1, 1).data]"
    )
    assert find(browser, "#note").text == f"No colour is 0, full colour is {float(table.max()):.3f}."
    for head, canvas in enumerate(canvases):
        assert browser.execute_script(pixel, canvas)[3] == pytest.approx(
            255 * float(table[head, 3, 4] / table.max()), abs=2
        )
    at = browser.execute_script("return mapLayout(arguments[0].getContext('2d'))", canvases[0])
    from selenium.webdriver.common.action_chains import ActionChains

    x, y = at["left"] + 4.5 * at["size"] - at["width"] / 2, at["top"] + 3.5 * at["size"] - at["height"] / 2
    ActionChains(browser).move_to_element_with_offset(canvases[0], round(x), round(y)).perform()
    assert find(browser, "#cell").text.startswith("row 4 of 7, \u00b7ning: head 1 ")


def test_markup_in_words_is_read_as_it_is_written(shown: Any) -> None:
    browser = shown(page(nasty(), "encoder-self"))
    words = "return [...document.querySelectorAll('.query .word')].map(word => word.textContent)"
    assert browser.execute_script(words) == [*NASTY[:5], "<end>"]
    assert browser.execute_script("return document.querySelectorAll('b').length") == 0
    assert browser.title == "Attention: " + " ".join(NASTY[:5])
    hover(browser, "query", 0)
    assert find(browser, "#subject").text == "</script> looks at"


@pytest.mark.parametrize("form", ["lines", "maps"])
@pytest.mark.parametrize("width", [360, 1200])
def test_long_sentences_scroll_and_nothing_overlaps(form: str, width: int, shown: Any) -> None:
    words = [f"w{i}" for i in range(60)] + ["Donaudampfschifffahrtsgesellschaft" * 3]
    made = analysis(" ".join(words), " ".join(words[:40]), pieces=words)
    browser = shown(page(made, "encoder-decoder"), width)
    pick(browser, form=form)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    frame = find(browser, "#stage")
    assert frame.get_property("scrollHeight") > frame.get_property("clientHeight")
    if form == "lines":
        overlapping = browser.execute_script(
            "const boxes = side => [...document.querySelectorAll(`.${side} .word`)]"
            ".map(word => word.getBoundingClientRect());"
            "const rows = list => list.slice(1).filter((box, i) => box.top < list[i].bottom - .5).length;"
            "const q = boxes('query'), k = boxes('key');"
            "return rows(q) + rows(k) + (Math.max(...q.map(b => b.right)) > Math.min(...k.map(b => b.left)) ? 1 : 0)"
        )
        assert overlapping == 0


def test_text_from_right_to_left(shown: Any) -> None:
    pieces = ["\u2581כלב", "\u2581רץ", "\u2581dog", "\u2581runs"]
    made = analysis("\u2581כלב \u2581רץ", "\u2581dog \u2581runs", pieces=pieces)
    assert made.pieces["encoder-decoder"].keys.direction == "rtl"
    browser = shown(page(made, "encoder-decoder"))
    assert browser.execute_script("return getComputedStyle(document.getElementById('source')).direction") == "rtl"
    assert browser.execute_script("return getComputedStyle(document.getElementById('target')).direction") == "ltr"
    assert browser.execute_script("return [0, 1, 2].map(place)") == [2, 1, 0]  # columns of the heat maps
    pick(browser, kind="decoder-self")
    assert browser.execute_script("return [0, 1, 2].map(place)") == [0, 1, 2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_readable_contrast(scheme: str, shown: Any) -> None:
    browser = shown(page(analysis(SOURCE, TARGET)))
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    ground, ink, quiet = browser.execute_script(
        "const colours = element => getComputedStyle(element);"
        "return [colours(document.body).backgroundColor, colours(document.body).color,"
        " colours(document.getElementById('explanation')).color]"
    )
    assert (luminance(ground) > 0.5) is (scheme == "light")
    for colour in (ink, quiet):
        darker, lighter = sorted((luminance(ground), luminance(colour)))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # what the Web's accessibility guidelines ask of text
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def luminance(colour: str) -> float:
    """The relative luminance of a CSS colour in the form rgb(r, g, b)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_views_of_one_token_each(shown: Any) -> None:
    made = analysis("\u2581dog", "\u2581Hun")
    single = Analysis("x", "", True, *(({k: _first(v) for k, v in part.items()}) for part in (made.pieces, made.words)))
    browser = shown(page(single))
    assert find(browser, "#target-name").text == "translation"
    hover(browser, "query", 0)
    assert numbers(browser) == {0: ["1.000"] * 4}
    assert "\u2013" in find(browser, "#heads-table tbody tr").text


def _first(view: attention_maps.View) -> attention_maps.View:
    labels = attention_maps.Labels(view.queries.names[:1])
    return attention_maps.View(view.kind, labels, labels, torch.ones(*view.weights.shape[:2], 1, 1))
