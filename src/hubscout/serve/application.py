"""The application: pages for people, a small JSON interface for programs.

| request | gives |
|---|---|
| `GET /api/session` | `{"csrf": …, "version": …}`: requests that change something bring `csrf` as `X-CSRF-Token` |
| `GET /api/runs?q=WORDS` | `{"runs": [summary, …]}`, the latest first; see `hubscout.serve.summary.Summary` |
| `GET /api/runs/NAME` | a summary, with `ranking` as in `ranking.json` where the run has one |
| `GET /compare.csv?run=A&run=B` | runs in one table: results and settings, sorted by task, metric and score |
| `GET /api/events/NAME` | server-sent events: `line` (`{"file", "line"}`) for every line of `events.jsonl` or |
|  | `metrics.jsonl`, old ones first; `reset` where the run began anew; `end` (`{"state"}`) when it is over |
| `POST /api/runs` | start: JSON `{"name", "data", "models": […]}`, and if wanted `command` (`rank`, `race`, `tune`), |
|  | `label`, `text`, `image`, `limit`, `metrics`, `budget`, `deploy`, `method`, `learning_rate`, `epochs`, as for |
|  | the command line; `teachers` is the name of a run with a ranking; 201 with the summary |
| `POST /api/stop/NAME` | interrupt a run that was started here, as Ctrl-C does; `{"force": true}` kills it |

Errors are `{"error": …}` with status 401 (token), 403 (not from our page), 404 (no such run), 422 (bad request).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from hubscout import __version__
from hubscout.errors import HubscoutError, InputError, one_line
from hubscout.report.page import policy as report_policy
from hubscout.serve.compare import compare_page, table_page
from hubscout.serve.pages import address, assets, listing_page, page, rows, start_page
from hubscout.serve.run_facts import Result, as_csv, results, sorted_results
from hubscout.serve.security import Guard, Protect
from hubscout.serve.served_folder import NotHereError
from hubscout.serve.server import Site
from hubscout.serve.starting import Request as Wanted
from hubscout.serve.streams import lines_stream, panel_stream, strict_json

MOST_BYTES = 1 << 16
MOST_COMPARED = 100


class Answer(JSONResponse):
    """JSON of what a run holds, which may be anything."""

    def render(self, content: Any) -> bytes:
        return strict_json(content).encode("ascii")


def create_app(site: Site) -> FastAPI:
    """The ASGI application of a site."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title="hubscout")
    app.add_middleware(
        Protect,
        guard=site.guard,
        refuse=lambda status, reason, scope: _refuse(scope["path"], status, "Not allowed", reason),
    )
    _handle_errors(app)
    _add_pages(app, site)
    _add_interface(app, site)
    return app


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    @app.exception_handler(HubscoutError)
    @app.exception_handler(OSError)
    async def failed(request: Request, error: Exception) -> Any:
        status, title, reason = 422, "That did not work", one_line(error)
        if isinstance(error, NotHereError):
            status, title = 404, "Not found"
        elif isinstance(error, HTTPException):
            status, reason = error.status_code, error.detail
            title = "Not found" if status == 404 else "Error"
        elif isinstance(error, OSError):
            status, reason = 500, error.strerror or type(error).__name__
        return _refuse(request.url.path, status, title, reason)


def _refuse(path: str, status: int, title: str, reason: str) -> Any:
    if path.startswith("/api/"):
        return Answer({"error": reason}, status)
    shown = page("login.html", "Token", wrong=False) if status == 401 else page("message.html", title, message=reason)
    return HTMLResponse(shown, status)


