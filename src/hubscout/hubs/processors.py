"""The tokenizer, image processor or feature extractor of a transformers model, as a preprocessing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import CheckpointError, InputError
from hubscout.hubs.backbone import Batch, Preprocessing
from hubscout.hubs.image_preprocessing import PIXELS, ImageConfig, ImagePreprocessing, check_image, normalise
from hubscout.hubs.text_preprocessing import Pairs, TextPreprocessing

LENGTHS = "lengths"
"""The key of the number of samples of each recording before padding."""
_ANY_CLASS = ("tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model")
"""Files that hold the vocabulary of a tokenizer of any class."""
_USUAL = (*_ANY_CLASS, "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model")


def open_preprocessing(
    transformers: Any,
    source: str,
    network: Any,
    modality: str,
    options: Mapping[str, Any],
    trust: Mapping[str, bool],
    identifier: str,
) -> Preprocessing:
    """How inputs are prepared for a network of transformers, as the files at `source` say."""
    folders = [Path(source)]
    try:
        processor = open_processor(transformers, source, modality, trust)
    except Exception as error:
        missing = missing_vocabulary if modality == "text" else missing_processor
        raise missing(folders, identifier) or error from error
    if modality == "text":
        check_vocabulary(processor, network, folders, identifier)
    return preprocessing_with(processor, network, modality, options)


def open_processor(transformers: Any, source: str, modality: str, trust: Mapping[str, bool]) -> Any:
    """The tokenizer, the image processor or the feature extractor of a model."""
    automatic = {"image": "AutoImageProcessor", "audio": "AutoFeatureExtractor", "text": "AutoTokenizer"}[modality]
    return getattr(transformers, automatic).from_pretrained(source, **trust)


def preprocessing_with(processor: Any, network: Any, modality: str, options: Mapping[str, Any]) -> Preprocessing:
    """How a network's inputs are prepared by its own tokenizer, image processor or feature extractor."""
    if modality == "image":
        return ImageProcessorPreprocessing(processor)
    if modality == "audio":
        return AudioPreprocessing(processor)
    return tokenize_with(processor, network, options)


def tokenize_with(
    tokenizer: Any,
    network: Any,
    options: Mapping[str, Any],
    *,
    pairs: Pairs = "cross",
    usual: int | None = None,
    prompt: str = "",
    accepts_types: bool | None = None,
) -> TextPreprocessing:
    """How a network's texts are prepared, as the options `max_length`, `pairs` and `words` say.

    Without a `max_length` it is the `usual` length, or what the network takes where that is less or nothing is usual.
    `network` is None where it cannot be looked into.
    """
    longest, wanted = longest_text(tokenizer, network), options.get("max_length")
    if wanted is not None and wanted > longest:
        raise InputError(f"max_length={wanted} is more than the {longest} tokens that the model takes.")
    return TextPreprocessing(
        tokenizer,
        max_length=wanted or min(usual or longest, longest),
        pairs=options.get("pairs", pairs),
        accepts_types="token_type_ids" in tokenizer.model_input_names if accepts_types is None else accepts_types,
        words=options.get("words", "first"),
        prompt=prompt,
    )


def _key_of(kind: str, processor: Any) -> str:
    return f"{kind}:{hashlib.blake2b(processor.to_json_string().encode(), digest_size=12).hexdigest()}"


class ImageProcessorPreprocessing:
    """The model's own processor: resizing, cropping, scaling and normalising are all its own."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.key = _key_of("image-processor", processor)

    def __call__(self, sample: Any) -> np.ndarray | dict[str, np.ndarray]:
        """The pixels; with their names where the processor gives more than these (SigLIP 2: which patches are real)."""
        found = self.processor(images=check_image(sample), return_tensors="pt")
        arrays = {name: tensor[0].numpy() for name, tensor in found.items()}
        return arrays[PIXELS] if self._gives_pixels_alone() else arrays

    def collate(self, samples: Sequence[Any]) -> Batch:
        import torch

        if isinstance(samples[0], dict):
            return {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}
        return {PIXELS: torch.from_numpy(np.stack(samples))}

    def augmented(self) -> Preprocessing:
        """The standard random crops and flips at this processor's size, normalised as it normalises."""
        return _Augmented(self.config()) if self._gives_pixels_alone() else self

    def _gives_pixels_alone(self) -> bool:
        return "spatial_shapes" not in (getattr(self.processor, "model_input_names", None) or ())

    def config(self) -> ImageConfig:
        """The processor's size, mean and std; the rest does not concern augmentation."""
        sides = dict(getattr(self.processor, "crop_size", None) or getattr(self.processor, "size", None) or {})
        side = sides.get("shortest_edge") or 224
        size = (3, int(sides.get("height") or side), int(sides.get("width") or side))
        if not getattr(self.processor, "do_normalize", True):
            return ImageConfig(input_size=size, mean=(0.0,) * 3, std=(1.0,) * 3)
        return ImageConfig(input_size=size, mean=tuple(self.processor.image_mean), std=tuple(self.processor.image_std))


class _Augmented(ImagePreprocessing):
    """Random crops of normalised pixels, for a network that does not normalise by itself."""

    def __init__(self, config: ImageConfig) -> None:
        super().__init__(config, training=True)

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        pixels = super().collate(samples)[PIXELS]
        return {PIXELS: normalise(pixels, torch.tensor(self.config.mean), torch.tensor(self.config.std))}

    def augmented(self) -> _Augmented:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Augmented, (self.config,)


