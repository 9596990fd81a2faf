"""Programs that replace updates: what they may not change, and when Python makes updates.

On a CPU a program is the update traced by `make_fx`, as frozen as a CUDA graph, or a stand-in for
torch's.
"""

import copy
import gc
import itertools
import json
import logging
import random
import weakref
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from actlab.networks import Dropout
from actlab.runtime import accidents, devices
from actlab.tasks import Quantity, blocks, building, graphs, replay
from actlab.tasks.training import Training
from toys import QUIET, Frames, FrameTask, fitted
from updates_in_blocks import (
    CLASSIFIER,
    DROPOUT,
    OneByOne,
    Sizes,
    check_equal,
    left,
    runs_of,
    traced_on_a_cpu,
)

STEPS = {"class_path": "actlab.optim.Steps", "init_args": {"factors": {1: 0.5}, "by": "epoch"}}
LINEAR = {"class_path": "actlab.optim.Linear"}
LINEAR["init_args"] = {"by": "update", "start": 0, "end": 1000, "final": 0.5}  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Blocks end by their number of updates, not by a second."""
    monkeypatch.setattr(blocks, "LONGEST", 1e9)


LONG: dict[str, Any] = {"trainer.val_check_interval": 1.0, "trainer.limit_train_batches": 9}


def trained(kind: Any, folder: Any, *callbacks: Any, **options: Any) -> Any:
    task = kind(clean_training_loss=False)
    fitted(task, Frames(batch_size=4), folder, *callbacks, **options)
    return task


def scaled(found: dict[str, Quantity], factor: Any) -> dict[str, Quantity]:
    return {**found, "loss": Quantity(found["loss"].values * factor, found["loss"].weights)}


def check_like_single_updates(kind: Any, folder: Any, monkeypatch: Any) -> tuple[Any, list[int]]:
    """The task that was trained in blocks, and its replays."""
    single = trained(kind, folder, OneByOne())
    calls, _ = traced_on_a_cpu(monkeypatch)
    several = trained(kind, folder)
    check_equal(single.state_dict(), several.state_dict())
    assert several.calls == single.calls
    return several, calls


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stacked"])
def test_no_gradient_node_of_an_earlier_update_is_alive_in_a_capture(
    stacked, tmp_path, monkeypatch
):
    """Such a node names the stream of its update, for which no capture may wait."""
    known = Training.loss_of_update
    alive: list[bool] = []

    def nodes(module):
        return [
            torch.autograd.graph.get_gradient_edge(p).node.metadata
            for p in module.network.parameters()
        ]

    def marked(self, batch, number):
        loss = known(self, batch, number)
        for metadata in nodes(self):
            metadata["made by"] = "an update"
        return loss

    def program(gradients, batch):
        alive.extend("made by" in metadata for metadata in nodes(gradients.args[0]))
        return replay.traced(gradients, batch)

    monkeypatch.setattr(Training, "loss_of_update", marked)
    monkeypatch.setitem(replay.PROGRAMS, "cpu", program)
    configs = [run.config for run in runs_of(CLASSIFIER, LONG)]
    left(configs, tmp_path, False, stacked)
    assert alive
    assert not any(alive)


class ByUpdate(FrameTask):
    """A loss whose weight grows with the updates, as plain Lightning has it."""

    calls = 0

    def quantities(self, output: Any, batch: Any) -> Any:
        return scaled(super().quantities(output, batch), min(1.0, self.global_step / 100))


class ByEpoch(FrameTask):
    calls = 0

    def quantities(self, output: Any, batch: Any) -> Any:
        return scaled(super().quantities(output, batch), 1 / (1 + self.current_epoch))


class ByTable(FrameTask):
    """A weight for each of the three epochs."""

    calls = 0

    def quantities(self, output: Any, batch: Any) -> Any:
        return scaled(super().quantities(output, batch), [1.0, 0.5, 0.25][self.current_epoch])


class Falling(FrameTask):
    """A loss that falls with the number of its calls in training."""

    calls = property(lambda self: self.number())

    def count(self) -> None:
        raise NotImplementedError

    def quantities(self, output: Any, batch: Any) -> Any:
        if self.training:
            self.count()
        return scaled(super().quantities(output, batch), 1 / (1 + self.number() / 10))


class InAList(Falling):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.counted = {"calls": [0]}

    def number(self) -> int:
        return self.counted["calls"][0]

    def count(self) -> None:
        self.counted["calls"][0] += 1


class InAnObject(Falling):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.counted = SimpleNamespace(calls=0)

    def number(self) -> int:
        return self.counted.calls

    def count(self) -> None:
        self.counted.calls += 1


class Annealed(FrameTask):
    """A loss that falls with the number of its calls, a Python number."""

    calls = 0

    def quantities(self, output: Any, batch: Any) -> Any:
        self.calls += 1
        return scaled(super().quantities(output, batch), 1 / self.calls)


class Smoothed(FrameTask):
    """A loss with a mean of the outputs so far, a tensor that each call replaces."""

    calls, mean = 0, torch.zeros(())

    def quantities(self, output: Any, batch: Any) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * output.detach().mean()
        return scaled(super().quantities(output, batch), 1 + self.mean.tanh())


class Logging(FrameTask):
    """A loss that is also logged by Lightning, from Python."""

    calls = 0

    def quantities(self, output: Any, batch: Any) -> Any:
        found = super().quantities(output, batch)
        if self.training:
            self.log(
                "train/squared", found["loss"].values.mean() ** 2, on_step=False, on_epoch=True
            )
        return found


CHANGES = "an update changes an attribute of a module"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (ByUpdate, "the loss depends on the number of the update"),
        *((kind, CHANGES) for kind in (Annealed, Smoothed, InAList, InAnObject, Logging)),
    ],
)
def test_a_loss_that_reads_what_changes_is_not_replayed(kind, reason, tmp_path, monkeypatch):
    task, calls = check_like_single_updates(kind, tmp_path, monkeypatch)
    assert not calls
    assert task.not_replayed == reason


@pytest.mark.parametrize("kind", [ByEpoch, ByTable])
def test_a_loss_that_reads_the_epoch_gets_a_program_for_each(kind, tmp_path, monkeypatch):
    task, calls = check_like_single_updates(kind, tmp_path, monkeypatch)
    assert len(calls) > 20
    assert task.not_replayed == ""


def test_a_loss_that_reads_what_nobody_sees_is_not_replayed(tmp_path, monkeypatch):
    numbers = itertools.count(1)

    class Hidden(FrameTask):
        def quantities(self, output: Any, batch: Any) -> Any:
            return scaled(super().quantities(output, batch), 1 / (1 + next(numbers) / 10))

    calls, _ = traced_on_a_cpu(monkeypatch)
    assert trained(Hidden, tmp_path).not_replayed == "the losses of two equal updates differ"
    assert not calls


class Hooks(Callback):
    """Watches a layer and the gradient of its weights."""

    def __init__(self) -> None:
        self.outputs, self.norms = 0, 0

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        layer = next(part for part in module.network.modules() if isinstance(part, nn.Linear))
        layer.register_forward_hook(self.add_output)
        layer.weight.register_hook(self.add_norm)

    def add_output(self, layer: nn.Module, *_: Any) -> None:
        self.outputs += layer.training

    def add_norm(self, gradient: Any) -> None:
        self.norms += 1


def test_hooks_of_users_are_called_at_each_update(tmp_path, monkeypatch):
    traced_on_a_cpu(monkeypatch)
    task = trained(FrameTask, tmp_path, hooks := Hooks())
    assert (hooks.outputs, hooks.norms) == (task.global_step, task.global_step) == (36, 36)
    assert task.not_replayed == "a hook of a module or a parameter is called at each update"


class Stream(str):
    __slots__ = ()


class Cuda:
    """What torch.cuda does in a capture: a stream of its own, an error where the update waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream, self.captures = Stream("default"), 0
        self.mode: Any = 0
        self.waits = Waits()
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.stream)
        monkeypatch.setattr(torch.cuda, "set_stream", partial(setattr, self, "stream"))
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: self.mode)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", self.set_mode)
        monkeypatch.setattr(devices, "graphs", True, raising=False)
        monkeypatch.setattr(accidents, "harmed", False, raising=False)
        monkeypatch.setitem(replay.PROGRAMS, "cpu", replay.Captured)

    def set_mode(self, mode: Any) -> None:
        if mode == "error":
            self.waits.__enter__()
        elif self.mode == "error":
            self.waits.__exit__(None, None, None)
        self.mode = mode

    @contextmanager
    def graph(self, graph: Any, capture_error_mode: str) -> Any:
        self.captures += 1
        self.stream = Stream("capture")
        with Waits():
            yield  # as torch's, which ends the capture before it leaves the stream
        self.stream = Stream("default")


