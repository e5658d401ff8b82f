"""`sentence-transformers/ID`: sentence encoders, by hub name or, behind `file:`, from a folder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, ModelError
from hubscout.hubs import huggingface
from hubscout.hubs.backbone import Backbone, Batch, Output
from hubscout.hubs.connection import explain_failure, needs_code
from hubscout.hubs.cost import describe
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import TEXT_MODALITIES, ModelListing, search
from hubscout.hubs.pooling import check_layers, join_pair, layer_state, pool, select_words
from hubscout.hubs.processors import check_vocabulary, missing_vocabulary, tokenize_with
from hubscout.hubs.repository import (
    PLACE_OPTIONS,
    Repository,
    fetch_model,
    is_allowed,
    open_repository,
)
from hubscout.hubs.saving import SENTENCE_ENCODER, read_description, read_settings
from hubscout.hubs.text_preprocessing import (
    MASK,
    WORD_ENDS,
    WORDS,
    TextPreprocessing,
    is_siamese,
    model_inputs,
)
from hubscout.hubs.transformer import TOKENS_FOR_FLOPS
from hubscout.light_imports import before_user_code
from hubscout.optional import require

if TYPE_CHECKING:
    from torch import Tensor, nn

_OPTIONS = ("words", "pairs", "max_length", *PLACE_OPTIONS)


def load(identifier: Identifier) -> SentenceBackbone:
    """An encoder by its name on the Hugging Face Hub; a name without an owner is one of sentence-transformers."""
    name = identifier.name
    identifier.check_options(_OPTIONS)
    repository = open_repository(name if "/" in name else f"sentence-transformers/{name}", identifier)
    modules = _modules(repository.read_json("modules.json") or [], identifier)
    folders = [str(module.get("path") or "") for module in modules]
    folder = fetch_model(repository, identifier.options, list(dict.fromkeys([*folders, ""])))
    return load_folder(folder, identifier, repository=repository)


def load_folder(folder: Path, identifier: Identifier, *, repository: Repository | None = None) -> SentenceBackbone:
    """An encoder from a folder that sentence-transformers, or hubscout, saved; `repository` is where it came from."""
    described = read_description(folder)
    saved: dict[str, Any] = {name: described[name] for name in ("pairs", "words") if name in described}
    if saved:
        identifier = identifier.with_options(**{**saved, **identifier.options})
    transformers = huggingface.import_transformers()
    library = require("sentence_transformers", extra="text", purpose="Sentence encoders")
    identifier.check_options(_OPTIONS)
    listed = folder / "modules.json"
    if repository is None and listed.is_file():
        _modules(read_settings(listed), identifier)
    trusted = is_allowed(identifier.options, "trust_remote_code")
    if trusted:
        before_user_code()
    places = [folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())]
    try:
        with huggingface.quiet(transformers):
            encoder = library.SentenceTransformer(
                str(folder), device="cpu", trust_remote_code=trusted, local_files_only=True
            )
        tokenizer = getattr(encoder, "tokenizer", None)
    except Exception as error:
        raise missing_vocabulary(places, str(identifier)) or explain_failure(error, str(identifier)) from error
    if hasattr(tokenizer, "model_input_names"):
        check_vocabulary(tokenizer, getattr(encoder[0], "auto_model", None), places, str(identifier))
    has_head = described.get("saved_as") == SENTENCE_ENCODER
    return SentenceBackbone(encoder, identifier, facts=repository.facts if repository else None, has_head=has_head)


def _modules(listed: Any, identifier: Identifier) -> list[dict[str, Any]]:
    """The parts of an encoder as its `modules.json` lists them; refused if one is code that the user did not allow.

    The library asks too, but in some versions not for a folder on this machine.
    """
    try:
        kinds = [str(module["type"]) for module in listed]
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"modules.json of {identifier} does not list the parts of a sentence encoder.") from error
    ours = all(kind.startswith("sentence_transformers.") for kind in kinds)
    if not ours and not is_allowed(identifier.options, "trust_remote_code"):
        raise needs_code(str(identifier))
    return list(listed)


class SentenceBackbone(Backbone):
    """A `SentenceTransformer` whose first part is a transformer over text.

    Its embedding is the features; for words, its token embeddings are.

    Layers are `layer.0` (what goes into the first block) to `layer.L`, averaged over tokens, and `mean`, the average of
    `layer.1` to `layer.L`. A pair of texts gives [u, v, |u − v|, u·v] of its two embeddings unless `pairs=cross`.
    `has_head` says that the last part is a head that tuning put there: its output is the logits, and what goes into it
    the features. `facts` are further fields of the card.
    """

    module: nn.Module
    settled_options = frozenset({"words", "pairs", "max_length", "revision", "pickle"})

    def __init__(
        self, encoder: Any, identifier: Identifier, *, facts: Mapping[str, Any] | None = None, has_head: bool = False
    ) -> None:
        self._network: Any = getattr(encoder[0], "auto_model", None)
        tokenizer: Any = getattr(encoder, "tokenizer", None)
        if self._network is None or not hasattr(tokenizer, "model_input_names"):
            raise ModelError(
                f"{identifier}: the first part of this encoder is a {type(encoder[0]).__name__}, not a transformer "
                "over text. Image and two-tower models open as hf/ID."
            )
        self.module = encoder.float().eval()
        self.identifier = str(identifier)
        self.preprocessing: TextPreprocessing = tokenize_with(
            tokenizer,
            self._network,
            identifier.options,
            pairs="siamese",
            usual=encoder.max_seq_length,
            prompt=(encoder.prompts or {}).get(encoder.default_prompt_name or "", ""),
        )
        self._parts: list[Any] = list(encoder.children())
        self._head: Any = self._parts.pop() if has_head else None
        self.card = describe(
            self,
            self.preprocessing.example(TOKENS_FOR_FLOPS),
            *map(repr, self._parts),
            identifier=self.identifier,
            architecture=self._network.config.model_type,
            modalities=TEXT_MODALITIES,
            source_classes=self._head.out_features if self._head is not None else None,
            **(facts or {}),
        )

    @property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(f"layer.{index}" for index in range(self._network.config.num_hidden_layers + 1))

    @property
    def averages_layers(self) -> bool:
        return True

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        if layers:
            check_layers(layers, self.layer_names, self.identifier, averages=self.averages_layers)
        first = self._run(model_inputs(batch), batch.get(WORDS), batch.get(WORD_ENDS), layers)
        if not is_siamese(batch):
            return first
        return join_pair(first, self._run(model_inputs(batch, second=True), None, None, layers))

    def _run(self, inputs: Batch, words: Tensor | None, ends: Tensor | None, layers: Sequence[str]) -> Output:
        states: Sequence[Tensor] = ()
        if layers:
            # The first part gives its last layer only: here its network is asked for all of them.
            accepted = inspect.signature(self._network.forward).parameters
            asked = {name: value for name, value in inputs.items() if name in accepted}
            inner = self._network(**asked, output_hidden_states=True)
            states = inner["hidden_states"]
            found: dict[str, Any] = {**inputs, "token_embeddings": inner["last_hidden_state"]}
        else:
            found = self._parts[0](dict(inputs))
        for part in self._parts[1:]:
            found = part(found)

        def pooled(hidden: Tensor) -> Tensor:
            return pool(hidden, inputs[MASK], "mean") if words is None else select_words(hidden, words, ends)

        features = found["sentence_embedding"] if words is None else pooled(found["token_embeddings"])
        logits = None
        if self._head is not None and words is None:
            logits = self._head({"sentence_embedding": features})["sentence_embedding"]
        return Output(features, logits, {name: pooled(layer_state(states, name)) for name in layers})

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        from hubscout.hubs.saving import save_sentence_encoder

        with huggingface.quiet(huggingface.import_transformers()):
            save_sentence_encoder(self, folder, head=head, target_names=target_names, kind=kind)


def list_models(pattern: str, limit: int | None = None) -> ModelListing:
    """Encoders of the sentence-transformers organisation, as the Hub or the local cache has them."""
    found = search(pattern if "/" in pattern else f"sentence-transformers/{pattern}", limit)
    names = (entry.identifier.removeprefix("hf/").removeprefix("sentence-transformers/") for entry in found)
    entries = (
        replace(entry, identifier=f"sentence-transformers/{name}", modalities=TEXT_MODALITIES)
        for entry, name in zip(found, names, strict=True)
    )
    return ModelListing(entries, found.notes)
