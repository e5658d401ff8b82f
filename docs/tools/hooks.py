"""Pages that are made while the site is built, from registries, docstrings and the command line itself.

Nothing of what they say is written down twice: a new metric or method has its page as soon as it is registered.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from command_pages import command_pages
from links import for_the_site
from notebook import make_notebook

OPTIONAL = {"Scale": "scale.md", "Reliability": "reliability.md"}
"""Pages that join the menu where they are there."""

_INLINE_CODE = re.compile(r"<code>[^<]+</code>")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_TEST = re.compile(r"(?<=<code>)tests/[^<\s]+::\w+(?=</code>)")

MORE = {
    "tasks": [
        f"hubscout.tasks.{module}.{name}"
        for module, name in {
            "image_folders": "from_image_folder",
            "tables": "from_table",
            "conll": "from_conll",
            "hf": "from_hf",
            "array_tasks": "from_arrays",
        }.items()
    ],
    "ranking": ["hubscout.runs.paired_comparison.compare"],
    "tuning": ["hubscout.tuning.teacher_answers.mixing_weights"],
}
"""Functions that the docstrings point to and that are no public names."""

_TITLES = {
    "tasks": "Tasks: labelled data",
    "hubs": "Hubs: where models come from",
    "features": "Features: one pass, cached",
    "evidence": "Evidence: the mathematics",
    "metrics": "Metrics: the registry",
    "ranking": "Ranking",
    "tuning": "Tuning",
    "racing": "Race",
    "checking": "Checking: a look at the data first",
    "evaluation": "Evaluation: is a ranking any good",
    "engines": "Engines: where the work runs",
    "report": "Report",
    "errors": "Errors",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made here into the menu."""
    nav: list[Any] = list(config.nav or [])
    home = Path(config.docs_dir)
    nav += [
        {"Metrics": ["metrics/index.md", *({name: f"metrics/{name}.md"} for name in _metrics())]},
        {"Tuning methods": ["methods/index.md", *({name: f"methods/{name}.md"} for name in _methods())]},
        {
            "Reference": [
                {"Command line": "reference/commands.md"},
                *({_TITLES[name].partition(":")[0]: f"reference/{name}.md"} for name in _TITLES),
            ]
        },
    ]
    running = [{title: page} for title, page in OPTIONAL.items() if (home / page).is_file()]
    if running:
        nav.append({"In practice": running})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Write the pages."""
    import nbformat

    pages = {**metric_pages(), **method_pages(), **reference_pages(), "reference/commands.md": command_pages()}
    for address, content in pages.items():
        files.append(File.generated(config, address, content=content))
    for figure in sorted((Path(config.docs_dir).parent / "experiments").glob("*/*.png")):
        address = f"figures/{figure.parent.name}-{figure.name}"
        files.append(File.generated(config, address, abs_src_path=str(figure)))
    tutorial = make_notebook(Path(config.docs_dir) / "tutorial.md")
    files.append(File.generated(config, "tutorial.ipynb", content=nbformat.writes(tutorial)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files of the repository become links to pages of the site."""
    return for_the_site(markdown, f"docs/{page.file.src_uri}")


