"""Save finished runs as small JSON records: configuration, results, machine and commit.

Run `python records/record.py RUN [RUN ...] --machine "two CPU cores"`, then `python docs/generate.py`.

The name of a record follows from the run's configuration: data, method, epochs, and each setting that differs from its
default, as in cifar10-frossl-30-seed1. A record replaces an earlier one of the same name.
"""

import argparse
from pathlib import Path
from typing import Any

from twofold_papers.reproduce.record import head_commit, record, record_name, write_record

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--to", type=Path, default=HERE)
    parser.add_argument("--machine", default="", help="name of the machine; default: the name of the device")
    parser.add_argument("--commit", default="", help="commit that made the runs; default: the current commit")
    arguments = parser.parse_args()
    made: dict[str, tuple[Path, dict[str, Any]]] = {}
    for run in arguments.runs:
        if not (run / "results.json").exists():
            parser.error(f"{run} is not a finished run: it has no results.json")
        values = record(run, arguments.machine, arguments.commit or head_commit())
        name = record_name(values["config"])
        if name in made:
            parser.error(f"{made[name][0]} and {run} have the same configuration, so both records would be {name}.json")
        made[name] = run, values
    for name, (_, values) in made.items():
        print(write_record(arguments.to, name, values))


if __name__ == "__main__":
    main()
