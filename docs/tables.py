"""Write the tables that pages take from the code: published figures into `docs/install.md`,
`docs/cost-measured.md`, `docs/plan.md` and `docs/plan-model.md`, names of version 0.1 into
`docs/glossary.md`, requirements of exercises into `docs/requirements.md`; and what the commands
print that `docs/plan.md` shows.

python docs/tables.py [FOLDER]

Each page has its tables between two comments; both languages are written.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
import tomllib
import unittest.mock
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.common.files import write_bytes
from dualml.common.former_members import FORMER_MEMBERS
from dualml.common.former_paths import BACKEND, CORE
from dualml.common.words import LANGUAGES, Messages, numbers
from dualml.course.labs import LABS, load_lab
from dualml.experiment.keys import RENAMED_KEYS
from dualml.interface.doctor.fit import published_releases as releases
from dualml.report import published as collective_tables
from dualml.report.blocks import Cells, Column, Table
from dualml.report.draw import standalone
from dualml.report.page.markdown import replace_between
from dualml.report.page.markdown import table as markdown
from dualml.report.plan import published as plan_tables

DOCS = Path(__file__).resolve().parent
#: Results of `benchmarks/planner/run.py`, the newest first.
BENCHMARK, RESULTS = DOCS.parent / "benchmarks" / "planner", ("after.json", "before.json")
#: Module of version 0.1 → its public names.
PUBLIC_0_1 = DOCS.parent / "tests" / "core" / "public_0_1.toml"
#: Table of releases → its columns, with the field of a row if its name differs.
RELEASES: Mapping[str, Mapping[str, str]] = {
    "torch": {"torch": "version", "torchvision": "", "python": "", "cuda": "", "sources": ""},
    "cuda": {
        "cuda": "version",
        "driver": "",
        "toolkit_driver": "",
        "capability": "",
        "sources": "",
    },
    "mindspore": {"mindspore": "version", "python": "", "cann": "", "hdk": "driver", "sources": ""},
}


@dataclass(frozen=True)
class Page:
    """A page with a block of tables.

    Attributes:
        mark: name in the two comments around the block.
        render: language → the block without the comments.
    """

    mark: str
    render: Callable[[str], str]

    @property
    def begin(self) -> str:
        return f"<!-- {self.mark}: begin -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.mark}: end -->"


def render_tables(tables: Iterator[Table]) -> str:
    """Render tables in Markdown, one after the other."""
    return "\n\n".join(f"**{table.caption}**\n\n{markdown(table)}" for table in tables)


def read_texts(lang: str) -> dict[str, Any]:
    """Return the texts of the site in ``lang``."""
    return tomllib.loads((DOCS / "_words" / f"{lang}.toml").read_text("utf-8"))


def render_releases(lang: str) -> str:
    """Render which releases of PyTorch, CUDA, MindSpore and CANN fit together, with sources."""
    texts = read_texts(lang)["combinations"]
    sources = [
        f"- `{name}`: " + texts["source"].format(**row)
        for name, row in releases()["sources"].items()
    ]
    shown = [render_tables(release_tables(texts)), f"**{texts['sources']}**", "\n".join(sources)]
    return "\n\n".join(shown)


def release_tables(texts: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of framework releases."""
    for name, columns in RELEASES.items():
        heads = [Column(key, texts["column"][key]) for key in columns]
        rows: list[Cells] = [
            [render_cell(row.get(field or key)) for key, field in columns.items()]
            for row in releases()[name]
        ]
        yield Table(name, texts["table"][name], heads, rows)


def render_cell(value: Any) -> str:
    if value is None:
        return numbers.NO_VALUE
    return ", ".join(value) if isinstance(value, list) else str(value)


def render_collectives(lang: str) -> str:
    """Render published all-reduces beside the cost model's predictions, with their figure."""
    words = Messages(lang)
    figure = (
        f"![{words('published.figure_alt')}]({figure_name(lang)})\n\n{words('published.figure')}"
    )
    return f"{figure}\n\n{render_tables(collective_tables.tables(words))}"


def figure_name(lang: str) -> str:
    return f"cost-published{'' if lang == 'en' else '.' + lang}.svg"


def render_plans(lang: str) -> str:
    """Render published training runs beside the planner's predictions."""
    return render_tables(plan_tables.tables(Messages(lang)))