class Waits(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "_local_scalar_dense" in function.__name__:
            raise RuntimeError("called a synchronizing CUDA operation")
        return function(*args, **(kwargs or {}))


class Item(FrameTask):
    """A loss that the CPU reads."""

    def quantities(self, output: Any, batch: Any) -> Any:
        return scaled(super().quantities(output, batch), 1 / (1 + output.abs().mean().item()))


@pytest.mark.parametrize(
    "tried", [True, False], ids=["found before a capture", "a capture that fails"]
)
def test_an_update_that_waits_leaves_the_stream_and_harms_by_a_capture_alone(
    tried, tmp_path, monkeypatch
):
    single = trained(Item, tmp_path, OneByOne())
    cuda = Cuda(monkeypatch)
    if not tried:
        monkeypatch.setattr(replay, "_without_waiting", nullcontext)

    several = trained(Item, tmp_path)

    check_equal(single.state_dict(), several.state_dict())
    assert (cuda.captures, cuda.stream, cuda.mode) == (int(not tried), "default", 0)
    assert several.not_replayed == "called a synchronizing CUDA operation"
    assert accidents.harmed is not tried


def with_dropout(act: Any, outputs: int, shape: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[-1], 8), act(), nn.Dropout(0.1), nn.Linear(8, outputs))


