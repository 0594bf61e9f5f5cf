"""Small archives in the layout of the workshop's, made of generated text, and a loopback server that can misbehave."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import random
import re
import tarfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

Pair = Tuple[bytes, bytes]

WORDS = [
    f"{first}{last}" for first in ("ka", "lo", "mi", "ne", "pu", "ra") for last in ("ben", "dor", "fil", "gam", "tus")
]
# Pairs that are kept, though a careless reader would split or join lines at them.
ODD_PAIRS: List[Pair] = [
    ("one\u2028two three".encode(), b"eins zwei drei"),
    (b"four\rfive\r", "vier\x85fünf".encode()),
    (b"six\x0cseven", b"sechs sieben"),
]
# Pairs that are dropped, with the reason.
BAD_PAIRS: List[Tuple[str, Pair]] = [
    ("encoding", (b"caf\xe9 here", b"hier")),
    ("encoding", (b"a nul \x00 here", b"null")),
    ("encoding", (b"fine", "verloren \ufffd".encode())),
    ("empty", (b"", b"nichts da")),
    ("empty", (b"something", " \u3000\t".encode())),
    ("too long", (b"w " * 251, b"v " * 251)),
    ("ratio", (b"one", b"a b c d e f g h i j")),
    ("duplicate", ODD_PAIRS[0]),
]


def sentences(count: int, seed: int) -> List[Pair]:
    """Different pairs, also from those of another seed: words, and the same words backwards with another ending."""
    rng = random.Random(seed)
    found: Dict[Pair, None] = {}
    while len(found) < count:
        words = [f"{seed:x}", *rng.choices(WORDS, k=rng.randint(2, 6))]
        found[" ".join(words).encode(), " ".join(word + "o" for word in reversed(words)).encode() + b"."] = None
    return list(found)


def joined(lines: List[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def sides(pairs: List[Pair]) -> Tuple[bytes, bytes]:
    return joined([source for source, _ in pairs]), joined([target for _, target in pairs])


def tar_of(members: Mapping[str, bytes], zipped: bool = True) -> bytes:
    """The bytes of an archive, the same on each call."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0) if zipped else plain.getvalue()


def sgm_of(lines: List[bytes], kind: str) -> bytes:
    segments = b"".join(b'<seg id="%d">%s</seg>\n' % (i, line) for i, line in enumerate(lines, start=1))
    return b'<%s setid="x" srclang="any">\n<doc docid="d" genre="news" origlang="en">\n<p>\n%s</p>\n</doc>\n</%s>\n' % (
        kind.encode(),
        segments,
        kind.encode(),
    )


