"""The form that starts a run."""

import re

from hubscout.serve.start import start_page
from hubscout.serve.starting import Request


def test_a_pattern_is_offered_by_what_it_stands_for() -> None:
    page = start_page([], ["timm/resnet18", "pypi/*", "file:models/*"], None, data_folder="data", csrf="")
    assert re.findall(r"<span title=[^>]*>(.*?)</span>", page) == [
        "resnet18",
        "all models matching pypi/*",
        "all models matching file:models/*",
    ]


def test_the_form_has_the_three_commands_and_the_rankings() -> None:
    asked = Request.read({"name": "new", "data": "d", "command": "tune", "teachers": "mine", "epochs": "4"})
    page = start_page(["d"], [], asked, rankings=["mine", "other"], data_folder="data", csrf="")
    assert re.findall(r'name="command" value="(\w+)"( checked)?', page) == [
        ("rank", ""),
        ("race", ""),
        ("tune", " checked"),
    ]
    assert '<option value="mine" selected>mine</option>' in page
    assert 'name="epochs" value="4"' in page
