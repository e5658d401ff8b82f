"""What int8 costs a tuned model of images: size, answers and accuracy on the test split, before and after.

    python docs/tools/int8.py my-model/ surfaces/

The code that predicts and quantises is that of the page on deployment, read from it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from blocks import read_blocks

PAGE = Path(__file__).resolve().parents[1] / "how-to" / "deploy.md"
CALIBRATED_ON = 50


def code_of_page() -> dict[str, Any]:
    """`Predictor`, `Pictures` and the functions of onnxruntime, as the page defines and imports them."""
    names: dict[str, Any] = {}
    for block in read_blocks(PAGE):
        if "class Predictor" in block.source:
            exec(block.source, names)
        elif "class Pictures" in block.source:
            exec(block.source.partition("\nquant_pre_process(")[0], names)
    return names


def main() -> None:
    """Export, quantise, compare."""
    from hubscout.tasks import open_task
    from hubscout.tuning import Tuned

    parser = argparse.ArgumentParser(description="Measure what int8 costs a tuned model of images.")
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    code = code_of_page()
    task = open_task(given.data)
    with tempfile.TemporaryDirectory() as folder:
        whole, prepared, small = (Path(folder) / f"{name}.onnx" for name in ("whole", "prepared", "int8"))
        Tuned.load(given.model).export_onnx(whole)
        predict = code["Predictor"](str(whole))
        pictures = code["Pictures"](predict, [])
        rows = range(min(CALIBRATED_ON, len(task.train)))
        pictures.inputs = ({"pixel_values": predict.pixels(task.train.inputs[row])[None]} for row in rows)
        code["quant_pre_process"](str(whole), str(prepared))
        kinds = code["QuantType"]
        types = {"activation_type": kinds.QUInt8, "weight_type": kinds.QInt8}
        code["quantize_static"](str(prepared), str(small), pictures, per_channel=True, **types)
        images = [task.test.inputs[row] for row in range(len(task.test))]
        truth = [task.target_names[target] for target in task.test.targets]
        answers = {}
        for path in (whole, small):
            answers[path.stem] = [max(one, key=one.get) for one in code["Predictor"](str(path))(images)]
            right = sum(a == b for a, b in zip(answers[path.stem], truth, strict=True))
            print(f"{path.stem}: {path.stat().st_size / 1e6:.1f} MB, {right} of {len(truth)} right")
        same = sum(a == b for a, b in zip(answers["whole"], answers["int8"], strict=True))
        print(f"{same} of {len(truth)} answers are the same")


if __name__ == "__main__":
    main()