@dataclass
class StandIn:
    """Archives by their path below the site, and how many lines each side of them has."""

    files: Dict[str, bytes]
    lines: Dict[str, int]

    def facts(self) -> Dict[str, Dict[str, Any]]:
        """What ``--facts`` is given: sizes, digests and line counts of these archives."""
        return {
            path.rsplit("/", 1)[-1]: {
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "md5": None,
                "lines": self.lines[path],
            }
            for path, content in self.files.items()
        }

    def write(self, folder: Path, flat: bool = False) -> Path:
        """Write the archives below a folder, side by side where ``flat``."""
        for path, content in self.files.items():
            target = folder / (path.rsplit("/", 1)[-1] if flat else path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return folder


def make_stand_in(pair: str, count: int = 60, tests: int = 7) -> StandIn:
    """``count`` good pairs in each corpus; Common Crawl has the odd and the bad ones too."""
    other = pair.split("-")[1]
    both = f"{other}-en"
    texts = {
        name: sides(sentences(count, seed))
        for seed, name in enumerate(("europarl", "nc", "un", "giga"), start=len(other))
    }
    crawl = sentences(count, 77) + ODD_PAIRS + [bad for _, bad in BAD_PAIRS]
    texts["crawl"] = sides(crawl)
    dev, test = sentences(tests, 88), [*sentences(tests - 1, 99), (b"a &amp; b\r", "c &quot; d\u2028e".encode())]
    code = f"{other}en"
    plain = {
        "wmt13/training-parallel-europarl-v7.tgz": {
            "training/europarl-v7.cs-en.cs": b"other languages\n",
            f"training/europarl-v7.{both}.{other}": texts["europarl"][1],
            f"training/europarl-v7.{both}.en": texts["europarl"][0],
        },
        "wmt13/training-parallel-commoncrawl.tgz": {
            f"commoncrawl.{both}.annotation": b"where from\n",
            f"commoncrawl.{both}.{other}": texts["crawl"][1],
            f"commoncrawl.{both}.en": texts["crawl"][0],
        },
        "wmt14/training-parallel-nc-v9.tgz": {
            f"training/news-commentary-v9.{both}.{other}": texts["nc"][1],
            f"training/news-commentary-v9.{both}.en": texts["nc"][0],
        },
        "wmt13/test.tgz": {
            f"test/newstest2013-src.{language}.sgm": sgm_of([p[side] for p in dev], "srcset")
            for side, language in enumerate(("en", other))
        },
        "wmt14/test-full.tgz": {
            f"test-full/newstest2014-{code}-src.en.sgm": sgm_of([p[0] for p in test], "srcset"),
            f"test-full/newstest2014-{code}-ref.{other}.sgm": sgm_of([p[1] for p in test], "refset"),
        },
    }
    files = {path: tar_of(members) for path, members in plain.items()}
    lines = dict.fromkeys(files, count)
    lines["wmt13/training-parallel-commoncrawl.tgz"] = len(crawl)
    lines["wmt13/test.tgz"] = lines["wmt14/test-full.tgz"] = tests
    if pair == "en-fr":
        un, giga = "wmt13/training-parallel-un.tgz", "wmt10/training-giga-fren.tar"
        files[un] = tar_of({f"un/undoc.2000.{both}.{lang}": text for lang, text in zip(("en", "fr"), texts["un"])})
        zipped = {
            f"giga-fren.release2.fixed.{lang}.gz": gzip.compress(text, mtime=0)
            for lang, text in zip(("en", "fr"), texts["giga"])
        }
        files[giga] = tar_of(zipped, zipped=False)
        lines[un] = lines[giga] = count
    return StandIn(files, lines)


@dataclass
class Site:
    """A running server.

    Attributes:
        url: where it answers.
        files: path to content; may be changed meanwhile.
        faults: path to what goes wrong: ``"page"`` (a web page with status 200), ``"disguised"`` (the same, called an
            archive), ``"busy"`` (status 503), ``"half"`` (the connection ends after half of what is left),
            ``"half, no ranges"`` (the same, and it always sends the file from its start).
        once: paths whose fault goes away after the first request.
        requests: (path, Range header or "") of every request.
    """

    url: str
    files: Dict[str, bytes]
    faults: Dict[str, str] = field(default_factory=dict)
    once: List[str] = field(default_factory=list)
    requests: List[Tuple[str, str]] = field(default_factory=list)

    def asked(self) -> Counter[str]:
        """How often each path was asked for."""
        return Counter(path for path, _ in self.requests)


@contextlib.contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[Site]:
    """Serve files on a free port of loopback until the block ends."""
    site = Site("", dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, site)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(request: BaseHTTPRequestHandler, site: Site) -> None:
    """One answer: the file or the part of it that was asked for, unless a fault is set for it."""
    path = request.path.lstrip("/")
    wanted = request.headers.get("Range", "")
    site.requests.append((path, wanted))
    fault = site.faults.get(path, "")
    if path in site.once:
        site.once.remove(path)
        del site.faults[path]
    if fault == "moved":  # to itself
        request.send_response(302)
        request.send_header("Location", request.path)
        request.end_headers()
        return
    page = b"<!DOCTYPE html>\n<html><body>Come back later</body></html>\n"
    if fault == "busy" or path not in site.files:
        request.send_error(503 if fault == "busy" else 404)
        return
    content = page if fault in ("page", "disguised") else site.files[path]
    etag = f'"{hashlib.md5(content).hexdigest()}"'
    match = re.fullmatch(r"bytes=(\d+)-", wanted)
    ranged = match is not None and "no ranges" not in fault and request.headers.get("If-Range") == etag
    start = int(match.group(1)) if match is not None and ranged else 0
    if ranged and start >= len(content):
        request.send_error(416)
        return
    request.send_response(206 if ranged else 200)
    request.send_header("Content-Type", "text/html" if fault == "page" else "application/octet-stream")
    request.send_header("Content-Length", str(len(content) - start))
    request.send_header("ETag", etag)
    if ranged:
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    request.end_headers()
    rest = content[start:]
    request.wfile.write(rest[: len(rest) // 2] if fault.startswith("half") else rest)
    request.close_connection = True
