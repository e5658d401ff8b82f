"""What the files in a run folder are called."""

from __future__ import annotations

RANKING = "ranking.json"
"""Everything that a ranking knows."""
PREVIOUS_RANKING = "ranking.previous.json"
"""The ranking that was overwritten last."""
SCORES = "scores.parquet"
"""The table of a ranking, for other tools."""
EVENTS = "events.jsonl"
"""What happened in a ranking, one event per line."""
TUNING = "tuning.json"
"""What a tuning was and how well the model does."""
CURVES = "metrics.jsonl"
"""Losses and validation metrics of a tuning, one event per line."""
TRIALS = "trials.jsonl"
"""Finished trials of a comparison of methods or of a search, one per line."""
REFERENCE = "reference.csv"
"""What fine-tuning really gave."""
REFERENCES = (REFERENCE, "reference.json")
RACE = "race.json"
"""The outcome of a race."""
RACE_LINES = "race.jsonl"
"""What happened in a race, one event per line."""
RACE_EVIDENCE, RACE_WINNER, RACE_DEPLOYED = "evidence", "winner", "deployed"
"""Folders of a race: its ranking, the tuned winner, the model that the winners taught."""
GROWING = (EVENTS, CURVES, TRIALS, RACE_LINES)
"""The files that grow line by line while a run works."""