def test_layers_that_are_seeded_at_each_call_are_not_tried(tmp_path, monkeypatch):
    calls, _ = traced_on_a_cpu(monkeypatch)
    task = trained(partial(FrameTask, network=with_dropout), tmp_path)
    assert not calls
    assert (
        task.not_replayed
        == "a layer may draw from torch's own generators, which are seeded at each call"
    )


def test_at_most_one_program_is_alive(tmp_path, monkeypatch):
    """Dropout falls after the first epoch, so that the program is made again."""
    living: Any = weakref.WeakSet()
    most = []

    class Program:
        def __init__(self, gradients: Any, batch: Any) -> None:
            gc.collect()
            most.append(len(living))
            living.add(self)
            self.program = replay.traced(gradients, batch)

        def __call__(self, batch: Any) -> Any:
            return self.program(batch)

    monkeypatch.setitem(replay.PROGRAMS, "cpu", Program)
    config = runs_of(CLASSIFIER, {**DROPOUT, **LONG, "model.schedules.dropout": STEPS})[0].config
    left([config], tmp_path, False, False)
    assert most == [0, 0]


class Wrong:
    """A program whose gradients are half too large."""

    made: ClassVar[list[Any]] = []

    def __init__(self, gradients: Any, batch: Any) -> None:
        self.program = replay.traced(gradients, batch)
        Wrong.made.append(weakref.ref(self))

    def __call__(self, batch: Any) -> Any:
        loss, means, gradients = self.program(batch)
        return loss, means, [1.5 * gradient for gradient in gradients]


class Noisy(torch.autograd.Function):
    """The identity, whose gradient has the noise of a GPU in half precision."""

    numbers = random.Random(0)

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        factors = [Noisy.numbers.gauss(1.0, 0.01) for _ in range(gradient.numel())]
        return gradient * torch.tensor(factors, dtype=gradient.dtype).view_as(gradient)


class NoisyTask(FrameTask):
    def quantities(self, output: Any, batch: Any) -> Any:
        return super().quantities(Noisy.apply(output), batch)


def test_a_program_may_differ_as_far_as_two_updates_do(tmp_path, monkeypatch):
    calls, _ = traced_on_a_cpu(monkeypatch)
    assert trained(NoisyTask, tmp_path).not_replayed == ""
    assert len(calls) > 20