def render_accuracy(lang: str) -> str:
    """Render the errors of the planner for published runs that nothing was fitted to, by kind of
    training and by device, worst first, from the latest result of `benchmarks/planner/run.py`."""
    texts = read_texts(lang)["accuracy"]
    result = json.loads(latest_result().read_text("utf-8"))
    half = result["held_out"]
    groups = {"all": half["all"], **half["by_family"]}
    columns = texts["column"]
    lines = [f"| {' | '.join(columns.values())} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
    for name, group in groups.items():
        if group["time"] is None and group["memory"] is None and not group["unpriced"]:
            continue
        ooms = f"{group['called_fitting']} / {group['out_of_memory']}"
        cells = [
            texts["family"].get(name, name),
            *error_cells(group["time"]),
            *error_cells(group["memory"]),
            ooms if group["out_of_memory"] else numbers.NO_VALUE,
            str(group["unpriced"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    devices = texts["device"]
    by_device = [f"| {' | '.join(devices.values())} |", f"| --- |{' ---: |' * (len(devices) - 1)}"]
    for name, group in half["by_device"].items():
        if (errors := group["time"]) is not None:
            signs = [plan_tables.format_signed_percent(errors[key]) for key in ("bias", "worst")]
            cells = [name, *error_cells(errors)[:2], *signs]
            by_device.append(f"| {' | '.join(cells)} |")
    counts = texts["counts"].format(**result["count"])
    trust = texts["trust"].format(**summarize_errors(half))
    return "\n".join([trust, "", counts, "", *lines, "", *by_device])


def summarize_errors(half: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors that decide whether a plan can be relied on, as texts."""
    every, experts = half["all"], half["by_family"]["mixture of experts"]
    time, memory, moe = every["time"], every["memory"], experts["time"]
    return {
        "memory": numbers.percent(memory["median"]),
        "memory_worst": plan_tables.format_signed_percent(memory["worst"]),
        "memory_bias": plan_tables.format_signed_percent(memory["bias"]),
        "time": numbers.percent(time["median"]),
        "moe": numbers.percent(moe["median"]),
        "moe_worst": plan_tables.format_signed_percent(moe["worst"]),
        "fitting": str(every["called_fitting"]),
        "out": str(every["out_of_memory"]),
    }


def latest_result() -> Path:
    """Return the newest of the results of the benchmark that there are."""
    return next(path for path in map(BENCHMARK.joinpath, RESULTS) if path.exists())


def error_cells(errors: Mapping[str, float] | None) -> list[str]:
    """Return number, median, 90th percentile and worst of relative errors as texts."""
    if errors is None:
        return ["0", *[numbers.NO_VALUE] * 3]
    shares = [numbers.percent(errors[key]) for key in ("median", "p90")]
    return [str(errors["rows"]), *shares, plan_tables.format_signed_percent(errors["worst"])]


def run_examples(text: str) -> str:
    """Return a page with what its examples, blocks that begin with ``$ dualml plan``, print now."""

    def replace_block(match: re.Match[str]) -> str:
        return f"```text\n$ dualml {match[1]}\n{print_plan(match[1])}\n```"

    return re.sub(r"```text\n\$ dualml (plan .*)\n[^`]*```", replace_block, text)


def print_plan(arguments: str) -> str:
    """Return what a command of dualml prints on a terminal of 110 columns, without spaces at the
    ends of lines."""
    from dualml.interface.cli.app import app

    printed = io.StringIO()
    with unittest.mock.patch.dict("os.environ", COLUMNS="110"), redirect_stdout(printed):
        app(arguments.split(), standalone_mode=False)
    return "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())


def render_former_names(lang: str) -> str:
    """Render the modules, names, members and keys of version 0.1 beside the present ones."""
    texts = read_texts(lang)["former"]
    tables = (
        ("modules", ("former", "now"), former_modules()),
        ("names", ("former", "now"), former_public_names()),
        ("members", ("class", "renamed"), former_members()),
        ("keys", ("key", "now", "values"), former_keys()),
    )
    blocks = []
    for name, columns, rows in tables:
        head = [texts["column"][key] for key in columns]
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
        blocks.append("\n".join([f"**{texts['table'][name]}**", "", *lines]))
    return "\n\n".join(blocks)


def former_modules() -> Iterator[list[str]]:
    """Yield former and present path of each public module; those of the backends are the same."""
    for package, moved in (("dualml", CORE), ("dualml_torch", BACKEND)):
        for former, present in moved.items():
            yield [f"`{package}.{former}`", f"`{package}.{present}`"]


def former_public_names() -> Iterator[list[str]]:
    """Yield former and present name of each renamed object in the core's public modules."""
    for former, names in tomllib.loads(PUBLIC_0_1.read_text("utf-8")).items():
        if former.partition(".")[0] != "dualml":
            continue  # the backends renamed none, and need their frameworks
        module = importlib.import_module(former)
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                thing = getattr(module, name)
            if name not in vars(module):
                keys = (key for key, value in vars(module).items() if value is thing)
                present = next(keys, getattr(thing, "__name__", name))
                if present != name:  # else the module imports it when it is asked for
                    yield [f"`{former}.{name}`", f"`{module.__name__}.{present}`"]


def former_members() -> Iterator[list[str]]:
    """Yield each class with its renamed members: former → present name."""
    for path, members in FORMER_MEMBERS.items():
        package, _, name = path.partition(".")[0], *path.rpartition(".")[1:]
        shown = f"`{name}`" if package == "dualml" else f"`{name}` ({package})"
        yield [shown, ", ".join(f"`{old}` → `{new}`" for old, new in members.items())]


def former_keys() -> Iterator[list[str]]:
    """Yield each renamed key of experiment files with its place and its renamed values."""
    for key in RENAMED_KEYS:
        place = [part.replace("*", "NAME") for part in key.place]
        values = {str(old).lower(): new for new, old in key.values.items()}
        yield [
            f"`{'.'.join([*place, key.stored])}`",
            f"`{key.present}`",
            ", ".join(f"`{old}` → `{new}`" for old, new in values.items()),
        ]


def render_requirements(lang: str) -> str:
    """Render a table for each lab's exercises: every requirement with the file, and the class or
    function, that it concerns, and its text on the student's page."""
    texts, words = read_texts(lang)["requirements"], Messages(lang)
    blocks = []
    for lab in LABS:
        rows: dict[tuple[str, str], list[str]] = {}  # files of both frameworks share a row
        for file in load_lab(lab).files:
            for requirement in file.requirements:
                key = requirement.target, requirement.name
                rows.setdefault(key, []).append(f"`{file.name}`")
        head = [texts["column"][key] for key in ("name", "target", "text", "files")]
        lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
        targets = list(dict.fromkeys(target for target, _ in rows))
        for (target, name), files in sorted(rows.items(), key=lambda r: targets.index(r[0][0])):
            text = words(f"requirement.{name}").replace("|", "\\|")
            lines.append(f"| `{name}` | `{target}` | {text} | {', '.join(files)} |")
        blocks.append("\n".join([f"## {texts['lab'][lab]}", "", *lines]))
    return "\n\n".join(blocks)


PAGES = {
    "requirements": Page("requirements", render_requirements),
    "glossary": Page("names", render_former_names),
    "install": Page("combinations", render_releases),
    "cost-measured": Page("published", render_collectives),
    "plan": Page("accuracy", render_accuracy),
    "plan-model": Page("tables", render_plans),
}


def page_path(name: str, lang: str, folder: Path = DOCS) -> Path:
    return folder / (f"{name}.md" if lang == "en" else f"{name}.{lang}.md")


def with_tables(text: str, name: str, lang: str) -> str:
    """Return the text of a page with its tables as they are now.

    Raises:
        UserError: the page lacks the comments around them.
    """
    page = PAGES[name]
    block = "\n\n".join([page.begin, page.render(lang), page.end])
    return replace_between(text, page.begin, page.end, block)


def write_tables(folder: Path) -> None:
    """Write every page's tables, and the figure of `docs/cost-measured.md`, in both languages."""
    for lang in LANGUAGES:
        for name in PAGES:
            path = page_path(name, lang, folder)
            text = with_tables(path.read_text("utf-8"), name, lang)
            write_bytes(path, (run_examples(text) if name == "plan" else text).encode())
        figure = standalone(collective_tables.figure(Messages(lang)))
        write_bytes(folder / figure_name(lang), figure.encode())


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
