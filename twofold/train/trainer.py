"""The training loop. `Trainer.train` reads top to bottom; the loss is in `Trainer.training_step`."""

import copy
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold import dist
from twofold.config import Config
from twofold.cuda.bf16_weights import Bf16Weights
from twofold.cuda.compilation import keep_compiled_code, worth_compiling
from twofold.cuda.step_graph import Replay
from twofold.cuda.streams import Streams
from twofold.data.augment import Augmenter
from twofold.data.loader import Loader
from twofold.data.sources import Data
from twofold.data.store import ImageStore
from twofold.device import choose_device
from twofold.display import Display, Stage, status_line
from twofold.errors import Diverged, Interrupted, TwofoldError, how_to_resume
from twofold.evaluate.features import Part, extract
from twofold.methods.relations import file_fingerprint
from twofold.models import BatchRows, feature_dimension, fuse, share_statistics
from twofold.precision import autocast_of, tf32_products, uses_bf16
from twofold.randomness import own_randomness, seed_all
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder
from twofold.runs.provenance import same_images
from twofold.train import guards, loggers
from twofold.train.dry_run import embedding_width, try_objective
from twofold.train.exchange import Exchange
from twofold.train.memory_format import choose_memory_format, to_memory_format
from twofold.train.micro_batches import Pieces, refuse_uneven
from twofold.train.observers import Observers, log_spaced
from twofold.train.optim import (
    build_optimizer,
    learning_rates,
    load_optimizer_state,
    optimizer_state,
    set_learning_rate,
)
from twofold.train.sample_rows import SampleRows
from twofold.train.setup import build_method
from twofold.train.watch import Watch, is_online_epoch, record_spectrum, refuse_nonfinite
from twofold.types import Batch, Embeddings

LOG_POINTS = 64  # on a log scale over the run, beside the end of every epoch


