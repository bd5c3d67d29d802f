"""A model in a program of one's own, in Python: pip install the wheel, then python embed.py MODEL PROMPT."""
import sys

from reprise import LLM, SamplingParams

llm = LLM(model=sys.argv[1])
for output in llm.generate(sys.argv[2:], SamplingParams(max_tokens=48)):
    print(output.prompt + output.outputs[0].text)
print("passes that changed the graph of decoding:", ", ".join(llm.explain().fused()))
