"""The reference log Z of the hidden Markov experiment on its own, beside the recorded one.

    python benchmarks/hmm_reference.py --out results/hmm

`nestedvi reproduce hmm` computes the same reference on its way through trainings that take hours of
a GPU. A gap of the table is the reference less a row's log Z: where the reference moves by some
amount on average, all gaps move by it. Writes reference.json.
"""

import argparse
import json
import time

from nestedvi.paper.hmm.cells import ReferenceCell, pick
from nestedvi.paper.hmm.config import HMMConfig
from nestedvi.paper.hmm.reference import compute_reference
from nestedvi.storage.files import output_folder, provenance, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="results/hmm", help="the folder with results.json")
    parser.add_argument("--references", type=int, default=100, help="test instances")
    args = parser.parse_args()
    folder, began = output_folder(args.out), time.perf_counter()
    config = HMMConfig(references=args.references)
    row, arrays = compute_reference(pick(ReferenceCell, config, name="reference"))
    recorded = json.loads((folder / "results.json").read_text(encoding="utf-8"))["reference"]
    content = {
        "reference": row,
        "log_Z": arrays["log_Z"].tolist(),
        "stderr": arrays["stderr"].tolist(),
        "seconds": time.perf_counter() - began,
    }
    if recorded["instances"] == args.references:
        content["recorded_mean"] = recorded["log_Z_mean"]
        content["difference_of_means"] = float(row["log_Z_mean"] - recorded["log_Z_mean"])
        # Of each mean: its instances are independent, and none errs by more than the largest.
        content["bound_on_stderr_of_means"] = [
            float(one["stderr_max"] / args.references**0.5) for one in (row, recorded)
        ]
    write_json(folder / "reference.json", {**content, **provenance(config.seed)})
    print(json.dumps({name: content[name] for name in content if name not in ("log_Z", "stderr")}))


if __name__ == "__main__":
    main()
