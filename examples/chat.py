"""Talk to a language model from Python: one question, a stream, samples that share a prompt, and a batch of prompts."""

from __future__ import annotations

import argparse

import pyflame as pf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a GGUF file or a Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--question", default="What is the capital of France?")
    args = parser.parse_args()

    model = pf.llm.load(args.model, context=1024)
    print(model)
    messages = [{"role": "user", "content": args.question}]

    print("\ngreedy, as it is written:")
    stream = model.stream(messages=messages, max_tokens=48)
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    print(f"\n({stream.timings.tokens_per_second:.1f} tokens per second)")

    print("\nthree samples; the prompt is read once:")
    for sample in model.generate(messages=messages, max_tokens=24, n=3, temperature=0.8, top_p=0.9, seed=1):
        print("-", sample.text)

    print("\nthree prompts in one batch:")
    prompts = ["The sky is", "Two and two make", "Once upon a time"]
    for prompt, answer in zip(prompts, model.generate(prompts, max_tokens=12), strict=True):
        print(f"- {prompt}|{answer.text}")


if __name__ == "__main__":
    main()
