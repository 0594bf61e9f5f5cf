"""``vaswani-prepare wmt14``: from the workshop's archives to the toolkit's binary data.

The folder then holds, beside what ``pipeline`` makes::

    downloads/                       the archives, unless they were given with --from-dir
    raw/europarl-v7.en ...           the parallel text as it came
    raw/valid.en raw/test.de ...     newstest2013 and newstest2014 as sacreBLEU gives them: the references
    clean/train.en clean/train.de    the training pairs that are left

and the manifest says of each archive where it came from, its size and its digest.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from vaswani_plugin.tools.archives import ArchiveError, extract
from vaswani_plugin.tools.cleaning import Rules
from vaswani_plugin.tools.cli import CommandError, atomic_path, plural
from vaswani_plugin.tools.download import check, fetch
from vaswani_plugin.tools.manifest import Manifest, filling
from vaswani_plugin.tools.pipeline import TextJob, check_sizes, clean_step, count_lines, make_data
from vaswani_plugin.tools.wmt14 import SITE, Archive, Corpus, NewsTest, table_for


@dataclass(frozen=True)
class NewsJob:
    """What ``vaswani-prepare wmt14`` was asked for.

    Attributes:
        pair: ``"en-de"`` or ``"en-fr"``.
        dest: the folder to fill.
        mirror: where the archives are instead of the workshop's site.
        from_dir: a folder that has them.
        facts: what they are checked against; see ``wmt14.table_for``.
        vocab_size: of the joint vocabulary; None for the paper's.
        sample_lines: most lines that it is learned from.
        subword_kind: see ``TextJob``.
        rules: what training pairs must satisfy.
        workers: processes.
    """

    pair: str
    dest: Path
    mirror: Optional[str]
    from_dir: Optional[Path]
    facts: Optional[str]
    vocab_size: Optional[int]
    sample_lines: int
    subword_kind: str
    rules: Rules
    workers: int


def prepare_wmt14(job: NewsJob) -> List[str]:
    """Run the steps that are not done yet.

    Returns:
        The kinds of steps that were run, in order; empty when everything was there.

    Raises:
        CommandError: an archive cannot be had or is not what it should be, or a later step failed.
    """
    table = table_for(job.pair, job.facts)
    languages = table.recipe.languages
    vocab_size = job.vocab_size or table.recipe.vocab_size
    check_sizes(vocab_size, job.sample_lines)  # before hours of other work
    with filling(job.dest) as manifest:
        archives = {key: obtain(manifest, job, archive) for key, archive in table.archives.items()}
        pairs = {
            corpus.name: extract_corpus(manifest, corpus, languages, archives[corpus.archive])
            for corpus in table.corpora
        }
        tests = {
            test.split: extract_news_test(manifest, test, job.pair, archives[test.archive]) for test in table.news_tests
        }
        text_job = TextJob(
            {"train": next(iter(pairs.values())), **tests},
            languages,
            vocab_size,
            job.dest,
            job.workers,
            job.sample_lines,
            job.subword_kind,
        )
        text = {name: path for name, path in text_job.raw().items() if not name.startswith("train.")}
        manifest.note("raw", {name: str(path.resolve()) for name, path in text.items()})
        make_data(manifest, text_job, {**clean_step(manifest, pairs, text_job, job.rules), **text})
    return manifest.ran


def obtain(manifest: Manifest, job: NewsJob, archive: Archive) -> Path:
    """Return where an archive lies, after fetching and checking it where that was not done yet."""
    if job.from_dir is not None:
        path = find_archive(job.from_dir, archive)
        manifest.step(
            f"check {archive.name}", facts_of(archive), {archive.name: path}, lambda: check(path, archive), list
        )
        source = str(path.resolve())
    else:
        path = job.dest / "downloads" / archive.name
        source = f"{(job.mirror or SITE).rstrip('/')}/{archive.path}"
        manifest.step(
            f"fetch {archive.name}", facts_of(archive), {}, lambda: fetch_or_keep(source, path, archive), lambda: [path]
        )
    entry = {"from": source, "size": path.stat().st_size, "sha256": manifest.digest(path), "licence": archive.licence}
    known = dict(manifest.data.get("archives", {}))
    if known.get(archive.name, {}).get("sha256") != entry["sha256"]:
        manifest.note("archives", {**known, archive.name: entry})
    return path


def facts_of(archive: Archive) -> Dict[str, Any]:
    """Return what an archive was checked against, as a step's settings."""
    return {"size": archive.size, "sha256": archive.sha256, "md5": archive.md5}


