# A program for SGLang's offline engine. The test changes the first import alone.
import sglang as sgl

import asyncio
import os

MODEL, OPTIONS = os.environ["MODEL"], eval(os.environ.get("OPTIONS", "{}"))

if __name__ == "__main__":
    llm = sgl.Engine(model_path=MODEL, context_length=256, **OPTIONS)
    prompts = ["Hello, my name is", "The capital of France is"]
    sampling_params = {"temperature": 0.8, "top_p": 0.95, "max_new_tokens": 12, "sampling_seed": 7, "ignore_eos": True}
    outputs = llm.generate(prompts, sampling_params)
    for prompt, output in zip(prompts, outputs):
        assert output["meta_info"]["completion_tokens"] == 12
        assert output["meta_info"]["finish_reason"] == {"type": "length", "length": 12}
        print(f"{prompt!r} {output['output_ids']}")

    last = None
    for chunk in llm.generate(prompts[0], sampling_params, stream=True):
        assert last is None or chunk["text"].startswith(last["text"])
        last = chunk
    assert last["output_ids"] == outputs[0]["output_ids"]

    async def main():
        whole = await llm.async_generate(prompts, sampling_params)
        assert [o["output_ids"] for o in whole] == [o["output_ids"] for o in outputs]
        final = None
        async for chunk in await llm.async_generate(prompts[1], sampling_params, stream=True, return_logprob=True):
            final = chunk
        assert final["output_ids"] == outputs[1]["output_ids"]
        assert len(final["meta_info"]["output_token_logprobs"]) == 12

    asyncio.run(main())
    llm.shutdown()
    print("done")
