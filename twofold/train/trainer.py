"""The training loop. `Trainer.train` reads from top to bottom; `step.py` has the training step."""

import copy
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold import dist
from twofold.config import Config
from twofold.cuda.step_graph import StepGraph, keep_compiled_code, worth_compiling
from twofold.cuda.streams import Streams
from twofold.data.source import Data
from twofold.data.store import ImageStore
from twofold.device import autocast_of, choose_device, evaluation_precision, kept_memory
from twofold.display import Display, Stage, status_line
from twofold.errors import Diverged, Interrupted, TwofoldError, how_to_resume
from twofold.evaluate.encoder import Encoder
from twofold.evaluate.features import Subset
from twofold.methods.relations import graph_fingerprint
from twofold.models import feature_dimension, one_by_one, share_statistics
from twofold.models.blocks import constant_modules
from twofold.models.encoders import choose_memory_format
from twofold.randomness import own_randomness, seed_all
from twofold.runs import checkpoint, environment, snapshots
from twofold.runs.folder import RunFolder
from twofold.runs.provenance import describe_changes, has_same_images
from twofold.runs.records import RECORDS
from twofold.train import guards, loggers, setup
from twofold.train.log_points import log_spaced
from twofold.train.micro_batches import refuse_uneven
from twofold.train.objective_check import embedding_width, try_objective
from twofold.train.optim import (
    build_optimizer,
    head_steps,
    learning_rates,
    load_optimizer_state,
    optimizer_state,
)
from twofold.train.state_check import find_misfit
from twofold.train.step import EagerSteps, TrainingStep, ViewMaker
from twofold.train.watch import is_online_epoch, record_spectrum, refuse_nonfinite

LOG_POINTS = 64  # on a log scale over the run, in addition to the end of every epoch


