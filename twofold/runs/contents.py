"""What the JSON files of a run folder contain. `RunFolder` checks it when it reads them."""

from twofold.runs.records import RECORDED
from twofold.schema import anything, either, fields, flag, items, measure, number, optional, text, values, whole

LONGEST = 1e10  # seconds
MOST_COUNT = 1e12
share = number(0, 1)

# A value of a key in config.json: `config.load` checks it against the key.
setting = either(optional(text), flag, number(-1e300, 1e300))
CONFIG = fields(
    {
        "values": lambda value: (
            values(either(setting, items(either(setting, items(setting)))))(value)
            or fields({"method": text, "data": text}, {"epochs": whole(0, MOST_COUNT), "seed": setting})(value)
        )
    },
    {"origin": values(text), "derived": values(either(setting, items(setting)))},
)

ROW = fields(
    {"name": text},
    {
        "linear_accuracy": optional(share),
        "few_labels_accuracy": optional(share),
        "few_labels_sd": optional(share),
        "knn_accuracy": optional(share),
        "labels_per_class": optional(whole()),
    },
)
VERDICT = fields({}, {"sentence": text, "kind": text, "evidence": items(text), "remedy": optional(text)})
GAIN = fields(
    {},
    {
        "sentence": text,
        "kind": text,
        "by": optional(text),
        "evidence": items(text),
        "remedy": optional(text),
        "surpassed_by": either(optional(text), items(anything)),
        "comparisons": items(fields({}, {"baseline": text, "measure": text})),
    },
)
count = optional(whole(0, MOST_COUNT))
RESULTS = fields(
    {},
    {
        "table": optional(items(ROW)),
        "verdict": optional(VERDICT),
        "gain": optional(GAIN),
        "kept": optional(fields({}, {"sentence": optional(text), "step": count})),
        "train_images": count,
        "test_images": count,
        "test_labelled": count,
        "skipped_images": count,
        "processes": count,
        "note": optional(text),
        "load": optional(items(text)),
        "measures": optional(values(optional(measure))),
        "meanings": optional(values(text)),
        "test_images_trained_on": count,
        "seconds": optional(number(0, LONGEST)),
        "memory": optional(number(0)),
        "process_memory": optional(number(0)),
        "command": optional(text),
        "device": optional(text),
        "versions": optional(values(text)),
        "records": RECORDED,
    },
)

step = whole(0, MOST_COUNT)


def _metrics(value: object) -> str:
    known = {"epoch": number(0, MOST_COUNT)}
    return fields({"step": step}, known)(value) or values(optional(measure))(value)


# A line of each file of records.
LINES = {
    "metrics.jsonl": _metrics,
    "spectrum.jsonl": fields({"step": step, "of": text, "eigenvalues": items(measure)}),
    "timing.jsonl": fields({"step": step, "seconds": number(0, LONGEST)}, {"images_per_second": optional(number(0))}),
}
