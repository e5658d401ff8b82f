"""Tasks out of image folders."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from hubscout.errors import TaskError
from hubscout.tasks.assembly import assemble
from hubscout.tasks.images import EXTENSIONS, Images
from hubscout.tasks.labels import encode_classes
from hubscout.tasks.splitting import canonical_split
from hubscout.tasks.task import Split, Task


def from_image_folder(
    folder: str | Path,
    *,
    name: str | None = None,
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
) -> Task:
    """Image classification from a folder per class: `folder/CLASS/*.jpg`, or `folder/SPLIT/CLASS/*.jpg`.

    A class folder may have folders of its own. Splits are recognised by their names (train, val, test and their
    like). Without them, `test_size` and `validation_size` of the images are split off, stratified and seeded.
    Images are read when they are asked for; opening reads each file once, for the fingerprint.
    """
    root = check_folder(folder)
    notes: list[str] = []
    by_split = _split_folders(root, notes) or {"train": [root]}
    paths: dict[str, list[Path]] = {}
    labels: dict[str, list[str]] = {}
    others = 0
    for split, homes in by_split.items():
        paths[split], labels[split] = [], []
        for home in homes:
            for class_folder in _visible_folders(home):
                for path in walk(class_folder):
                    if path.suffix.lower() in EXTENSIONS:
                        paths[split].append(path)
                        labels[split].append(class_folder.name)
                    else:
                        others += 1
    if not any(paths.values()):
        raise TaskError(_nothing_found(root))
    if others:
        notes.append(f"{others:,} files in class folders are no images and are left out")
    target_names, targets = encode_classes(labels)
    return assemble(
        name=name or root.name,
        kind="classification",
        modality="image",
        target_names=target_names,
        splits={split: Split(Images(paths[split]), targets[split]) for split in paths},
        notes=notes,
        source={
            "constructor": "from_image_folder",
            "arguments": {
                "folder": str(root),
                "name": name,
                "validation_size": validation_size,
                "test_size": test_size,
                "seed": seed,
            },
        },
        validation_size=validation_size,
        test_size=test_size,
        seed=seed,
    )


def check_folder(folder: str | Path) -> Path:
    """An existing folder, made absolute; the error for a missing one offers a neighbour of nearly that name."""
    root = Path(folder).expanduser().absolute()
    if root.is_dir():
        return root
    if root.exists():
        raise TaskError(f"{str(folder)!r} is a file; a folder was expected.")
    raise TaskError(missing_path(root))


def missing_path(path: Path) -> str:
    """What to say of a path that does not exist: the nearest name beside it, or the part of it that exists."""
    parent = path.parent
    if not parent.is_dir():
        existing = next((str(folder) for folder in path.parents if folder.is_dir()), None)
        return f"There is no {str(path)!r}" + (f": of this path only {existing!r} exists." if existing else ".")
    near = difflib.get_close_matches(path.name, os.listdir(parent), n=1)
    return f"There is no {str(path)!r}." + (f" Did you mean {str(parent / near[0])!r}?" if near else "")


def walk(folder: Path) -> Iterator[Path]:
    """All files below `folder` in a fixed order, without hidden ones; links to a folder above are not followed."""
    for home, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not _hidden(name) and not _links_upwards(Path(home) / name))
        for name in sorted(files):
            if not _hidden(name):
                yield Path(home) / name


def _links_upwards(folder: Path) -> bool:
    return folder.is_symlink() and folder.resolve() in [folder.parent.resolve(), *folder.parent.resolve().parents]


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _visible_folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not _hidden(entry.name))


def _split_folders(root: Path, notes: list[str]) -> dict[str, list[Path]] | None:
    """The folders of each split, if `root` is laid out by splits: it has one for train, with folders in it."""
    folders = _visible_folders(root)
    found: dict[str, list[Path]] = {}
    for folder in folders:
        split = canonical_split(folder.name)
        if split is not None and _visible_folders(folder):
            found.setdefault(split, []).append(folder)
    if "train" not in found:
        return None
    used = {folder for homes in found.values() for folder in homes}
    rest = [folder.name for folder in folders if folder not in used]
    if rest:
        notes.append(f"laid out by splits; left out, for no split has this name: {', '.join(map(repr, rest))}")
    return found


def _nothing_found(root: Path) -> str:
    loose = sum(entry.is_file() and entry.suffix.lower() in EXTENSIONS for entry in root.iterdir())
    if loose:
        return (
            f"{str(root)!r} has {loose:,} images but no class folders. Put the images of each class into a folder "
            "of its name, or name the classes in a table (from_table with a column of paths)."
        )
    return (
        f"{str(root)!r} has no images. Expected CLASS/IMAGE or train/CLASS/IMAGE below it, with one of the endings "
        f"{', '.join(sorted(EXTENSIONS))}."
    )