class Trainer:
    """Everything that a run changes, and how."""

    def __init__(
        self,
        config: Config,
        data: Data,
        display: Display,
        encoder: nn.Module | None = None,
        weights: Mapping[str, Tensor] | None = None,
    ):
        """Builds all of it and writes nothing: what cannot work is refused here."""
        loggers.require(config.log)
        self.config, self.display = config, display
        self.device = choose_device(config.device)
        self.autocast = autocast_of(config.precision, self.device)
        self.bf16 = uses_bf16(config.precision, self.device)
        test = None if data.test is None else data.test.place(self.device)
        self.data = dataclasses.replace(data, train=data.train.place(self.device), test=test)
        shares = functools.cache(functools.partial(dist.Shares, pieces=config.pieces))
        self.loader = Loader(
            self.data.train,
            batch_size=config.batch_size,
            seed=config.seed,
            drop_last=config.drop_last,
            share=None if dist.count() == 1 else lambda size, device: shares(size, device).own,
        )
        mean, std = data.train.statistics()
        guards.refuse_blank(std)
        assert config.image_size is not None
        self.augment = Augmenter(
            config.augment, views=config.views, image_size=config.image_size, mean=mean, std=std, seed=config.seed
        ).to(self.device)
        self.small_crops = self.augment.small_crops()

        # `untrained` stays as it is, to compare with; so does what the run began with, where that is not the same.
        method, features, self.untrained = build_method(config, self.data.train, encoder, weights)
        for network in (method, self.untrained):  # a user's encoder may have been drawn by each process
            dist.copy_from_first(network.state_dict().values())
        self.before = None if weights is None else copy.deepcopy(method.encoder)
        if self.small_crops is not None:  # refuses an encoder that takes images of one size only
            feature_dimension(method.encoder, len(mean), self.small_crops.image_size)
        self.memory_format = choose_memory_format(
            method.encoder, len(mean), config.image_size, self.device, ours=encoder is None
        )
        self.method = method.to(self.device, memory_format=self.memory_format)  # type: ignore[call-overload]
        if dist.count() > 1:
            share_statistics(self.method)
        self.optimizer = build_optimizer(config, method.trained_parameters(), self.device, method.steady())
        self.optimizer_step: Callable[[], None] = self.optimizer.step
        self.rates = learning_rates(config, self.loader.steps_per_epoch).float().to(self.device)
        self.rows: SampleRows | None = None  # of a head that is outside the network, and trained beside it
        if isinstance(method.head, BatchRows):
            self.rows = SampleRows(config, method.head, self.loader.order.on_host())
        classes = len(data.classes) if data.classes is not None and data.train.labels is not None else None
        dimension = embedding_width(config.method, method, features, self.device)
        self.observers = Observers(
            features, dimension, classes, config.online_lr, self.device, predictor=method.predictor is not None
        )
        looked_at = None if data.test is None or data.test.labels is None else data.test.labels_known
        self.watch = Watch(
            method=config.method, few_dimensions=method.few_dimensions, guess=method.guess, held_out=looked_at
        )
        self.exchange: Exchange | None = None
        if dist.count() > 1:
            self.exchange = Exchange(method, shares, config.batch_size, config.views, self.observers)
        for batch_size in {config.batch_size, self.loader.last_batch_size}:
            shares(batch_size, self.device)  # refuses a batch with fewer images than there are processes
            try_objective(config, method, data.train.index[:batch_size].to(self.device), features, dimension)

        self.step = 0
        self.total_steps = config.epochs * self.loader.steps_per_epoch
        self.clock = torch.zeros((), dtype=torch.int64, device=self.device)  # the step, where the device can see it
        self.spectrum_points = set(log_spaced(self.total_steps, LOG_POINTS))
        self.started = self.last_save = time.monotonic()
        self.measured_from = self.started, self.step
        self.send: loggers.Write = lambda *_: None  # to loggers, while a run goes on
        self.streams: Streams | None = None  # where observers can work while gradients are computed
        self.narrow: Bf16Weights | None = None
        self.replay: Replay | None = None
        self.pieces: Pieces | None = None
        if config.pieces > 1:
            refuse_uneven(config.pieces, config.batch_size)
            self.pieces = Pieces(config.pieces, self.forward, method.trained_networks(), self.memory_format)
        if self.device.type == "cuda":
            keep_compiled_code()
        if dist.count() > 1 and config.compile:
            raise TwofoldError(f"compile=true is for one process, and there are {dist.count()}: leave compile out")
        if dist.count() == 1 and worth_compiling(config.compile, self.device, self.total_steps):
            self.compile()

    def compile(self) -> None:
        """Fused and compiled kernels where they pay, and the whole step as one graph."""
        from twofold.cuda.fused_optimizer import FusedStep  # Triton is there only where CUDA is

        torch.backends.cudnn.benchmark = True
        fuse(self.method)
        if self.bf16:
            self.narrow = Bf16Weights(self.method, self.method.networks(), torch.bfloat16)
            if self.pieces is not None:
                self.pieces.collect = self.narrow.collect_gradients
        self.optimizer_step = FusedStep(self.optimizer, self.narrow)
        self.make_views = torch.compile(self.make_views, dynamic=False)  # type: ignore[method-assign]
        self.streams = Streams(self.device)
        if self.pieces is None or self.method.together:  # else it may draw, and a recording cannot draw twice
            self.replay = Replay(self.loader, self.make_views, self.training_step, self.clock, self.streams)

    def train(self, folder: RunFolder) -> None:
        """Train to the end, or until a signal; either way the last thing done is a checkpoint in the run folder."""
        self.folder = folder
        self.method.train()
        title = f"{self.config.method} on {self.data.name}"
        with (
            torch.enable_grad(),
            own_randomness(),
            guards.memory_errors(),
            guards.lost_processes(folder.path),
            guards.stop_signals() as signals,
            loggers.logging_to(self.config, folder, self.step) as self.send,
            nullcontext() if self.rows is None else self.rows.opened(folder.path),
            self.display.stage(title, self.total_steps, keep=True) as stage,
        ):
            self.started = time.monotonic()
            self.measured_from = self.started, self.step
            if self.replay is not None:
                stage.note(self.step, "compiling: up to a minute the first time, then kept")
            stop: int | None = None
            while self.step < self.total_steps:
                self.take_step(self.step)
                self.step += 1
                if self.step in self.spectrum_points or self.step % self.loader.steps_per_epoch == 0:
                    self.log(stage)
                stage(self.step)
                stop = stop or dist.stop_for(signals)
                if self.step == self.total_steps or self.is_time_to_save(stop):
                    if stop:
                        self.display.say("saving; another Ctrl-C would lose what was learnt since the last checkpoint")
                    self.save()
                    if stop := stop or dist.stop_for(signals):
                        raise Interrupted(folder.path, stop)

    def take_step(self, step: int) -> None:
        # Twofold draws by counter alone; this is for what a user's encoder draws, such as dropout.
        seed_all((self.config.seed * 1_000_003 + step + dist.rank() * 2**40) % 2**63, self.device)
        if self.rows is not None:
            self.rows.send(step)
        if self.replay is not None:
            self.replay(step)
        else:
            batch = self.loader.batch(step)
            if self.exchange is not None:
                self.exchange.begin(self.loader.order.batch_size_of(step))
            self.training_step(batch, self.make_views(batch.images, batch.position, self.clock))
        if self.rows is not None:
            self.rows.receive(step)

    def training_step(self, batch: Batch, views: list[Tensor]) -> None:
        """One step, entirely on the device: nothing in it asks the host for a value."""
        self.optimizer.zero_grad()  # here, so that the last step's gradients take no room beside what the network keeps
        if self.narrow is not None:
            self.narrow.zero_grad()
        with tf32_products(self.bf16):
            embeddings = self.embed(views, batch)
            if self.exchange is None:
                loss = self.method.objective(embeddings)
            else:
                embeddings, batch = self.exchange.gather_batch(embeddings, batch)
                loss = self.exchange.loss(embeddings)
            rate = self.rates.take(self.clock)  # indexing with [] would wait for the device
            with self.side_stream():
                samples = None if self.exchange is None else self.exchange.samples
                self.observers.observe(embeddings, loss, batch, rate / self.config.scaled_lr, samples)

            loss.total.backward()
            if self.pieces is not None:
                self.pieces.backward()
            elif self.narrow is not None and self.config.clip > 0:
                self.narrow.collect_gradients()
            if self.exchange is not None:
                self.exchange.sum_gradients()
            if self.config.clip > 0:
                nn.utils.clip_grad_norm_(
                    (parameter for _, parameter in self.method.trained_parameters()), self.config.clip
                )
            set_learning_rate(self.optimizer, rate)
            self.optimizer_step()
            self.clock += 1
            self.method.update(embeddings, self.clock / self.total_steps)
            self.join()

    def embed(self, views: list[Tensor], batch: Batch) -> Embeddings:
        """What the network makes of the views; the method is then prepared for its loss, if these are all of them."""
        if self.exchange is not None:
            return self.pieces.embed(views, batch) if self.pieces else self.forward(views[0], batch, *views[1:])
        if self.pieces is not None:
            embeddings = self.pieces.embed(views, batch)
            self.method.prepare(embeddings.z)
            return embeddings

        def prepare(z: Tensor) -> None:
            with self.side_stream(), torch.autocast(self.device.type, enabled=False):
                self.method.prepare(z)

        embeddings = self.forward(views[0], batch, *views[1:], on_embeddings=prepare)
        self.join()
        return embeddings

    def join(self) -> None:
        if self.streams is not None:
            self.streams.join()

    def side_stream(self) -> AbstractContextManager[None]:
        """For what can go on while something else does, where the device can do both."""
        return nullcontext() if self.streams is None else self.streams.side_stream()

    def forward(self, *inputs: Any, **options: Any) -> Embeddings:
        with self.autocast():
            return (self.narrow or self.method)(*inputs, **options)

    def make_views(self, images: Tensor, position: Tensor, step: Tensor) -> list[Tensor]:
        """[V, N, C, S, S], and small crops [L, N, C, s, s] where there are any."""
        augmenters = [augment for augment in (self.augment, self.small_crops) if augment is not None]
        return [to_memory_format(augment(images, position, step), self.memory_format) for augment in augmenters]

    def log(self, stage: Stage) -> None:
        """Write what the observers gathered since the last log point. The only place that waits for the device."""
        epoch = self.step / self.loader.steps_per_epoch
        values = self.observers.read()
        refuse_nonfinite(self.folder, self.step, self.observers.means.broken, self.config.scaled_lr)
        eigenvalues = None
        if self.step in self.spectrum_points:
            eigenvalues, measured = record_spectrum(self.folder, self.step, self.observers, self.method.direct)
            values |= measured
        test = self.data.test
        if test is not None and test.labels is not None and is_online_epoch(epoch, self.config.epochs):
            values |= self.online_accuracy(test)
        metrics = {"step": self.step, "epoch": epoch, **values}
        self.folder.append("metrics.jsonl", metrics)
        warning = self.watch.note(metrics, eigenvalues)
        if warning is not None:
            for text in (f"warning  {warning.sentence}", f"try      {warning.remedy}"):
                self.folder.log(f"step {self.step} · {text}")
                self.display.say(text)
        now, (before, since) = time.monotonic(), self.measured_from
        speed = (self.step - since) * self.config.batch_size / (now - before)
        self.measured_from = now, self.step
        self.send(self.step, {"epoch": epoch, "images_per_second": speed} | values)
        times = {"step": self.step, "seconds": now - self.started, "images_per_second": speed}
        self.folder.append("timing.jsonl", times)
        place = f"epoch {round(epoch, 1):g}/{self.config.epochs}"
        line = f"{place} · {status_line(self.watch.metrics)} · {speed:,.0f} images/s"
        self.folder.log(f"step {self.step} · {line}")
        stage.note(self.step, line)

    @torch.no_grad()
    def online_accuracy(self, store: ImageStore) -> dict[str, float]:
        """Of the online probe on these images; nothing where there is no probe, for want of labels to train it."""
        store = store.labelled()
        if self.observers.probe is None or store.labels is None:
            return {}
        logits = self.observers.probe.logits(self.features(store).to(self.device))
        return {"online_accuracy": (logits.argmax(dim=1).cpu() == store.labels.cpu()).double().mean().item()}

    def features(self, store: ImageStore, encoder: nn.Module | None = None) -> Tensor:
        """Of all images, each taken through the encoder by one of the processes."""
        several = 1 < dist.count() <= len(store)
        shares = dist.Shares(len(store), torch.device("cpu")) if several else None
        own = extract(
            self.method.encoder if encoder is None else encoder.to(self.device),
            store if shares is None else Part(store, shares.own),
            self.augment.eval_transform,
            device=self.device,
            autocast=self.autocast,
        )
        return own if shares is None else shares.gather(own)

    def description(self) -> dict[str, Any]:
        """What it takes to build the encoder again and to feed it."""
        return {
            "encoder": self.config.encoder,
            "stem": self.config.stem,
            "channels": self.data.train.images.shape[1],
            "image_size": self.config.image_size,
            "mean": self.augment.eval_transform.mean.tolist(),
            "std": self.augment.eval_transform.std.tolist(),
        }

    def fingerprint(self) -> str:
        """Of all that a run reads from files: images, and what is known of their relations."""
        graph = self.config.parameters.get("graph")
        return self.data.fingerprint + ("" if graph is None else file_fingerprint(graph))

    def is_time_to_save(self, stop: int | None) -> bool:
        """Processes with rows of their own save together; else only the first does, and it alone decides."""
        every = self.config.checkpoint.seconds
        due = stop is not None or time.monotonic() - self.last_save >= every
        return due if self.rows is None or every == 0 else self.rows.all_save(self.step, due)

    def state(self, rows: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint(),
            "method": self.method.state_dict(),
            "optimizer": optimizer_state(self.optimizer),
            "observers": self.observers.state_dict(),
            "records": self.folder.offsets(),
            "rows": rows,
        }

    def save(self) -> None:
        weights = torch.stack([parameter.detach().abs().max() for _, parameter in self.method.trained_parameters()])
        if not torch.isfinite(weights).all():
            raise Diverged(
                f"the weights are not finite at step {self.step}, and were not saved: lower lr, or set clip=1"
            )
        rows = None if self.rows is None else self.rows.save()
        if dist.is_first():
            checkpoint.save(self.folder.path, self.step, self.state(rows), self.config.checkpoint.keep)
        if self.rows is not None:
            self.rows.saved()
        self.last_save = time.monotonic()

    def has_images_of(self, run: Path, fingerprint: str) -> bool:
        """Whether these are the run's images, though their files are other ones, as those of a copy are."""
        rest = len(self.data.fingerprint)
        return fingerprint[rest:] == self.fingerprint()[rest:] and same_images(run, self.data)

    def restore(self, folder: RunFolder) -> None:
        """Continue from the newest sound checkpoint of the folder, or from the start where there is none."""
        movable = self.rows is None or self.rows.can_return(folder.path)
        found = folder.checkpoint(self.display.say, or_older=movable)
        dist.same_everywhere("checkpoints", str(found and found[0]))
        if found is None:
            folder.rewind({})
            return
        rows = found[1].pop("rows", None)  # stays on the host
        self.step, state = found[0], checkpoint.to_device(found[1], self.device)
        if state["fingerprint"] != self.fingerprint() and not self.has_images_of(folder.path, state["fingerprint"]):
            raise TwofoldError(
                f"the data of {folder.path} have changed since it was started, and it goes on with the same images "
                f"alone: put them back as they were, or say where they are: {how_to_resume(folder.path)} DATA"
            )
        self.method.load_state_dict(state["method"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.observers.load_state_dict(state["observers"])
        if self.rows is not None:
            self.rows.restore(rows)
        folder.rewind(state["records"], self.step)
        if dist.is_first():
            self.watch.restore(folder)
        self.clock.fill_(self.step)
