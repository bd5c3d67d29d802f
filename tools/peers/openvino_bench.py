#!/usr/bin/env python3
"""Speed of OpenVINO GenAI on a GGUF file, as JSON: tokens a second of prompts and of decoding at batch sizes.

  openvino_bench.py FILE.gguf --prefill 512 --decode 112,1008 --batches 1,8 --output-len 65 [--threads 2]

Runs in the virtual environment of openvino.sh. Decoding is the difference of two runs, with one new token and with
--output-len more, so that the prompt does not count. The fewest seconds of two runs each are taken.
"""
import argparse
import json
import time

import numpy as np
import openvino
import openvino_genai


def numbers(text):
    return [int(n) for n in text.split(",") if n]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--precision", default="bf16", help="of the arithmetic: bf16, f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--group", type=int, help="numbers of an activation that are rounded to 8 bits with one factor, as "
                        "OpenVINO does by itself where weights are packed; 0: none are")
    parser.add_argument("--prefill", type=numbers, default=[], help="lengths of prompts")
    parser.add_argument("--decode", type=numbers, default=[], help="contexts in front of one sequence")
    parser.add_argument("--batches", type=numbers, default=[], help="sequences behind prompts of 128 tokens")
    parser.add_argument("--output-len", type=int, default=65)
    args = parser.parse_args()
    sizes = openvino_genai.SchedulerConfig()
    sizes.cache_size = 4  # GB
    sizes.max_num_batched_tokens = 8192
    sizes.max_num_seqs = max([64, *args.batches])
    sizes.enable_prefix_caching = False
    sizes.dynamic_split_fuse = False
    properties = {"INFERENCE_NUM_THREADS": args.threads, "INFERENCE_PRECISION_HINT": args.precision}
    if args.group is not None:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(args.group)
    pipeline = openvino_genai.ContinuousBatchingPipeline(args.file, sizes, "CPU", properties)
    vocabulary = len(pipeline.get_tokenizer().get_vocab())
    random = np.random.default_rng(0)

    def seconds(batch, prompt, new):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = new
        config.ignore_eos = True
        config.do_sample = False
        best = float("inf")
        for _ in range(2):
            ids = [openvino.Tensor(random.integers(0, vocabulary, (1, prompt), dtype=np.int64)) for _ in range(batch)]
            start = time.perf_counter()
            pipeline.generate(ids, [config] * batch)
            best = min(best, time.perf_counter() - start)
        return best

    def decoding(batch, prompt):
        return batch * args.output_len / (seconds(batch, prompt, 1 + args.output_len) - seconds(batch, prompt, 1))

    seconds(1, 16, 2)
    print(json.dumps({"version": openvino_genai.__version__,
                      "prefill": {n: n / seconds(1, n, 1) for n in args.prefill},
                      "decode": {n: decoding(1, n) for n in args.decode},
                      "batches": {n: decoding(n, 128) for n in args.batches}}))


if __name__ == "__main__":
    main()
