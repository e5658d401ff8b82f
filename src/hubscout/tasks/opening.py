"""One string, as the command line gives it, and which constructor it means.

Data behind a URL is copied to this machine once, and opened as if it had always been here. Every scheme that fsspec
knows works (`s3://` with s3fs, `gs://` with gcsfs, `https://`, `file://`, `memory://`). A copy is kept by the URL and
by what is there now (names, sizes and tags of the files): data that changed is copied anew, and a copy that was
interrupted counts for nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl

from filelock import FileLock

from hubscout.credentials import lacks_credentials
from hubscout.errors import TaskError, did_you_mean
from hubscout.tasks.data_objects import constructor_of_object
from hubscout.tasks.image_folders import missing_path, walk
from hubscout.tasks.images import is_image_name
from hubscout.tasks.task import Task

CONSTRUCTORS = {
    "from_image_folder": "image_folders",
    "from_table": "tables",
    "from_hf": "hf",
    "from_conll": "conll",
    "from_npz": "npz",
}
"""Those that read files, which a task can be opened with again, and their modules."""
_HOMES = {
    **CONSTRUCTORS,
    "from_arrays": "array_tasks",
    "from_pair": "data_objects",
    "from_torch_dataset": "data_objects",
}
_ONLY_KIND = {"from_image_folder": "classification", "from_conll": "tagging"}
_COLUMN_OPTIONS = ("label", "image", "text", "split", "audio", "tokens", "group", "image_root")
"""What only a table has."""
# A folder with very many files is known for an image folder long before its end.
_FILES_LOOKED_AT = 2000
_SIGNS_OF_CHANGE = ("size", "ETag", "etag", "mtime", "LastModified", "updated", "created")


def open_task(source: Any, **options: Any) -> Task:
    """Open data by what it is: a path, or an object that is in memory already.

    | `source` | is read by |
    |---|---|
    | `flowers/`, with a folder per class, or those inside `train`, `val`, `test` | `from_image_folder` |
    | `reviews.csv`, `.tsv`, `.jsonl`, `.parquet`, also `.csv.gz` | `from_table` |
    | `sst2/` with `train.csv`, `test.csv` and so on | `from_table` |
    | `ner.conll`, `ner.txt`, or a folder with `train.txt`, `valid.txt`, `test.txt` | `from_conll` |
    | `digits.npz` of NumPy, with arrays `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test` | `from_npz` |
    | a folder that `datasets` wrote with `save_to_disk`; `hf:ID` | `from_hf` |
    | any of these behind a URL: `s3://bucket/flowers`, `gs://`, `https://` | the same, from a copy that is made once |
    | a data frame of pandas or polars | `from_table` |
    | a `Dataset` or `DatasetDict` of `datasets` | `from_hf` |
    | `(X, y)`; inputs such as image paths or Pillow images, with `labels=` | `from_arrays` |
    | a `Dataset` or `DataLoader` of torch, such as torchvision's `ImageFolder` | `from_torch_dataset` |
    | a mapping from splits (`train`, `validation`, `test`) to frames, paths, pairs, data sets or loaders | the same |
    | the `source` of a task | `Task.reopen` |

    Args:
        source: the data.
        options: for the constructor; those that are None count as not given. They may also follow a path:
            `pets.parquet?label=breed`.

    Returns:
        The task. A task is given back as it is.

    Raises:
        TaskError: data that is not understood, or an option that its constructor does not have.

    Example:
        >>> import numpy as np
        >>> open_task((np.eye(10), ["cat", "dog"] * 5)).target_names
        ('cat', 'dog')

    """
    given = {option: value for option, value in options.items() if value is not None}
    if isinstance(source, Task):
        if given:
            raise TaskError(f"Options for a task that is open already: {', '.join(given)}. Give them when opening it.")
        return source
    if isinstance(source, Mapping) and "constructor" in source:
        return reopen(source)
    if (constructor := constructor_of_object(source, given)) is not None:
        return construct(constructor, given, source)
    text = str(source)
    if "?" in text and not Path(os.path.expanduser(text)).exists():
        text, _, query = text.partition("?")
        given = {**dict(_parse_option(*pair) for pair in parse_qsl(query, keep_blank_values=True)), **given}
    if is_url(text):
        return open_url(text, given)
    if text.startswith("hf:"):
        return construct("from_hf", given, text[3:])
    path = Path(os.path.expanduser(text)).absolute()
    if not path.exists():
        raise TaskError(f"{missing_path(path)} For a data set of the Hugging Face hub write hf:{text}.")
    constructor = which_constructor(path, given)
    only = _ONLY_KIND.get(constructor)
    if only is not None and given.pop("kind", only) != only:
        raise TaskError(f"{text!r} is read by {constructor}, which gives {only}; kind= asked for another.")
    return construct(constructor, given, path)


def which_constructor(path: Path, options: Mapping[str, Any] | None = None) -> str:
    """The constructor that a file or folder is for."""
    from hubscout.tasks.conll import is_conll_name
    from hubscout.tasks.hf import is_saved_dataset
    from hubscout.tasks.npz import is_npz_name
    from hubscout.tasks.reading import table_format
    from hubscout.tasks.tables import tables_in

    if path.is_file():
        if table_format(path) is not None:
            return "from_table"
        if is_conll_name(path):
            return "from_conll"
        if is_npz_name(path):
            return "from_npz"
        raise TaskError(
            f"{str(path)!r} cannot be read as data: expected CSV, TSV, JSONL, JSON or Parquet, a token file "
            f"(.txt, .conll), NumPy's .npz, or a folder.{_what_instead(path)}"
        )
    if is_saved_dataset(path):
        return "from_hf"
    entries = sorted(path.iterdir())
    if not entries:
        raise TaskError(
            f"The folder {str(path)!r} is empty: expected images with a folder per class, tables, or CoNLL files."
        )
    # A table beside image folders describes them; the folders themselves say the classes unless columns are named.
    has_tables, names_columns = bool(tables_in(path)), any(option in (options or {}) for option in _COLUMN_OPTIONS)
    if (has_tables and names_columns) or not _has_class_folders(path):
        if has_tables:
            return "from_table"
        if any(entry.is_file() and is_conll_name(entry) for entry in entries):
            return "from_conll"
    return "from_image_folder"


_INSTEAD = {
    ".npy": "An .npy file holds one array: save inputs and labels together, np.savez(path, x=inputs, y=labels).",
    ".xlsx": "Save the sheet as CSV.",
    ".xls": "Save the sheet as CSV.",
    ".zip": "Unpack it first.",
    ".tar": "Unpack it first.",
    ".gz": "Unpack it first.",
    ".tgz": "Unpack it first.",
    ".pkl": "A pickle can run code and is not opened: load it yourself, and give what it holds in Python.",
    ".pt": "A pickle can run code and is not opened: load it yourself, and give what it holds in Python.",
    ".arrow": "Give the folder that save_to_disk wrote.",
    ".jpg": "Give the folder above the class folders.",
    ".png": "Give the folder above the class folders.",
}


def _what_instead(path: Path) -> str:
    told = _INSTEAD.get(path.suffix.lower())
    return f" {told}" if told else ""


def _has_class_folders(path: Path) -> bool:
    return any(file.parent != path and is_image_name(file) for file in islice(walk(path), _FILES_LOOKED_AT))


def reopen(source: Mapping[str, Any]) -> Task:
    """Open a task again from its `source`; an error if the content is no longer the same."""
    if not isinstance(source, Mapping) or source.get("constructor") not in (*CONSTRUCTORS, "from_url"):
        raise TaskError(f"This is not the source of a task: {source!r:.80}. Tasks made of data in memory have none.")
    arguments = dict(source["arguments"])
    if source["constructor"] == "from_url":
        task = open_url(arguments.pop("url"), arguments)
    else:
        task = construct(source["constructor"], arguments)
    for step in source.get("subsets", ()):
        task = task.subset(step["n"], seed=step["seed"])
    expected = source.get("fingerprint")
    if expected is not None and task.fingerprint != expected:
        raise TaskError(
            f"The data of {task.name!r} changed since the task was opened: its fingerprint was {expected[:12]}, now it "
            f"is {task.fingerprint[:12]}. Start again from the data as it is now."
        )
    return task


def is_url(source: str) -> bool:
    """Whether a string names data on another machine.

    >>> is_url("s3://bucket/flowers"), is_url("flowers/"), is_url("hf:imdb")
    (True, False, False)
    """
    return "://" in source


def open_url(url: str, options: Mapping[str, Any]) -> Task:
    """Open the data behind a URL. The task remembers the URL, so that another machine makes a copy of its own."""
    if lacks_credentials(url):
        raise TaskError(
            f"The address {url!r} was saved without its password: open the data again with the whole address."
        )
    task = open_task(local_copy(url), **options)
    source = {"constructor": "from_url", "arguments": {"url": url, **options}, "fingerprint": task.fingerprint}
    return replace(task, source=source)


def local_copy(url: str) -> Path:
    """The file or folder of a URL on this machine, copied now if it is not here yet."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
        files = system.find(path, detail=True) if system.exists(path) else {}
    except Exception as error:  # each file system has errors of its own: no such scheme, no access, no network
        raise TaskError(f"{url!r} cannot be reached: {type(error).__name__}: {error}") from error
    if not files:
        raise TaskError(f"There is nothing at {url!r}.")
    name = PurePosixPath(str(path).rstrip("/")).name or "data"
    about = {name: [str(entry.get(sign)) for sign in _SIGNS_OF_CHANGE] for name, entry in files.items()}
    home = data_root() / hashlib.sha256(json.dumps([url, about], sort_keys=True).encode()).hexdigest()[:24]
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not (home / name).exists():
            _copy(system, path, home, name, url)
    return home / name


