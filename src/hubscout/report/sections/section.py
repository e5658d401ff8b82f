"""One part of the page."""

from __future__ import annotations

from dataclasses import dataclass

from hubscout.report.markup import Markup, tag

TAU = Markup("τ<sub>w</sub>")
"""The weighted rank correlation, as it is set."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page with its heading; `anchor` is its address, `short` its name in the menu."""

    anchor: str
    title: str
    body: Markup
    short: str = ""
    lead: object = ""

    def __str__(self) -> str:
        """The part as HTML."""
        return tag(
            "section",
            tag("h2", self.title, id=f"{self.anchor}-title"),
            tag("p", self.lead, class_="lead") if self.lead else "",
            self.body,
            id=self.anchor,
            aria_labelledby=f"{self.anchor}-title",
        )


def switch(name: str, legend: str, choices: list[tuple[str, str]], panels: list[Markup]) -> Markup:
    """Radio buttons of which each shows one of the panels. `choices` are (value, words); the first is shown.

    Without the page's script all panels are shown one after another.
    """
    buttons = [
        tag(
            "label",
            tag("input", type="radio", name=name, value=value, checked=index == 0),
            tag("span", words),
        )
        for index, (value, words) in enumerate(choices)
    ]
    return tag(
        "div",
        tag("fieldset", tag("legend", legend), *buttons, class_="switch") if len(choices) > 1 else "",
        *(
            tag("div", panel, class_="panel", data_panel=value, data_of=name)
            for (value, _), panel in zip(choices, panels, strict=True)
        ),
        class_="switched",
        data_switch=name,
    )


def selector(name: str, label: str, choices: list[tuple[str, str]], panels: list[Markup]) -> Markup:
    """The same with a drop-down list, for many choices."""
    options = [tag("option", words, value=value) for value, words in choices]
    return tag(
        "div",
        tag("label", label, " ", tag("select", *options, name=name), class_="select") if len(choices) > 1 else "",
        *(
            tag("div", panel, class_="panel", data_panel=value, data_of=name)
            for (value, _), panel in zip(choices, panels, strict=True)
        ),
        class_="switched",
        data_switch=name,
    )


def copyable(command: str, label: str = "Command") -> Markup:
    """A command with a button that copies it."""
    return tag(
        "div",
        tag("code", command),
        tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy the command: {label}"),
        class_="command",
    )
