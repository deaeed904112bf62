"""List every string that people see: python docs/strings.py [--doubtful] [PATH ...].

Help, errors, warnings, notes, captions, and docstrings of public names, of all modules or those under PATH,
each with its place. ``--doubtful`` lists those with words that read badly, and what to write instead.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1] / "texseg"
BETTER = {
    r"\basked\b": "requested",
    r"\bleft out\b": "skipped",
    r"\b(is|are) taken\b": "used",
    r"\bmakes? no sense\b": "is invalid",
    r"\bwritten over\b": "overwritten",
    r"\btold apart\b": "distinguished",
    r"\bknows? no\b": "has no",
    r"\bbeside\b": "next to, or together with",
    r"(?<!there )\b(is|are) no (?!data|longer)[a-z]": "is not a",
    r"\b(is|are) there\b": "exists",
    r"\bflat ground\b": "flat background",
}
"""Words to avoid, and better ones."""


class Seen(NamedTuple):
    """A string that people see."""

    place: str
    text: str


def strings(path: Path) -> Iterator[Seen]:
    """Yield the strings of a module that read like sentences, f-strings with ``{...}`` for their values."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden, inside = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            first = node.body[0] if node.body else None
            is_private = isinstance(node, ast.Module) or node.name.startswith("_")
            if is_private and isinstance(first, ast.Expr):
                hidden.add(first.value)
        if isinstance(node, ast.JoinedStr):
            inside.update(ast.walk(node))
            inside.remove(node)
    for node in ast.walk(tree):
        if node in hidden or node in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{...}" for part in node.values]
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if re.search(r"[a-z]{2,} \S+ [a-z({]", text):
            yield Seen(f"{path.relative_to(ROOT.parent)}:{node.lineno}", " ".join(text.split()))


def page_strings(path: Path) -> Iterator[Seen]:
    """Yield the texts of a page of the report, or of its script."""
    pattern = r">([^<>{}]{8,})<|title=\"([^\"]+)\"|[\"`]([A-Z][^\"`\n]{8,})[\"`]"
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        for found in re.finditer(pattern, line):
            text = next(filter(None, found.groups())).strip()
            if " " in text:
                yield Seen(f"{path.relative_to(ROOT.parent)}:{number}", text)


def main(arguments: list[str] | None = None) -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--doubtful", action="store_true", help="only strings with words that read badly")
    options = parser.parse_args(arguments)
    for top in map(Path.resolve, options.paths):
        for path in sorted([top] if top.is_file() else top.rglob("*")):
            found = strings(path) if path.suffix == ".py" else ()
            if path.suffix in (".html", ".js"):
                found = page_strings(path)
            for place, text in found:
                better = [f"{mark} -> {word}" for mark, word in BETTER.items() if re.search(mark, text)]
                if better or not options.doubtful:
                    print(f"{place}: {text}" + (f"\n    {'; '.join(better)}" if options.doubtful else ""))


if __name__ == "__main__":
    main()
