"""The form that starts a ranking."""

from __future__ import annotations

from collections.abc import Sequence

from hubscout.report.markup import Markup, tag
from hubscout.report.names import short_names
from hubscout.serve.pages.page_frame import alert, page
from hubscout.serve.starting import Request


def start_page(
    data: Sequence[str],
    offered: Sequence[str],
    request: Request | None,
    *,
    data_folder: str,
    csrf: str,
    problem: str = "",
) -> str:
    """`request` is what was filled in before, where something was wrong with it."""
    asked = request or Request(name="", data="", models=())
    others = "\n".join(model for model in asked.models if model not in offered)
    names = [name for name in dict.fromkeys([*data, asked.data]) if name]
    chosen = [tag("option", name, value=name, selected=name == asked.data) for name in names]
    source = _field(
        "Data",
        tag("select", tag("option", "Choose …", value=""), *chosen, name="data", required=True, id="data"),
        f"Image folders with one folder per class, and tables, in {data_folder}."
        if data
        else f"No data was found in {data_folder}. Start the server with --data FOLDER.",
    )
    form = tag(
        "form",
        tag("input", type="hidden", name="csrf", value=csrf),
        source,
        _models(offered, asked.models),
        _field(
            "Other models, one per line",
            tag("textarea", others, name="models", rows=3, placeholder="timm/resnet50.a1_in1k", spellcheck="false"),
            "Identifiers or patterns of a hub, such as timm/mobilenetv3*. Models that are not here yet are downloaded.",
        ),
        _field(
            "Name of the run",
            tag("input", type="text", name="name", value=asked.name, required=True, autocomplete="off", id="name"),
            "The run is saved in a folder of this name.",
        ),
        tag(
            "details",
            tag("summary", "More options"),
            tag(
                "div",
                _field(
                    "Metrics",
                    _text("metrics", asked.metrics),
                    "Joined by commas; the first one orders the models: logme,knn",
                ),
                _field(
                    "Number of samples",
                    _text("limit", asked.limit),
                    "Rank on a stratified subset of this size, such as 2k.",
                ),
                _field("Label column", _text("label", asked.label), "For tables, if it cannot be found by itself."),
                _field("Text column", _text("text", asked.text), ""),
                _field("Image column", _text("image", asked.image), ""),
                class_="fields",
            ),
            open=bool(asked.limit or asked.label or asked.text or asked.image),
        ),
        tag("p", tag("button", "Start", type="submit", class_="button first"), class_="actions"),
        method="post",
        action="/start",
        class_="form",
    )
    content = tag("section", alert(problem) if problem else "", form, class_="close")
    return page("Start a ranking", content, at="/start")


def is_pattern(model: str) -> bool:
    """Whether an offer stands for several models.

    >>> is_pattern("timm/mobilenetv3*"), is_pattern("timm/resnet50?pooling=*")
    (True, False)
    """
    return bool(set(model.partition("?")[0]) & set("*["))


def _models(offered: Sequence[str], chosen: Sequence[str]) -> Markup:
    patterns = [model for model in offered if is_pattern(model)]
    models = [model for model in offered if model not in patterns]
    shown = dict(zip(models, short_names(models), strict=True))
    shown |= {pattern: f"all models matching {pattern}" for pattern in patterns}
    boxes = [
        tag(
            "label",
            tag("input", type="checkbox", name="models", value=model, checked=model in chosen),
            tag("span", words, title=model),
        )
        for model, words in shown.items()
    ]
    return tag("fieldset", tag("legend", "Models"), *boxes, class_="choices") if boxes else Markup("")


def _field(label: str, control: Markup, hint: str) -> Markup:
    return tag("label", tag("span", label), control, tag("small", hint) if hint else "", class_="field")


def _text(name: str, value: str) -> Markup:
    return tag("input", type="text", name=name, value=value, autocomplete="off")
