"""The form that starts a ranking, a race or a tuning."""

from __future__ import annotations

from collections.abc import Sequence

from hubscout.report.markup import Markup, tag
from hubscout.runs.texts import short_names
from hubscout.serve.pages import alert, page
from hubscout.serve.starting import METHODS, TEACHERS, Request, is_pattern

CHOICES = (
    ("rank", "Rank", "Which of these models explains the labels best? Minutes, without training."),
    ("race", "Race", "Which will be best once tuned? Ends with that model, tuned, within a budget of time."),
    ("tune", "Tune", "Tune one model; the best models of a ranking can teach it."),
)
"""The commands, what they are called and what they are for."""


def start_page(
    data: Sequence[str],
    offered: Sequence[str],
    request: Request | None,
    *,
    rankings: Sequence[str] = (),
    data_folder: str,
    csrf: str,
    problem: str = "",
) -> str:
    """`request` is what was filled in before, where something was wrong with it; `rankings` are runs with teachers."""
    asked = request or Request(name="", data="", models=())
    others = "\n".join(model for model in asked.models if model not in offered)
    names = [name for name in dict.fromkeys([*data, asked.data]) if name]
    found = f"Image folders with one folder per class, and tables, in {data_folder}."
    nothing = f"No data was found in {data_folder}. Start the server with --data FOLDER."

    def text(name: str, label: str, hint: str, only: str | None = None, **more: object) -> Markup:
        control = tag("input", type="text", name=name, value=getattr(asked, name), autocomplete="off", **more)
        return _field(label, control, hint, only=only)

    options = [
        text("metrics", "Metrics", "Joined by commas; the first one orders the models: logme,knn", "rank"),
        text(
            "limit",
            "Number of samples",
            "Use a stratified subset of the training samples of this size, such as 2k.",
            "rank tune",
        ),
        text("label", "Label column", "For tables, if it cannot be found by itself."),
        text("text", "Text column", ""),
        text("image", "Image column", ""),
    ]
    form = tag(
        "form",
        tag("input", type="hidden", name="csrf", value=csrf),
        _commands(asked.command),
        _field("Data", _select("data", "Choose …", names, asked.data, required=True), found if data else nothing),
        _models(offered, asked.models),
        _field(
            "Other models, one per line",
            tag("textarea", others, name="models", rows=3, placeholder="timm/resnet50.a1_in1k", spellcheck="false"),
            "Identifiers or patterns of a hub, such as timm/mobilenetv3*; one identifier to tune. Models that are not "
            "here yet are downloaded.",
        ),
        text(
            "deploy",
            "Model to deploy",
            "Tuned last, with the winners as its teachers (B-Tuning). Leave it empty to deploy the winner.",
            "race",
            placeholder="timm/mobilenetv3_small_100.lamb_in1k",
        ),
        _field(
            "Teachers",
            _select("teachers", "None: plain fine-tuning", rankings, asked.teachers),
            f"The best {TEACHERS} models of this ranking teach (B-Tuning).",
            only="tune",
        ),
        _field(
            "Method",
            _select("method", "Automatic", METHODS, asked.method),
            "Automatic is b-tuning with teachers and fine-tune without. The others need teachers; “all” compares "
            "the methods over several seeds.",
            only="tune",
        ),
        text(
            "learning_rate",
            "Learning rate",
            "Of the backbone, such as 0.001; hubscout's choice if empty.",
            "tune",
        ),
        text(
            "epochs",
            "Epochs",
            "Passes over the training samples, instead of a budget of time; 20 if both are empty.",
            "tune",
        ),
        text(
            "budget",
            "Budget",
            "Time for everything, such as 30min or 2h. Without one, a run continues until it is done.",
        ),
        text("name", "Name of the run", "The run is saved in a folder of this name.", required=True, id="name"),
        tag(
            "details",
            tag("summary", "More options"),
            tag("div", *options, class_="fields"),
            open=bool(asked.limit or asked.label or asked.text or asked.image),
        ),
        tag("p", tag("button", "Start", type="submit", class_="button first"), class_="actions"),
        method="post",
        action="/start",
        class_="form",
    )
    content = tag("section", alert(problem) if problem else "", form, class_="close")
    return page("Start a run", content, at="/start")


def _commands(chosen: str) -> Markup:
    """The choice of what to do. The style sheet hides the fields that the chosen command does not have."""
    buttons = [
        tag(
            "label",
            tag("input", type="radio", name="command", value=command, checked=command == chosen),
            tag("span", tag("strong", words), tag("small", hint)),
        )
        for command, words, hint in CHOICES
    ]
    return tag("fieldset", tag("legend", "What to do", class_="unseen"), *buttons, class_="commands")


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


def _field(label: str, control: Markup, hint: str, *, only: str | None = None) -> Markup:
    """A control with its label; `only` names the commands that have it, where not all do."""
    words = tag("small", hint) if hint else ""
    return tag("label", tag("span", label), control, words, class_="field", data_only=only)


def _select(name: str, nothing: str, values: Sequence[str], chosen: str, *, required: bool = False) -> Markup:
    options = [tag("option", value, value=value, selected=value == chosen) for value in values]
    return tag("select", tag("option", nothing, value=""), *options, name=name, required=required, id=name)