async def _read(request: Request, guard: Guard, *, csrf: bool = True) -> dict[str, Any]:
    """The fields of a form or a JSON object. Everything that changes something reads its request through here."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise HTTPException(413, "The request is too long.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    try:
        if kind == "application/json":
            fields = json.loads(body or b"{}")
        else:
            lists = parse_qs(body.decode(), keep_blank_values=True)
            fields = {key: values if key == "models" else values[-1] for key, values in lists.items()}
    except ValueError:
        raise InputError("The request is neither a form nor JSON.") from None
    if not isinstance(fields, dict):
        raise InputError("The request must be a JSON object.")
    if csrf and not guard.is_csrf(str(request.headers.get("x-csrf-token") or fields.get("csrf") or "")):
        raise HTTPException(403, "The page is out of date, or the request came from another site. Reload the page.")
    return fields


def _add_pages(app: FastAPI, site: Site) -> None:
    library, guard = site.library, site.guard
    files, form = assets(), partial(start_page, site.starter, csrf=guard.csrf)

    def enter() -> Response:
        answer = RedirectResponse("/", 303)
        answer.set_cookie(guard.cookie_name, guard.cookie, httponly=True, samesite="strict", path="/")
        return answer

    @app.get("/")
    def list_runs(q: str = "", token: str = "") -> Response:
        if token and guard.is_token(token):
            return enter()
        return HTMLResponse(listing_page(library.summaries(q), q, site.shown))

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        fields = await _read(request, guard, csrf=False)
        if guard.token is None or guard.is_token(str(fields.get("token") or "")):
            return enter()
        return HTMLResponse(page("login.html", "Token", wrong=True), 401)

    @app.get("/rows")
    def list_rows(q: str = "") -> Response:
        return HTMLResponse(str(rows(library.summaries(q))))

    @app.get("/assets/{name}")
    def give_asset(name: str) -> Response:
        if name not in files:
            raise NotHereError
        kind, content = files[name]
        return Response(content, media_type=kind)

    @app.get("/run/{name:path}")
    def show_run(name: str) -> Response:
        return HTMLResponse(site.run_page(name))

    @app.get("/report/{name:path}")
    def show_report(name: str) -> Response:
        policy = f"{report_policy()}; frame-ancestors 'none'"
        return HTMLResponse(library.report(name), headers={"Content-Security-Policy": policy})

    @app.get("/live/{name:path}")
    def watch_run(name: str) -> Response:
        library.find(name)
        return StreamingResponse(panel_stream(site, name), media_type="text/event-stream")

    @app.get("/compare")
    def compare_runs(request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(names) <= MOST_COMPARED:
            raise InputError(f"Choose two runs or more to compare, at most {MOST_COMPARED}; {len(names)} came.")
        if len(names) > 2:
            return HTMLResponse(table_page(names, _results(site, names)))
        first, second = (library.open(name) for name in names)
        return HTMLResponse(compare_page((names[0], names[1]), (first, second)))

    @app.get("/compare.csv")
    def download_comparison(request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
        disposition = {"Content-Disposition": 'attachment; filename="comparison.csv"'}
        return Response(as_csv(_results(site, names)), media_type="text/csv", headers=disposition)

    @app.get("/start")
    def ask() -> Response:
        return HTMLResponse(form(None))

    @app.post("/start")
    async def start_run(request: Request) -> Response:
        wanted = Wanted.read(await _read(request, guard))
        try:
            await run_in_threadpool(site.starter.start, wanted)
        except InputError as error:
            return HTMLResponse(await run_in_threadpool(form, wanted, problem=str(error)), 422)
        return RedirectResponse(address("/run", wanted.name), 303)

    @app.post("/stop/{name:path}")
    async def stop_run(name: str, request: Request) -> Response:
        fields = await _read(request, guard)
        await run_in_threadpool(site.stop, name, force=fields.get("force") == "1")
        return RedirectResponse(address("/run", name), 303)

    @app.post("/resume/{name:path}")
    async def resume_run(name: str, request: Request) -> Response:
        await _read(request, guard)
        await run_in_threadpool(site.resume, name)
        return RedirectResponse(address("/run", name), 303)


def _results(site: Site, names: list[str]) -> list[Result]:
    return sorted_results(one for name in names for one in results(name, site.library.open(name)))


def _add_interface(app: FastAPI, site: Site) -> None:
    library, guard = site.library, site.guard

    @app.get("/api/session")
    def session() -> Response:
        return Answer({"csrf": guard.csrf, "version": __version__})

    @app.get("/api/runs")
    def list_runs(q: str = "") -> Response:
        return Answer({"runs": [asdict(summary) for summary in library.summaries(q)]})

    @app.get("/api/runs/{name:path}")
    def give_run(name: str) -> Response:
        return Answer({**asdict(library.summary(name)), "ranking": site.ranking_record(name)})

    @app.get("/api/events/{name:path}")
    def follow_run(name: str) -> Response:
        library.find(name)
        return StreamingResponse(lines_stream(site, name), media_type="text/event-stream")

    @app.post("/api/runs")
    async def start_run(request: Request) -> Response:
        wanted = Wanted.read(await _read(request, guard))
        await run_in_threadpool(site.starter.start, wanted)
        return Answer(asdict(await run_in_threadpool(library.summary, wanted.name)), 201)

    @app.post("/api/stop/{name:path}")
    async def stop_run(name: str, request: Request) -> Response:
        fields = await _read(request, guard)
        return Answer({"stopped": (await run_in_threadpool(site.stop, name, force=fields.get("force") is True))})
