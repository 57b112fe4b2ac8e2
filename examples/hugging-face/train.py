# pyright: basic
"""A Trainer of Hugging Face, trained together: three lines are added.

A tiny GPT-2 with random weights learns that letters follow each other. It needs no
download:

    python train.py                     alone
    shoal run diloco.yaml --watch       together
"""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from shoal.train.integrations.hugging_face import ShoalTrainerCallback, worker_seed  # 1

LETTERS, LENGTH = 26, 16


class Alphabet(Dataset):  # type: ignore[type-arg]
    """Pieces of the alphabet, which begins again after its end."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        """Return how many pieces there are."""
        return self._size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one piece; it is its own target."""
        letters = (torch.arange(LENGTH) + index) % LETTERS
        return {"input_ids": letters, "labels": letters}


torch.manual_seed(1)  # All workers begin with the same weights.
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=LETTERS,
        n_positions=LENGTH,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="checkpoints",
        max_steps=200,
        per_device_train_batch_size=8,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        data_seed=worker_seed(),  # 2
    ),
    train_dataset=Alphabet(2_600),
    eval_dataset=Alphabet(LETTERS),
)
trainer.add_callback(ShoalTrainerCallback(trainer))  # 3
trainer.train()
print({"event": "evaluated", "loss": trainer.evaluate()["eval_loss"]})
