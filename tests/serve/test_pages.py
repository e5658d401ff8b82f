"""The pages, above all the form that starts a run."""

import re

from hubscout.serve.pages import start_page
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


def test_the_form_has_the_model_to_deploy_the_method_and_the_learning_rate() -> None:
    asked = Request.read({"name": "new", "data": "d", "deploy": "timm/small", "method": "kd", "learning_rate": "1e-3"})
    page = start_page(["d"], [], asked, data_folder="data", csrf="")
    only = {words: command for command, words in re.findall(r'data-only="([\w ]+)"><span>([^<]+)', page)}
    assert (only["Model to deploy"], only["Method"], only["Learning rate"]) == ("race", "tune", "tune")
    assert 'name="deploy" value="timm/small"' in page
    assert '<option value="kd" selected>' in page
    assert 'name="learning_rate" value="1e-3"' in page
