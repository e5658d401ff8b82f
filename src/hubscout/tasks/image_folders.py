"""Tasks out of folders of images, or of sounds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hubscout.errors import TaskError, did_you_mean
from hubscout.grouping import grouped
from hubscout.tasks.assembly import assemble, opened_by
from hubscout.tasks.audio import EXTENSIONS as SOUND_ENDINGS
from hubscout.tasks.audio import Sounds
from hubscout.tasks.images import EXTENSIONS, PLUG_INS, Images, is_image_name, readable_endings
from hubscout.tasks.labels import encode_classes, sort_names
from hubscout.tasks.splitting import canonical_split, split_in_name
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

    A folder without an image, but with sounds, is one of sounds. A class folder may have folders of its own. A folder
    with nothing in it but one other folder of folders is seen through, as archives often have it:
    `seg_train/seg_train/CLASS`. Images are read when they are asked for; opening reads each file once, for the
    fingerprint.

    Args:
        folder: the folder of the classes, or of the splits. Splits are recognised by their names (train, val, test and
            their like, also as a word of a name such as `seg_train`).
        name: what to call the task; the name of the folder by default.
        validation_size: the fraction of the images that is split off, stratified, where there is no validation split.
        test_size: the same for test.
        seed: of these splits.

    Returns:
        The task; what was guessed or left out is in its `notes`.

    Raises:
        TaskError: there is no such folder, it has no images in class folders, or only one class.

    Example:
        >>> from_image_folder("flowers/").kind  # doctest: +SKIP
        'classification'

    """
    arguments = dict(locals())
    root = check_folder(folder)
    notes: list[str] = []
    home = _see_through(root, notes)
    by_split = _split_folders(home, notes) or {"train": [home]}
    endings = readable_endings()
    unfollowed: list[Path] = []
    classes = {split: [one for home in homes for one in _visible_folders(home)] for split, homes in by_split.items()}
    real = [one.resolve() for ones in classes.values() for one in ones]
    files = {
        split: [(path, one.name) for one in ones for path in walk(one, apart_from=real, unfollowed=unfollowed)]
        for split, ones in classes.items()
    }
    every = {path.suffix.lower() for found in files.values() for path, _ in found}
    are_sounds = not every & endings and bool(every & SOUND_ENDINGS)
    endings = SOUND_ENDINGS if are_sounds else endings
    others = Counter(
        ending for found in files.values() for path, _ in found if (ending := path.suffix.lower()) not in endings
    )
    images = {split: [one for one in found if one[0].suffix.lower() in endings] for split, found in files.items()}
    left_out = _left_out(others, "a sound" if are_sounds else "an image")
    notes += left_out
    if not any(images.values()):
        raise TaskError(_nothing_found(root) + "".join(f" Also, {note}." for note in left_out))
    names = sort_names(name for found in images.values() for _, name in found)
    if "train" in map(canonical_split, names) and all(map(canonical_split, names)):
        raise TaskError(
            f"{str(root)!r} is laid out by splits ({', '.join(map(repr, names))}), and there are no class folders in "
            "them: nothing says what the images show. Put the images of each class into a folder of its name inside "
            "the split, or give a table with a column of paths and a column of labels."
        )
    inner = next((path.parent for path, name in images["train"] if path.parent.name != name), None)
    if inner is not None:
        outer = next(one for one in classes["train"] if one in inner.parents)
        within = str(inner.relative_to(outer.parent))
        notes.append(f"class folders have folders of their own: what is in {within!r} has the class {outer.name!r}")
    if unfollowed:
        notes.append(f"not followed, for they lead to folders that are read anyway: links such as {unfollowed[0]}")
    target_names, targets = encode_classes(
        {split: [name for _, name in found] for split, found in images.items()}, names
    )
    return assemble(
        name=name or root.name,
        kind="classification",
        modality="audio" if are_sounds else "image",
        target_names=target_names,
        splits={
            split: Split((Sounds if are_sounds else Images)([path for path, _ in found]), targets[split])
            for split, found in images.items()
        },
        notes=notes,
        source=opened_by("from_image_folder", arguments, folder=str(root)),
        validation_size=validation_size,
        test_size=test_size,
        seed=seed,
    )


def check_folder(folder: str | Path) -> Path:
    """A folder that exists, made absolute."""
    root = existing_path(folder)
    if not root.is_dir():
        raise TaskError(f"{str(folder)!r} is a file; a folder was expected.")
    return root


def existing_path(path: str | Path) -> Path:
    """A path that exists, made absolute."""
    full = Path(os.path.expanduser(path)).absolute()
    if not full.exists():
        raise TaskError(missing_path(full))
    return full


def name_of(path: str | Path) -> str:
    """What data in a file or folder is called: its name without endings."""
    return Path(os.path.expanduser(path)).absolute().name.partition(".")[0]


