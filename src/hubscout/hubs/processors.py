"""The tokenizer, image processor or feature extractor of a transformers model, as a preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubscout.errors import InputError
from hubscout.hubs.audio_preprocessing import AudioPreprocessing
from hubscout.hubs.backbone import Preprocessing
from hubscout.hubs.image_processor import ImageProcessorPreprocessing
from hubscout.hubs.text_preprocessing import TextPreprocessing
from hubscout.hubs.vocabulary import check_vocabulary, longest_text, missing_vocabulary


def open_preprocessing(
    transformers: Any,
    source: str,
    network: Any,
    modality: str,
    options: dict[str, Any],
    where: dict[str, Any],
    identifier: str,
) -> Preprocessing:
    """How inputs are prepared for a network of transformers, as the files at `source` say."""
    if modality != "text":
        return preprocessing_with(open_processor(transformers, source, modality, where), network, modality, options)
    folders = [Path(source) / where.get("subfolder", "")]
    try:
        tokenizer = open_processor(transformers, source, modality, where)
    except Exception as error:
        raise missing_vocabulary(folders, identifier) or error from error
    check_vocabulary(tokenizer, network, folders, identifier)
    return preprocessing_with(tokenizer, network, modality, options)


def open_processor(transformers: Any, source: str, modality: str, where: dict[str, Any]) -> Any:
    """The tokenizer, the image processor or the feature extractor of a model."""
    automatic = {"image": "AutoImageProcessor", "audio": "AutoFeatureExtractor", "text": "AutoTokenizer"}[modality]
    return getattr(transformers, automatic).from_pretrained(source, **where)


def preprocessing_with(processor: Any, network: Any, modality: str, options: dict[str, Any]) -> Preprocessing:
    """How a network's inputs are prepared by its own tokenizer, image processor or feature extractor."""
    if modality == "image":
        return ImageProcessorPreprocessing(processor)
    if modality == "audio":
        return AudioPreprocessing(processor)
    limit = longest_text(processor, network)
    wanted = options.get("max_length")
    if wanted is not None and wanted > limit:
        raise InputError(f"max_length={wanted} is more than the {limit} tokens that the model takes.")
    return TextPreprocessing(
        processor,
        max_length=wanted or limit,
        pairs=options["pairs"],
        accepts_types="token_type_ids" in processor.model_input_names,
        words=options.get("words", "first"),
    )