def find_archive(folder: Path, archive: Archive) -> Path:
    """Return an archive's place in a folder, under the path that it has on the site or by its name alone."""
    for path in (folder / archive.path, folder / archive.name):
        if path.is_file():
            return path
    raise CommandError(f"--from-dir {folder}: neither {archive.path} nor {archive.name} is there")


def fetch_or_keep(url: str, path: Path, archive: Archive) -> None:
    """Fetch an archive, unless a file of its name is there already and is right."""
    if path.exists():
        with contextlib.suppress(CommandError):
            check(path, archive)
            return
        path.unlink()
    fetch(url, path, archive)


def extract_corpus(manifest: Manifest, corpus: Corpus, languages: Sequence[str], archive: Path) -> List[Path]:
    """Take a corpus's two files out of its archive; returns them in the order of the languages."""
    members = corpus.members((languages[0], languages[1]))
    outputs = [manifest.folder / "raw" / f"{corpus.name}.{language}" for language in languages]

    def work() -> None:
        with setting_aside(manifest, archive), contextlib.ExitStack() as stack:
            partial = [stack.enter_context(atomic_path(path)) for path in outputs]
            lines = extract(archive, dict(zip(members, partial)))
            check_lines(archive, lines, corpus.lines)

    settings = {"members": members, "lines": corpus.lines}
    manifest.step(f"extract {corpus.name}", settings, {archive.name: archive}, work, lambda: outputs)
    return outputs


@contextlib.contextmanager
def setting_aside(manifest: Manifest, archive: Path) -> Iterator[None]:
    """Give a downloaded archive another name when it turns out wrong, so that the next run fetches it anew."""
    try:
        yield
    except ArchiveError as error:
        if archive.parent != manifest.folder / "downloads":
            raise
        rejected = archive.with_name(archive.name + ".rejected")
        manifest.forget(f"fetch {archive.name}")
        archive.replace(rejected)
        raise ArchiveError(f"{error} (set aside as {rejected.name})") from error


def check_lines(archive: Path, lines: Dict[str, int], published: Optional[int]) -> None:
    """Refuse two members of an archive whose numbers of lines differ from each other or from what is published."""
    (first, count), (second, other) = lines.items()
    if count != other:
        raise ArchiveError(
            f"{archive}: {first} has {plural(count, 'line')} but {second} has {plural(other, 'line')}; "
            "parallel files have the same number"
        )
    if published is not None and count != published:
        raise ArchiveError(
            f"{archive}: {first} and {second} have {plural(count, 'line')}, but {published:,} are published; "
            "if the archive is right nevertheless, say so with --facts"
        )


def extract_news_test(manifest: Manifest, test: NewsTest, pair: str, archive: Path) -> List[Path]:
    """Write a test set as sacreBLEU gives it; returns its (source, reference) files."""
    outputs = [manifest.folder / "raw" / f"{test.split}.{language}" for language in pair.split("-")]

    def work() -> None:
        with setting_aside(manifest, archive), contextlib.ExitStack() as stack:
            partial = [stack.enter_context(atomic_path(path)) for path in outputs]
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=manifest.folder, prefix=".sacrebleu.")))
            members = news_test_text(test.sacrebleu, pair, archive, scratch)
            for path, target in zip(members.values(), partial):
                shutil.copyfile(path, target)
            check_lines(archive, {name: count_lines(path) for name, path in members.items()}, test.lines)

    settings = {"sacrebleu": test.sacrebleu, "lines": test.lines}
    manifest.step(f"extract {archive.name}", settings, {archive.name: archive}, work, lambda: outputs)
    return outputs


def news_test_text(name: str, pair: str, archive: Path, folder: Path) -> Dict[str, Path]:
    """Have sacreBLEU make plain text of a test set, from an archive that is here already.

    Args:
        name: sacreBLEU's, such as ``"wmt14/full"``.
        pair: such as ``"en-de"``.
        archive: what sacreBLEU would download.
        folder: an empty one to work in.

    Returns:
        The archive's members, the source first, each with its text file, one sentence a line.
    """
    from sacrebleu.dataset import DATASETS

    dataset = copy.copy(DATASETS[name])
    members = [str(member) for member in dataset.langpairs[pair]]
    extract(archive, {member: folder / "raw" / member for member in members})
    # Its two folders are all that ties a data set to the home folder, and a list without URLs gives nothing to fetch.
    dataset._outdir, dataset._rawdir, dataset.data, dataset.md5 = str(folder), str(folder / "raw"), [], []
    files = dict(zip(dataset.fieldnames(pair), dataset.get_files(pair)))
    return dict(zip(members, (Path(files["src"]), Path(files["ref"]))))