def missing_path(path: Path) -> str:
    """What to say of a path that does not exist: the nearest name beside it, or the part of it that exists."""
    parent = path.parent
    if not parent.is_dir():
        existing = next((str(folder) for folder in path.parents if folder.is_dir()), None)
        return f"There is no {str(path)!r}" + (f": of this path only {existing!r} exists." if existing else ".")
    return f"There is no {str(path)!r}.{did_you_mean(path.name, os.listdir(parent), f'{parent}{os.sep}')}"


def walk(folder: Path, *, apart_from: Sequence[Path] = (), unfollowed: list[Path] | None = None) -> Iterator[Path]:
    """All files below `folder` in a fixed order, without hidden ones.

    Every folder is visited once, however many links lead to it, so that links in a circle come to an end. Links to a
    folder above, or to one of `apart_from` or what contains it or lies in it, are not followed; they are added to
    `unfollowed`.
    """
    own = folder.resolve()
    foreign = [other for other in apart_from if other != own]
    seen = {own}

    def enter(place: Path) -> bool:
        real = place.resolve()
        elsewhere = place.is_symlink() and (
            _contains(real, place.parent.resolve())
            or any(_contains(real, other) or _contains(other, real) for other in foreign)
        )
        if (elsewhere or real in seen) and unfollowed is not None:
            unfollowed.append(place)
        fresh = not elsewhere and real not in seen
        seen.add(real)
        return fresh

    for home, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in sorted(folders) if not _hidden(name) and enter(Path(home) / name)]
        for name in sorted(files):
            if not _hidden(name):
                yield Path(home) / name


def _contains(folder: Path, other: Path) -> bool:
    """Whether one real folder is the other, or above it."""
    return folder == other or folder in other.parents


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _visible_folders(folder: Path) -> list[Path]:
    """The folders in a folder, without links to itself or to one above."""
    here = folder.resolve()
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and not _hidden(entry.name) and not _contains(entry.resolve(), here)
    )


def _left_out(endings: Mapping[str, int], what: str) -> list[str]:
    """What is said of files that are not read, by their endings."""
    notes = [
        f"{count:,} {ending} {'file is' if count == 1 else 'files are'} left out: reading "
        f"{'it' if count == 1 else 'them'} takes the package {package} (pip install {package})"
        for ending, package in PLUG_INS.items()
        if (count := endings.get(ending, 0))
    ]
    others = {ending: count for ending, count in endings.items() if ending not in PLUG_INS}
    if others:
        listed = ", ".join(ending or "no ending" for ending in sorted(others)[:5])
        count = sum(others.values())
        told = (
            f"file in the class folders is not {what}"
            if count == 1
            else f"files in the class folders are not {what.split()[1]}s"
        )
        notes.append(f"{count:,} {told} ({listed}); left out")
    return notes


def _see_through(folder: Path, notes: list[str]) -> Path:
    """The folder with the classes or splits: past those that hold one folder of folders, and no image."""
    inner = folder
    while len(only := _visible_folders(inner)) == 1 and _visible_folders(only[0]):
        if any(is_image_name(entry) for home in (inner, only[0]) for entry in home.iterdir() if entry.is_file()):
            break
        inner = only[0]
    if inner != folder:
        notes.append(f"the class folders are in {str(inner.relative_to(folder))!r}, the only folder in {folder.name!r}")
    return inner


def _split_folders(root: Path, notes: list[str]) -> dict[str, list[Path]] | None:
    """The folders of each split, if `root` is laid out by splits: it has one for train, with folders in it."""
    folders = _visible_folders(root)
    spoken = ((canonical_split(folder.name) or split_in_name(folder.name), folder) for folder in folders)
    found = grouped((split, folder) for split, folder in spoken if split is not None and _visible_folders(folder))
    if "train" not in found:
        return None
    used = {folder for homes in found.values() for folder in homes}
    found = {split: [_see_through(home, notes) for home in homes] for split, homes in found.items()}
    rest = [folder.name for folder in folders if folder not in used]
    flat = [name for name in rest if canonical_split(name) or split_in_name(name)]
    notes += [f"{name!r} is left out: it has no class folders, so that its images have no labels" for name in flat]
    if others := [name for name in rest if name not in flat]:
        notes.append(f"laid out by splits; left out because no split has this name: {', '.join(map(repr, others))}")
    return found


def _nothing_found(root: Path) -> str:
    loose = sum(entry.is_file() and is_image_name(entry) for entry in root.iterdir())
    if loose:
        return (
            f"{str(root)!r} has {loose:,} images but no class folders. Put the images of each class into a folder "
            "of its name, or give a table with a column of paths and a column of labels."
        )
    return (
        f"{str(root)!r} has no images. Expected CLASS/IMAGE or train/CLASS/IMAGE below it, with one of the endings "
        f"{', '.join(sorted(EXTENSIONS))}."
    )
