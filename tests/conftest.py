"""Settings of the whole suite."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# A busy machine is slow now and then: that is no property of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory, monkeypatch):
    """No test reads or writes the cache of the person who runs it."""
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path_factory.getbasetemp() / "feature-cache"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, headless; tests that ask for it are skipped where there is none. One for all folders of tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no browser: install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
                  "--disable-sync", "--no-first-run"],
        )  # fmt: skip
        yield opened
        opened.close()
