# A program for vLLM: its classes, keywords and fields. The test changes the first import alone.
from vllm import LLM, SamplingParams

import os

MODEL, OPTIONS = os.environ["MODEL"], eval(os.environ.get("OPTIONS", "{}"))

prompts = ["Hello, my name is", "The capital of France is", "The future of AI is"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=12, seed=7, logprobs=2, ignore_eos=True)
llm = LLM(model=MODEL, max_model_len=256, max_num_seqs=8, enforce_eager=False, enable_prefix_caching=True, **OPTIONS)
outputs = llm.generate(prompts, sampling_params, use_tqdm=False)
for output in outputs:
    prompt, completion = output.prompt, output.outputs[0]
    assert output.finished and completion.finish_reason == "length" and len(completion.token_ids) == 12
    assert len(completion.logprobs) == 12 and completion.token_ids[3] in completion.logprobs[3]
    assert completion.logprobs[3][completion.token_ids[3]].logprob <= 0
    print(f"{prompt!r} {completion.token_ids}")

conversation = [{"role": "user", "content": "hi"}]
chat = llm.chat(conversation, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
assert chat[0].prompt == "<user>hi<assistant>", chat[0].prompt
tokenizer = llm.get_tokenizer()
by_ids = llm.generate({"prompt_token_ids": tokenizer.apply_chat_template(conversation, add_generation_prompt=True)},
                      SamplingParams(temperature=0, max_tokens=4, n=2, ignore_eos=True), use_tqdm=False)
assert [o.token_ids for o in by_ids[0].outputs] == [chat[0].outputs[0].token_ids] * 2
print("done")