@pytest.mark.parametrize("kind", [FrameTask, NoisyTask])
def test_a_program_that_differs_is_rejected_and_freed(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(Wrong, "made", [])
    monkeypatch.setitem(replay.PROGRAMS, "cpu", Wrong)
    task = trained(kind, tmp_path)
    gc.collect()
    assert task.not_replayed == "a replayed update differs from the update"
    assert [program() for program in Wrong.made] == [None]


def test_a_stack_keeps_its_program_through_an_early_validation(tmp_path, monkeypatch):
    """After four updates, when it has not yet been compared three times."""
    calls: list[int] = []

    def program(gradients, batch):
        made = replay.traced(gradients, batch)
        return lambda batch: calls.append(1) or made(batch)

    monkeypatch.setitem(replay.PROGRAMS, "cpu", program)
    settings = {"trainer.val_check_interval": 4, "trainer.limit_train_batches": 12}
    left([run.config for run in runs_of(CLASSIFIER, settings)], tmp_path, False, True)
    assert len(calls) > 10


def with_dropouts(configs: list[Any]) -> list[Any]:
    configs = copy.deepcopy(configs[:1]) + copy.deepcopy(configs[1:])  # which share their parts
    for config, probability in zip(configs, (0.2, 0.5), strict=True):
        config["model"]["init_args"]["network"]["init_args"]["dropout"] = probability
    return configs


def test_dropouts_that_differ_are_replayed_under_a_schedule(tmp_path, monkeypatch):
    settings = {**DROPOUT, **LONG, "model.schedules.dropout": STEPS, "trainer.max_epochs": 3}
    configs = with_dropouts([run.config for run in runs_of(CLASSIFIER, settings)])
    single = left(configs, tmp_path, True, True)
    calls, _ = traced_on_a_cpu(monkeypatch)
    several = left(configs, tmp_path, False, True)
    del single["sizes"], several["sizes"]
    check_equal(single, several)
    assert len(calls) > 10


def test_a_probability_of_each_run_is_rewritten_in_place():
    layer = Dropout(torch.tensor([[0.2], [0.4]], dtype=torch.float64))
    layer.set_scale(0.5)
    memory = layer.probability
    layer.set_scale(torch.tensor([[1.0], [0.25]], dtype=torch.float64))
    assert layer.probability is memory
    assert memory.flatten().tolist() == pytest.approx([0.2, 0.1])
    assert layer.p.flatten().tolist() == [0.2, 0.4]


def test_updates_that_are_never_replayed_have_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "PATIENCE", 10, raising=False)
    traced_on_a_cpu(monkeypatch)
    settings = {**DROPOUT, **LONG, "model.schedules.dropout": LINEAR}
    configs = [run.config for run in runs_of(CLASSIFIER, settings)]
    seen: dict[str, str] = {}

    class Reason(Callback):
        blocks = True

        def on_train_end(self, trainer: Any, module: Any) -> None:
            seen["reason"] = module.not_replayed

    monkeypatch.setattr("updates_in_blocks.OneByOne", Reason)
    left(configs, tmp_path, True, False)
    assert seen["reason"] == "the probability of dropout changes at each update"


def test_single_batches_of_other_data_have_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "PATIENCE", 10, raising=False)
    traced_on_a_cpu(monkeypatch)
    data = Frames(batch_size=1)
    data.setup("fit")
    samples = [(x, y, mask) for x, y, mask in zip(*data.train.tensors, strict=True)]
    task = FrameTask(clean_training_loss=False)
    trainer = pl.Trainer(
        **QUIET, max_epochs=1, limit_val_batches=1, default_root_dir=tmp_path, precision="64-true"
    )
    trainer.fit(task, *[DataLoader(samples, batch_size=4, shuffle=on) for on in (True, False)])  # type: ignore
    assert task.not_replayed.startswith("updates are made one by one")


def test_graphs_are_off_until_they_are_turned_on(tmp_path, monkeypatch):
    cuda = Cuda(monkeypatch)
    monkeypatch.setattr(devices, "graphs", None)
    assert trained(FrameTask, tmp_path).not_replayed == graphs.OFF
    assert cuda.captures == 0
    devices.graphs = True
    assert trained(FrameTask, tmp_path).not_replayed != graphs.OFF
    assert cuda.captures == 1


ROWS = [{"case": "dropout", "verdict": "bits"}, {"case": "convnet bf16", "verdict": "noise"}] * 15
EAGER = [{"case": "torch RReLU, seeded", "verdict": "eager"}]