class AudioPreprocessing:
    """A transformers feature extractor. Recordings are mixed to one channel and resampled to its rate."""

    def __init__(self, extractor: Any) -> None:
        self.extractor = extractor
        self.input_name: str = extractor.model_input_names[0]
        self.key = _key_of("audio", extractor)

    def __call__(self, sample: Any) -> np.ndarray:
        """A dictionary of `array` (samples, or channels and samples) and `sampling_rate`."""
        if not isinstance(sample, Mapping) or "array" not in sample or "sampling_rate" not in sample:
            raise InputError(f"Expected a dictionary of 'array' and 'sampling_rate', got {type(sample).__name__}.")
        rate = int(self.extractor.sampling_rate)
        wave = resample(np.asarray(sample["array"], dtype=np.float32), int(sample["sampling_rate"]), rate)
        if wave.size == 0:
            raise InputError("A recording has no samples.")
        return np.asarray(self.extractor(wave, sampling_rate=rate, return_tensors="np")[self.input_name][0])

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        lengths = torch.tensor([len(sample) for sample in samples])
        recordings = [torch.as_tensor(sample, dtype=torch.float32) for sample in samples]
        return {self.input_name: torch.nn.utils.rnn.pad_sequence(recordings, batch_first=True), LENGTHS: lengths}

    def augmented(self) -> AudioPreprocessing:
        return self


def resample(wave: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """One channel at the wanted rate, by a polyphase filter.

    >>> resample(np.zeros((2, 800), dtype=np.float32), 8000, 16000).shape
    (1600,)
    """
    from scipy.signal import resample_poly

    if wave.ndim > 1:
        wave = wave.mean(int(np.argmin(wave.shape)))
    if rate == wanted:
        return wave
    common = gcd(rate, wanted)
    return resample_poly(wave, wanted // common, rate // common).astype(np.float32)


def check_vocabulary(tokenizer: Any, network: Any, folders: Sequence[Path], identifier: str) -> None:
    """Refuse a tokenizer that was made up, or that belongs to another model.

    transformers makes up a vocabulary of a few tokens where it finds no files of one. Every text then becomes the same
    few tokens, and the model's features say next to nothing.

    Args:
        tokenizer: what transformers opened.
        network: the model whose embeddings the tokens index, or None where it cannot be looked into.
        folders: where the files of the vocabulary may lie.
        identifier: the model, for the message.

    """
    own = getattr(tokenizer, "vocab_files_names", None)
    if not own:  # Tokenizers of bytes and characters have no files: their vocabulary is the alphabet.
        return
    names = sorted({*own.values(), *_ANY_CLASS})
    if (refusal := missing_vocabulary(folders, identifier, names)) is not None:
        raise refusal
    rows = _embedding_rows(network)
    if rows is not None and (len(tokenizer) < rows / 2 or tokenizer.vocab_size > rows):
        raise CheckpointError(
            f"The tokenizer of {identifier} is not the model's own: it knows {len(tokenizer):,} tokens, the model's "
            f"embeddings have {rows:,}. Files of its vocabulary: {', '.join(names)}."
        )


def missing_vocabulary(
    folders: Sequence[Path], identifier: str, names: Sequence[str] = _USUAL
) -> CheckpointError | None:
    """The refusal of a model that has no file of a vocabulary; None where there is one."""
    if any((folder / name).is_file() for folder in folders for name in names):
        return None
    if any(any(folder.glob("*.tiktoken")) for folder in folders):
        return None
    return CheckpointError(
        f"{identifier} has no vocabulary: none of {', '.join(names)} is in {' or '.join(map(str, folders))}. Without "
        "its own tokenizer a text model reads nothing: copy those files from the model that it was trained from."
    )


def missing_processor(folders: Sequence[Path], identifier: str) -> CheckpointError | None:
    """The refusal of a model of images or sounds whose folder does not say how they are prepared; None where it does.

    `save_pretrained` of the network alone leaves such a folder.
    """
    names = ("preprocessor_config.json", "processor_config.json")
    if not any(folder.is_dir() for folder in folders) or any(
        (home / name).is_file() for home in folders for name in names
    ):
        return None
    return CheckpointError(
        f"{identifier} does not say how its inputs are prepared: there is no {names[0]} in "
        f"{' or '.join(map(str, folders))}. Save that of the model it was trained from beside it: "
        "AutoImageProcessor.from_pretrained(MODEL).save_pretrained(FOLDER), for sounds AutoFeatureExtractor."
    )


def _embedding_rows(network: Any) -> int | None:
    """How many tokens the model has embeddings for; None for one that computes them otherwise."""
    try:
        return getattr(network.get_input_embeddings(), "num_embeddings", None)
    except (AttributeError, NotImplementedError):
        return None


def longest_text(tokenizer: Any, network: Any) -> int:
    """How many tokens the model takes: the lower of what its tokenizer and its position embeddings allow."""
    limits = [tokenizer.model_max_length]
    if network is None:
        return int(limits[0])
    for name, part in network.named_modules():
        if name.endswith(("position_embeddings", "wpe")) and hasattr(part, "num_embeddings"):
            # RoBERTa counts positions from after the padding's own.
            taken = part.padding_idx + 1 if part.padding_idx is not None else 0
            limits.append(part.num_embeddings - taken)
    stated = getattr(network.config, "max_position_embeddings", None) or getattr(network.config, "n_positions", None)
    if len(limits) == 1 and stated and stated > 0:
        limits.append(stated)
    limit = min(limits)
    return int(limit) if limit < 1_000_000 else 512
