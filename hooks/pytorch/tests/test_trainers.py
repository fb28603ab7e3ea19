"""The callbacks in the trainers themselves: Hugging Face's and Lightning's, on CPUs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import litd
from tests import standin
from tests.standin import StandIn, wait_for

torch: Any = pytest.importorskip("torch", reason="SKIPPED: no torch")

STEPS = 8
BATCH = 4
ACCUMULATED = 2
GPU = "0000:05:00.0"


class Rows(torch.utils.data.Dataset):
    """Random rows, the same each time."""

    def __init__(self) -> None:
        self.values = torch.randn(STEPS * BATCH * ACCUMULATED, 8, generator=torch.manual_seed(5))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"values": self.values[at]}


class Connects:
    """Holds the first step up until the daemon has welcomed the hook."""

    def __init__(self) -> None:
        self.held = False

    def hold(self) -> None:
        if not self.held and litd._current is not None and litd._current.iteration > 0:
            wait_for("connection", lambda: litd._current and litd._current.is_connected)
            self.held = True


def assert_told(daemon: StandIn) -> None:
    """The steps of the optimizer, each once: not the micro-batches."""
    [bye] = wait_for("bye", lambda: daemon.heard("bye"))
    assert bye.reason == "training is over"
    assert [tick.iteration for tick in daemon.heard("tick")] == list(range(1, STEPS))


def test_hugging_faces_trainer_trains_the_same_and_is_counted(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip(
        "transformers", reason="SKIPPED: no transformers; .ci/run --full has it"
    )
    pytest.importorskip("accelerate", reason="SKIPPED: no accelerate; .ci/run --full has it")
    callbacks: Any = importlib.import_module("litd.huggingface")
    path = tmp_path / "ingest.sock"

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))

        def forward(self, values: Any) -> dict[str, Any]:
            out = self.layers(values)
            return {"loss": out.square().mean(), "logits": out}

    connects = Connects()

    class Hold(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            connects.hold()

    def weights(*more: Any) -> list[Any]:
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=ACCUMULATED,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            seed=3,
        )
        model = Model()
        transformers.Trainer(
            model=model, args=arguments, train_dataset=Rows(), callbacks=list(more)
        ).train()
        return [part.tolist() for part in model.parameters()]

    with StandIn(path, standin.welcome()) as daemon:
        told = weights(callbacks.LitdCallback(gpu=GPU, socket=str(path)), Hold())
        assert_told(daemon)
    assert told == weights()


def test_lightning_trains_the_same_and_is_counted(tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip(
        "lightning.pytorch", reason="SKIPPED: no lightning; .ci/run --full has it"
    )
    callbacks: Any = importlib.import_module("litd.lightning")
    path = tmp_path / "ingest.sock"
    connects = Connects()

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))

        def training_step(self, batch: Any, _at: int) -> Any:
            connects.hold()
            return self.layers(batch["values"]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    def weights(*more: Any) -> list[Any]:
        model = Model()
        trainer = lightning.Trainer(
            max_steps=STEPS,
            accumulate_grad_batches=ACCUMULATED,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=list(more),
            default_root_dir=str(tmp_path),
        )
        trainer.fit(model, torch.utils.data.DataLoader(Rows(), batch_size=BATCH))
        return [part.tolist() for part in model.parameters()]

    with StandIn(path, standin.welcome()) as daemon:
        told = weights(callbacks.LitdCallback(gpu=GPU, socket=str(path)))
        assert_told(daemon)
    assert told == weights()