@pytest.mark.parametrize(
    ("rows", "about", "shown"),
    [
        (ROWS, {}, True),
        (ROWS + EAGER, {}, True),
        (ROWS[:29], {}, True),
        (ROWS[:28], {}, False),
        (EAGER * 30, {}, False),
        ([], {}, False),
        (ROWS, {"smoke": True}, False),
        (ROWS, {"device": "NVIDIA A100"}, False),
        *(
            ([*ROWS, {"case": "pinn", "verdict": word}], {}, False)
            for word in ("close", "DIFFERS", "ERROR")
        ),
    ],
)
def test_graphs_are_the_default_where_every_case_was_right(
    rows, about, shown, tmp_path, monkeypatch
):
    """A comparison that was cut off has fewer than the 29 cases, whatever these say."""
    made = {
        "about": {"device": "NVIDIA H200", "smoke": False, "torch": "2.11.0", **about},
        "rows": rows,
    }
    (tmp_path / "gpu_other.json").write_text(json.dumps({"tests": {"passed": 16}}))
    (tmp_path / "gpu_h200.json").write_text(json.dumps({"mnist": {}, "correct": made}))
    monkeypatch.setattr(graphs, "resource", lambda name: tmp_path)
    graphs.are_shown.cache_clear()
    try:
        assert graphs.are_shown("NVIDIA H200") is shown
    finally:
        graphs.are_shown.cache_clear()


def test_no_device_has_shown_graphs_to_be_right_so_far():
    """When one has, README and the help of ``--graphs`` say so."""
    assert not any(map(graphs.are_shown, ("NVIDIA H200", "NVIDIA H100 80GB HBM3")))


def test_blocks_are_longer_where_a_program_is_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST", 3)
    monkeypatch.setattr(blocks, "MOST_REPLAYED", 6)
    settings = {
        "trainer.limit_train_batches": 19,
        "trainer.max_epochs": 1,
        "trainer.val_check_interval": 1.0,
    }
    config = runs_of(CLASSIFIER, settings)[0].config
    assert left([config], tmp_path, False, False)["sizes"] == [1, 3, 3, 3, 3, 3, 3]
    traced_on_a_cpu(monkeypatch)
    assert left([config], tmp_path, False, False)["sizes"] == [1, 3, 3, 6, 6]


def test_programs_are_compared_in_ever_fewer_epochs_and_asked_once_a_block(tmp_path, monkeypatch):
    calls, _ = traced_on_a_cpu(monkeypatch)
    checked, asked = [], []
    known, frozen = replay.Replay._checked, replay.Replay._frozen_in

    def noted(self, module, *given):
        checked.append(module.current_epoch)
        return known(self, module, *given)

    monkeypatch.setattr(replay.Replay, "_checked", noted)
    monkeypatch.setattr(
        replay.Replay, "_frozen_in", lambda *given: asked.append(1) or frozen(*given)
    )
    sizes = Sizes()
    trained(FrameTask, tmp_path, sizes, max_epochs=10, enable_checkpointing=True)
    assert checked == [0, 1, 2, 4, 8]
    assert len(asked) == len(sizes.seen)
    assert len(calls) > 90


def test_the_log_says_how_fast_updates_were_and_how_many_were_replayed(
    tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "pytorch_lightning.utilities.rank_zero")
    trained(FrameTask, tmp_path)
    assert "updates," not in caplog.text
    traced_on_a_cpu(monkeypatch)
    task = trained(FrameTask, tmp_path)
    share = f"{task._blocks.replay.replayed / 36:.0%}"
    assert "36 updates, " in caplog.text
    assert f" a second with evaluations, {share} replayed; 0.00 GiB" in caplog.text
    assert int(share[:-1]) >= 75


@pytest.mark.parametrize(
    ("optimizer", "fused"),
    [
        (partial(torch.optim.AdamW), True),
        (partial(torch.optim.SGD, momentum=0.9), True),
        (partial(torch.optim.AdamW, fused=False), False),
        (partial(torch.optim.AdamW, foreach=True), None),
        (partial(torch.optim.RMSprop), "none"),
    ],
)
def test_steps_on_a_gpu_are_fused_unless_a_config_chooses(optimizer, fused):
    made = optimizer([nn.Parameter(torch.ones(3))], lr=0.1)
    building.fuse([made], torch.device("cuda"))
    assert made.param_groups[0].get("fused", "none") is fused or fused == "none"
    chosen = made.defaults.get("fused", "none")
    building.fuse([made], torch.device("cpu"))
    assert made.param_groups[0].get("fused", "none") == chosen


def test_fused_steps_continue_those_of_a_checkpoint_of_a_cpu():
    weights = []
    for device in ("cpu", "cuda"):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.AdamW([parameter], lr=0.1)
        for _ in range(3):
            parameter.grad = torch.tensor([1.0, 2.0, 3.0])
            optimizer.step()
            building.fuse([optimizer], torch.device(device))
        weights.append(parameter.detach())
    torch.testing.assert_close(*weights)