def data_root() -> Path:
    """Where copies are kept: $HUBSCOUT_DATA, else `data` in the platform's folder for caches."""
    given = os.environ.get("HUBSCOUT_DATA")
    if given:
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("hubscout", appauthor=False, opinion=False)) / "data"


def _copy(system: Any, path: str, home: Path, name: str, url: str) -> None:
    """Copy to a temporary folder and rename it: a copy is whole or not there."""
    temporary = Path(tempfile.mkdtemp(prefix="copying-", dir=home.parent))
    try:
        system.get(path, str(temporary / name), recursive=system.isdir(path))
        shutil.rmtree(home, ignore_errors=True)
        temporary.rename(home)
    except OSError as error:
        # A file system may tell its path without the scheme, by which credentials are known.
        reason = str(error).replace(str(path), url)
        raise TaskError(f"{url!r} could not be copied to {home.parent}: {reason}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def construct(name: str, options: Mapping[str, Any], *sources: Any) -> Task:
    """Call a constructor; with an unknown option, say which there are."""
    function = getattr(importlib.import_module(f"hubscout.tasks.{_HOMES[name]}"), name)
    known = list(inspect.signature(function).parameters)[len(sources) :]
    if name in ("from_pair", "from_torch_dataset"):
        from hubscout.tasks.array_tasks import from_arrays

        known = ["labels", *list(inspect.signature(from_arrays).parameters)[2:]]
    unknown = [option for option in options if option not in known]
    if unknown and name == "from_image_folder" and unknown[0] in _COLUMN_OPTIONS:
        value = options[unknown[0]]
        named = repr(value) if isinstance(value, str) else repr(",".join(map(str, value)))
        raise TaskError(
            f"{unknown[0]}={named}: this names a column of a table, and the data is a folder of images. The label of "
            "an image is the name of the sub-folder that it is in: leave the option out, or give a CSV file with a "
            "column of paths and a column of labels."
        )
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise TaskError(f"{name} has no option {unknown[0]!r}.{hint} Its options: {', '.join(known)}.")
    return function(*sources, **options)


def _parse_option(name: str, text: str) -> tuple[str, Any]:
    """The value of an option in a string; those that are numbers are known by name."""
    parse = {"seed": int, "column": int, "validation_size": float, "test_size": float}.get(name)
    if parse is not None:
        try:
            return name, parse(text)
        except ValueError:
            raise TaskError(f"{name} must be a number; it was {text!r}.") from None
    return name, False if (name, text.lower()) == ("split", "false") else text