def on_page_content(html: str, **_: Any) -> str:
    """Where a line may break in code: not in an option (`assets/wide.css`), but between the parts of a test's name."""
    html = _TEST.sub(lambda name: re.sub("/|::|_", r"\g<0><wbr>", name[0]), html)
    return _INLINE_CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def metric_pages() -> dict[str, str]:
    """One page per metric and a table of all."""
    metrics = _metrics()
    pages = {}
    rows = []
    for name, metric in metrics.items():
        kinds = ", ".join(metric.kinds)
        rows.append(f"| [`{name}`]({name}.md) | {metric.summary} | {', '.join(metric.needs)} | {kinds} |")
        function = metric.function
        level = (
            "It scores one model at a time."
            if metric.level == "model"
            else "It compares the models of a zoo: its values change with the company, and one model alone has none."
        )
        pages[f"metrics/{name}.md"] = (
            f"# {name}\n\n"
            f"Needs: {', '.join(metric.needs)}. Kinds of task: {kinds}. {level} "
            f"{'Higher' if metric.higher_is_better else 'Lower'} is better.\n\n"
            f"    hubscout rank DATA -m MODELS --metrics {name}\n\n"
            f"::: {function.__module__}.{function.__qualname__}\n"
            "    options:\n      show_root_full_path: true\n"
        )
    pages["metrics/index.md"] = (
        "# Metrics\n\n"
        "Every metric looks at what a frozen model gives for your train split and says how good a start the model "
        "would be. `--metrics logme,knn` computes several from one pass; the first one orders the models. Most are "
        "for classes; the table says which serve other labels. [Why LogME](../explanation/why-logme.md) says why it "
        "is the default.\n\n"
        "| metric | what it is | needs | kinds of task |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "`statistics` are sums over the data that are kept while a model runs: such a metric needs no features in "
        "memory or on disk. `logits` are the outputs of the model's source head, which not every model has. `card` is "
        "what the hub says of the model: such a score never looks at your data, and stands there to be beaten.\n"
    )
    return pages


def method_pages() -> dict[str, str]:
    """One page a tuning method and a table of all."""
    import inspect

    pages = {}
    rows = []
    for name, method in _methods().items():
        summary = (inspect.getdoc(method) or "").partition("\n")[0]
        rows.append(f"| [`{name}`]({name}.md) | {summary} | {'yes' if method.uses_teachers else 'no'} |")
        pages[f"methods/{name}.md"] = (
            f"# {name}\n\n"
            f"    hubscout tune DATA --model MODEL --method {name}"
            f"{' --teachers RUN/' if method.uses_teachers else ''} --out my-model/\n\n"
            f"::: {method.__module__}.{method.__qualname__}\n"
            "    options:\n      members: false\n      show_root_full_path: true\n      show_bases: false\n"
        )
    pages["methods/index.md"] = (
        "# Tuning methods\n\n"
        "All have the same interface: `hubscout.tune(task, model, teachers, method=...)`. "
        "[B-Tuning](../explanation/b-tuning.md) says what the default does and why; "
        "`--method all` compares them on your data.\n\n"
        "| method | what it is | teachers |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "Beside any of them: L2-SP (`l2_sp`), batch spectral shrinkage (`bss`), LoRA (`lora_rank`), a head that starts "
        "from the posterior (`head_init`), frozen layers (`freeze`). These are fields of "
        "[`TuningArguments`](../reference/tuning.md).\n"
    )
    return pages


def reference_pages() -> dict[str, str]:
    """One page per folder of the package, from its `__all__`."""
    import importlib

    pages = {}
    for name, title in _TITLES.items():
        module = importlib.import_module(f"hubscout.{name}")
        text = f"# {title}\n\n{_folder_says(module)}\n\n"
        members = getattr(module, "__all__", None)
        if members is None:
            text += f"::: hubscout.{name}\n    options:\n      show_root_heading: false\n"
        else:
            shown = [_home(module, member) for member in _in_order(module, members)]
            text += "\n\n".join(f"::: {place}" for place in (*shown, *MORE.get(name, ())))
        pages[f"reference/{name}.md"] = text + "\n"
    return pages


def _folder_says(module: Any) -> str:
    return (module.__doc__ or "").strip() if hasattr(module, "__path__") else ""


def _in_order(module: Any, members: list[str]) -> list[str]:
    """What has a docstring of its own: functions first, since they are what one calls."""
    found = [member for member in members if callable(getattr(module, member))]
    return sorted(found, key=lambda member: isinstance(getattr(module, member), type))


def _home(module: Any, member: str) -> str:
    """Where a public name is defined: lazily imported ones cannot be followed without running the code."""
    value = getattr(module, member)
    return (
        f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else f"{module.__name__}.{member}"
    )


def _metrics() -> dict[str, Any]:
    from hubscout.metrics import METRICS

    return {name: METRICS[name] for name in METRICS if METRICS[name].function.__module__.startswith("hubscout.")}


def _methods() -> dict[str, Any]:
    from hubscout.tuning import METHODS

    return {name: METHODS[name] for name in METHODS if METHODS[name].__module__.startswith("hubscout.")}