class Trainer:
    """Trains a run: the networks, the optimizer, the observers, and the loop over all steps."""

    def __init__(
        self,
        config: Config,
        data: Data,
        display: Display,
        encoder: nn.Module | None = None,
        weights: Mapping[str, Tensor] | None = None,
        made: Mapping[str, Tensor] | None = None,
    ):
        """Build all parts and check the settings. This writes nothing.

        `weights` are those from `init`, and `made` are those from `setup.weights_from_images`.
        """
        loggers.require(config.log)
        self.config, self.display = config, display
        self.device = choose_device(config.device)
        self.data = setup.place(data, self.device)
        shares = setup.shares_of(config)
        self.loader = setup.build_loader(config, self.data.train, shares)
        self.augment, self.small_crops = setup.build_augmenters(config, data.train, self.device)
        self._build_networks(encoder, weights, made)
        self.optimizer = build_optimizer(
            config, self.method.trained_parameters(), self.device, self.method.steady(), self.method.encoder
        )
        steps_per_epoch = self.loader.steps_per_epoch
        self.head_steps = head_steps(config, steps_per_epoch)
        self.rates = learning_rates(config, steps_per_epoch).float().to(self.device)
        # The schedule of the encoder starts when its training does.
        later = learning_rates(config, steps_per_epoch, self.head_steps).float().to(self.device)
        self.encoder_rates = later if self.head_steps else self.rates
        self.rows = setup.build_rows(config, self.method, self.loader.order)
        width = embedding_width(config.method, self.method, self.features_width, self.device)
        self.observers = setup.build_observers(config, data, self.method, self.features_width, width, self.device)
        self.watch = setup.build_watch(config, data, self.method)
        self.exchange = setup.build_exchange(config, self.method, shares, self.observers)
        for batch_size in {config.batch_size, self.loader.last_batch_size}:
            shares(batch_size, self.device)  # raises an error for fewer images than processes
            index = self.loader.order.index[:batch_size].to(self.device)
            try_objective(config, self.method, index, self.features_width, width)

        self.step = 0
        self.total_steps = config.epochs * self.loader.steps_per_epoch
        self.clock = torch.zeros((), dtype=torch.int64, device=self.device)  # the number of the step, on the device
        # With select=best, the encoder is kept after these steps.
        self.snapshot_steps = snapshots.steps_of(self.total_steps) if config.select == "best" else []
        self.spectrum_points = set(log_spaced(self.total_steps, LOG_POINTS))
        self.started = self.last_save = time.monotonic()
        self.measured_from = self.started, self.step
        self.send: loggers.Write = lambda *_: None  # to loggers, during `train`
        self._build_step()

    def _build_networks(
        self, encoder: nn.Module | None, weights: Mapping[str, Tensor] | None, made: Mapping[str, Tensor] | None
    ) -> None:
        config, channels = self.config, self.data.train.images.shape[1]
        assert config.image_size is not None
        # A module of the user gets its gradients back after training, see `train`.
        own = () if encoder is None else encoder.parameters()
        self.trainable = [parameter for parameter in own if parameter.requires_grad]
        # The evaluation compares with `untrained` and, if the run starts from other weights, with `before`.
        method, self.features_width, self.untrained = setup.build_method(
            config, self.data.train, encoder, weights, made
        )
        for network in (method, self.untrained):  # each process may have drawn other weights for a user's encoder
            dist.copy_from_first(network.state_dict().values())
        self.before = None if weights is None else copy.deepcopy(method.encoder)
        if self.small_crops is not None:  # raises an error if the encoder takes images of one size only
            feature_dimension(method.encoder, channels, self.small_crops.image_size)
        self.memory_format = choose_memory_format(
            method.encoder, channels, config.image_size, self.device, ours=encoder is None
        )
        self.method = method.to(self.device, memory_format=self.memory_format)  # type: ignore[call-overload]
        if dist.count() > 1:
            share_statistics(self.method)
        elif self.device.type == "cpu":  # its caches hold one view better than all; processes exchange statistics once
            self.method.pass_views = one_by_one
        if config.freeze is not None or config.freeze_batchnorm != "none":
            self.method.keep_constant(lambda each: constant_modules(each, config.freeze, config.freeze_batchnorm))

    def _build_step(self) -> None:
        """Build what runs a step: eager PyTorch, or on CUDA a recorded CUDA graph."""
        config = self.config
        if config.pieces > 1:
            refuse_uneven(config.pieces, config.batch_size)
        if self.device.type == "cuda":
            keep_compiled_code()
        if dist.count() > 1 and config.compile:
            raise TwofoldError(f"compile=true needs a single process, but there are {dist.count()}: leave compile out")
        compiled = dist.count() == 1 and worth_compiling(config.compile, self.device, self.total_steps)
        make_views = ViewMaker(self.augment, self.small_crops, self.memory_format).make
        self.make_views = torch.compile(make_views, dynamic=False) if compiled else make_views
        self.train_step = TrainingStep(
            config,
            self.method,
            self.optimizer,
            self.rates,
            self.encoder_rates,
            self.observers,
            self.exchange,
            self.clock,
            self.total_steps,
            self.memory_format,
            compiled=compiled,
        )
        self.eager = EagerSteps(self.loader, self.make_views, self.train_step, self.clock, self.exchange)
        self.run_step: EagerSteps | StepGraph = self.eager
        # A CUDA graph cannot repeat random draws, which the two passes of micro-batches need with some user's networks.
        if compiled and (config.pieces == 1 or self.method.together):
            streams = self.train_step.streams
            assert isinstance(streams, Streams)
            self.run_step = StepGraph(self.loader, self.make_views, self.train_step, self.clock, streams)

    def train(self, folder: RunFolder) -> None:
        """Train to the end or until a stop signal; either way, the last action is to write a checkpoint."""
        self.folder = folder
        self.method.train()
        try:
            self._train(folder)
        finally:
            for parameter in self.trainable:
                parameter.requires_grad_(True)

    def _train(self, folder: RunFolder) -> None:
        title = f"{self.config.method} on {self.data.name}"
        with (
            torch.enable_grad(),
            own_randomness(),
            kept_memory(when=self.device.type == "cpu"),
            guards.memory_errors(),
            guards.lost_processes(folder.path),
            guards.stop_signals() as signals,
            loggers.logging_to(self.config, folder, self.step) as self.send,
            self.rows.opened(folder.path),
            self.display.stage(title, self.total_steps, keep=True) as stage,
        ):
            self.started = time.monotonic()
            self.measured_from = self.started, self.step
            if isinstance(self.run_step, StepGraph):
                stage.note(self.step, "compiling; takes up to a minute the first time, then comes from a cache")
            stop: int | None = None
            while self.step < self.total_steps:
                self.take_step(self.step)
                self.step += 1
                if self.step in self.spectrum_points or self.step % self.loader.steps_per_epoch == 0:
                    self.log(stage)
                if self.step in self.snapshot_steps and dist.is_first():
                    snapshots.save_snapshot(folder.path, self.step, self.method.encoder)
                stage(self.step)
                stop = stop or dist.stop_for(signals)
                if self.step == self.total_steps or self.is_time_to_save(stop):
                    if stop:
                        self.display.say(
                            "saving a checkpoint; Ctrl-C again stops at once and loses the work since the last one"
                        )
                    self.save()
                    if stop := stop or dist.stop_for(signals):
                        raise Interrupted(folder.path, stop)

    def take_step(self, step: int) -> None:
        # Twofold's random numbers need no seed here; a user's encoder may draw, for instance for dropout.
        seed_all((self.config.seed * 1_000_003 + step + dist.rank() * 2**40) % 2**63, self.device)
        self.rows.send(step)
        heads_only = step < self.head_steps
        self.method.train_heads_only(heads_only)
        (self.eager if heads_only else self.run_step)(step)  # a CUDA graph repeats the step of all parts
        self.rows.receive(step)

    def log(self, stage: Stage) -> None:
        """Write what the observers recorded since the last log point. Nothing else in the loop waits for the device."""
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
        if isinstance(self.run_step, StepGraph) and (reason := self.run_step.take_refusal()):
            self.display.say(f"compile  steps run without a CUDA graph: {reason}")
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
        """The accuracy of the online probe on these images; empty without labels to train or test it."""
        store = store.labelled()
        if self.observers.probe is None or store.labels is None:
            return {}
        logits = self.observers.probe.logits(self.features(store).to(self.device))
        return {"online_accuracy": (logits.argmax(dim=1).cpu() == store.labels.cpu()).double().mean().item()}

    def encoder(self, network: nn.Module | None = None) -> Encoder:
        """The trained encoder, or another network, with the preprocessing and precision of the run."""
        network = self.method.encoder if network is None else network.to(self.device)
        autocast = autocast_of(evaluation_precision(self.config.precision, self.device), self.device)
        return Encoder(network, self.augment.eval_transform, self.device, autocast)

    def features(self, store: ImageStore, network: nn.Module | None = None) -> Tensor:
        """The features of all images; the processes share the work."""
        several = 1 < dist.count() <= len(store)
        shares = dist.Shares(len(store), torch.device("cpu")) if several else None
        own = self.encoder(network).features(store if shares is None else Subset(store, shares.own))
        return own if shares is None else shares.gather(own)

    def description(self) -> dict[str, Any]:
        """What `load_encoder` needs to build the encoder and to preprocess images."""
        return {
            "encoder": self.config.encoder,
            "stem": self.config.stem,
            "channels": self.data.train.images.shape[1],
            "image_size": self.config.image_size,
            "mean": self.augment.eval_transform.mean.tolist(),
            "std": self.augment.eval_transform.std.tolist(),
            **({} if self.config.pixel_range == "type" else {"pixel_range": self.config.pixel_range}),
        }

    def fingerprint(self) -> str:
        """A fingerprint of all that a run reads: the images, and what its graph takes from elsewhere."""
        graph = self.config.parameters.get("graph")
        return self.data.fingerprint + ("" if graph is None else graph_fingerprint(graph, self.data.train))

    def is_time_to_save(self, stop: int | None) -> bool:
        """Whether to save now. With classifier rows in several processes, all save together; else the first decides."""
        every = self.config.checkpoint.seconds
        due = stop is not None or time.monotonic() - self.last_save >= every
        return due if every == 0 else self.rows.all_save(self.step, due)

    def state(self, rows: dict[str, Any] | None, records: dict[str, Any]) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint(),
            "method": self.method.state_dict(),
            "optimizer": optimizer_state(self.optimizer),
            "observers": self.observers.state_dict(),
            "records": records,
            "rows": rows,
        }

    def save(self) -> None:
        weights = torch.stack([parameter.detach().abs().max() for _, parameter in self.method.trained_parameters()])
        if not torch.isfinite(weights).all():
            raise Diverged(
                f"The weights are not finite at step {self.step} and were not saved.", "Lower lr, or set clip=1"
            )
        rows = self.rows.save()
        if dist.is_first():
            growing = self.folder.record_checksums()
            state = self.state(rows, {name: growing[name] for name in RECORDS})
            facts = {"records": growing, "environment": environment.describe(self.device)}
            checkpoint.save(self.folder.path, self.step, state, self.config.checkpoint.keep, facts)
        self.rows.saved()
        self.last_save = time.monotonic()

    def has_images_of(self, run: Path, fingerprint: str) -> bool:
        """Whether these are the images of the run, although the files differ, as those of a copy do."""
        rest = len(self.data.fingerprint)
        return fingerprint[rest:] == self.fingerprint()[rest:] and has_same_images(run, self.data)

    def what_changed(self, run: Path, fingerprint: str) -> str:
        """What differs from the data of the folder's run, for a message."""
        rest = len(self.data.fingerprint)
        if fingerprint[:rest] == self.data.fingerprint:
            return f" (the file {self.config.parameters['graph'].source})"
        found = describe_changes(run, self.data)
        return f" ({found})" if found else ""

    def restore(self, folder: RunFolder) -> None:
        """Continue from the newest readable checkpoint of the folder, or from the start if there is none."""
        current = self.method.state_dict(), self.optimizer, self.observers.state_dict()
        found = folder.load_checkpoint(
            self.display.say,
            allow_older=self.rows.can_return(folder.path),
            find_misfit=lambda state: find_misfit(state, *current),
            environment=environment.describe(self.device),
        )
        dist.same_everywhere("checkpoints", str(found and found[0]))
        if found is None:
            folder.rewind({})
            return
        rows = found[1].pop("rows", None)  # they stay on the host
        self.step, state = found[0], checkpoint.to_device(found[1], self.device)
        if state["fingerprint"] != self.fingerprint() and not self.has_images_of(folder.path, state["fingerprint"]):
            changes = self.what_changed(folder.path, state["fingerprint"])
            raise TwofoldError(
                f"the data of {folder.path} have changed since the run started{changes}; restore them, or pass the "
                f"path of an unchanged copy: {how_to_resume(folder.path)} DATA"
            )
        self.method.load_state_dict(state["method"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.observers.load_state_dict(state["observers"])
        self.rows.restore(rows)
        folder.rewind(state["records"], self.step)
        if dist.is_first():
            self.watch.restore(folder)
        self.clock.fill_(self.step)
