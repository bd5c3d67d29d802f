#!/usr/bin/env python3
"""What models write when they think, call tools and answer, family by family, and what that says.

  make_tool_answers.py     writes tests/data/tool_answers.json

The texts are what the families' chat templates (tests/data/chat_templates; sources and licences there) make of an
assistant's turn whose thought, words and calls are given: that turn is the expected value. Where a parser of vLLM or
SGLang documents an answer that no template writes, it stands in DOCUMENTED with its source.
"""

import copy

import make_chat_templates as templates
from common import DATA, write_json

# name: (parser of calls, parser of thoughts, what opens the assistant's turn, what closes it). Parsers that take any
# answer for a thought until its end are not right for turns of a history, which need not have one.
FAMILIES = {
    "qwen3": ("hermes", "qwen3", "<|im_start|>assistant\n", "<|im_end|>"),
    "qwen3_vl": ("hermes", "none", "<|im_start|>assistant\n", "<|im_end|>"),
    "glm4moe": ("glm45", "glm45", "<|assistant|>", ""),
    "glm4_7": ("glm47", "glm47", "<|assistant|>", ""),
    "kimi_k2": ("kimi_k2", "none", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
    "minimax_m2": ("minimax_m2", "qwen3", "]~b]ai\n", "[e~["),
    "seed_oss": ("seed_oss", "seed_oss", "<seed:bos>assistant", "<seed:eos>"),
    "command_r7b": ("cohere_command3", "cohere_command3", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    "phi4_mini": ("phi4_mini_json", "none", "<|assistant|>", "<|end|>"),
    "granite4": ("granite4", "none", "<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>"),
    "hunyuan3": ("hy_v3", "hy_v3", "<｜hy_Assistant:opensource｜>", "<｜hy_eos:opensource｜>"),
    "hunyuan_a13b": ("hunyuan_a13b", "hunyuan_a13b", "<|extra_0|>", "<|eos|>"),
    "olmo3": ("olmo3", "qwen3", "<|im_start|>assistant\n", "<|im_end|>"),
    "ernie4_5": ("ernie45", "ernie45", "Assistant: ", "<|end_of_sentence|>"),
    "exaone4": ("hermes", "qwen3", "[|assistant|]\n", "[|endofturn|]"),
    "smollm3": ("none", "qwen3", "<|im_start|>assistant\n", "<|im_end|>"),
    "nemotron_nano2": ("nemotron_json", "nemotron_v3", "<SPECIAL_11>Assistant\n", "\n<SPECIAL_12>"),
    "mistral_v03": ("mistral", "none", "[/INST]", "</s>"),
    "mistral_nemo": ("mistral", "none", "[/INST]", "</s>"),
    "mistral_small3_2": ("mistral", "none", "[/INST]", "</s>"),
    "ministral3": ("mistral", "mistral", "[/INST]", "</s>"),
    "qwen2_5": ("hermes", "none", "<|im_start|>assistant\n", "<|im_end|>"),
    "qwen3_instruct_2507": ("hermes", "none", "<|im_start|>assistant\n", "<|im_end|>"),
    "qwen3_5": ("qwen3_coder", "qwen3", "<|im_start|>assistant\n", "<|im_end|>"),
    "qwen3_coder": ("qwen3_coder", "none", "<|im_start|>assistant\n", "<|im_end|>"),
    "nemotron_3_nano": ("qwen3_coder", "nemotron_v3", "<|im_start|>assistant\n", "<|im_end|>"),
    "glm4_6": ("glm45", "glm45", "<|assistant|>", ""),
    "deepseek_v3": ("deepseekv3", "none", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    "deepseek_v3_1": ("deepseekv31", "deepseek-v3", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    "granite3": ("granite", "granite_thinking_parser", "<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>"),
    "llama3_1": ("llama3_json", "none", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
}
# Templates that do not write calls, or no words beside them.
# DeepSeek-V3's closes no list of one call, and longer ones too often.
NO_CALLS = {"smollm3", "granite3", "deepseek_v3"}
NO_WORDS_BESIDE_CALLS = {"command_r7b", "mistral_v03", "mistral_nemo", "mistral_small3_2", "llama3_1"}
ONE_CALL = {"llama3_1"}

SHORT_ID = lambda name, i: f"callid{i:03d}"
IDS = {"kimi_k2": lambda name, i: f"functions.{name}:{i}", "mistral_v03": SHORT_ID, "mistral_nemo": SHORT_ID,
       "mistral_small3_2": SHORT_ID}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "where"}, "days": {"type": "integer"},
            "share": {"type": "number"}, "deep": {"type": "boolean"}, "unit": {"enum": ["celsius", "kelvin"]},
            "code": {"type": "string"}, "stops": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"}, "limit": {"type": ["integer", "null"]}}}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {
        "type": "object", "properties": {}}}},
]
TURNS = [
    {"content": "Just words, <b>really</b>."},
    {"content": "The answer is 4.", "reasoning_content": "2 and 2.\nThat is 4."},
    {"calls": [("get_weather", {"city": "Paris"})]},
    {"calls": [("now", {})]},
    {"calls": [("get_weather", {"city": "東京 \"x\" <b>", "days": 3, "share": 0.5, "deep": True, "unit": "celsius"}),
               ("now", {}), ("get_weather", {"city": "Oslo", "code": "7", "days": -2})]},
    {"calls": [("get_weather", {"city": "Köln", "stops": ["a", "b c"], "options": {"n": [1, {"k": False}]}, "limit": 5})],
     "content": "I look it up."},
    {"calls": [("get_weather", {"city": "Rome\nor Bonn", "deep": False})], "reasoning_content": "A tool is needed."},
]

VLLM = "vllm tests/tool_parsers/"
DOCUMENTED = [
    ("the instructions of Falcon3's template", "hermes", "none",
     '<tool_call>\n[\n  {"name": "get_weather", "arguments": {"city": "Oslo"}},\n  {"name": "now", "arguments": {}}\n]\n</tool_call>',
     "", "", [("get_weather", {"city": "Oslo"}), ("now", {})]),
    ("what Falcon3's template writes of earlier calls", "hermes", "none",
     'I look it up.\n<tool_call>\n[\n  {\n    "id": "callid000",\n    "type": "function",\n    "function": {\n      "name": '
     '"get_weather",\n      "arguments": {\n        "city": "Oslo"\n      }\n    }\n  }\n]\n</tool_call>', "I look it up.", "",
     [("get_weather", {"city": "Oslo"})]),
    (VLLM + "test_granite_tool_parser.py", "granite", "none",
     '<|tool_call|> [{"name": "get_weather", "arguments": {"city": "Tokyo"}}]', "", "",
     [("get_weather", {"city": "Tokyo"})]),
    (VLLM + "test_granite_tool_parser.py", "granite", "none",
     '<tool_call> [\n  {"name": "get_weather", "arguments": {"city": "Tokyo"}},\n  {"name": "get_time", "arguments": '
     '{"timezone": "Asia/Tokyo"}}\n]', "", "",
     [("get_weather", {"city": "Tokyo"}), ("get_time", {"timezone": "Asia/Tokyo"})]),
    (VLLM + "test_granite_tool_parser.py", "granite", "none", '<|tool_call|> [{"name": "func", "arguments": {',
     '<|tool_call|> [{"name": "func", "arguments": {', "", []),
    (VLLM + "test_kimi_k2_tool_parser.py", "kimi_k2", "none",
     "No prefix. <|tool_calls_section_begin|><|tool_call_begin|>get_weather:0 <|tool_call_argument_begin|>"
     '{"city": "Tokyo"}<|tool_call_end|><|tool_calls_section_end|>', "No prefix. ", "",
     [("get_weather", {"city": "Tokyo"}, "get_weather:0")]),
    (VLLM + "test_hunyuan_a13b_tool_parser.py", "hunyuan_a13b", "hunyuan_a13b",
     'I will call the tool now. <tool_calls>[{"name": "get_weather", "arguments": {"city": "Boston"}}]</tool_calls>',
     "I will call the tool now. ", "", [("get_weather", {"city": "Boston"})]),
    (VLLM + "test_hunyuan_a13b_tool_parser.py, with the marks of its parser of thoughts", "hunyuan_a13b",
     "hunyuan_a13b",
     '<think>\nhm\n</think>\n<answer>\n<tool_calls>[{"name": "a", "arguments": {}}, {"name": "b", "arguments": '
     '{"x": 42}}]</tool_calls>\n</answer>', "", "hm", [("a", {}), ("b", {"x": 42})]),
    ("mistral_common 1.13.1 tokens/tokenizers/instruct.py (InstructTokenizerV11)", "mistral", "none",
     '[TOOL_CALLS]get_weather[CALL_ID]9Ab3dEfGh[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[CALL_ID]000000001[ARGS]{}', "", "",
     [("get_weather", {"city": "Oslo"}, "9Ab3dEfGh"), ("now", {}, "000000001")]),
    ("mistral_common 1.13.1 tokens/tokenizers/instruct.py (InstructTokenizerV11)", "mistral", "none",
     '[TOOL_CALLS]get_weather[CALL_ID]9Ab3dEfGh[ARGS]{"city": "Oslo"}', "", "",
     [("get_weather", {"city": "Oslo"}, "9Ab3dEfGh")]),
    ("mistral_common 1.13.1 tokens/tokenizers/instruct.py (InstructTokenizerV13)", "mistral", "none",
     'I look it up.[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[ARGS]{}', "I look it up.", "",
     [("get_weather", {"city": "Oslo"}), ("now", {})]),
    ("sglang 0.5.23 function_call/hunyuan_detector.py", "hunyuan", "none",
     "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
     "</tool_call>\n</tool_calls>", "", "", [("get_weather", {"city": "Oslo"})]),
    ("sglang 0.5.23 function_call/minimax_m2.py", "minimax-m2", "minimax",
     'why</think>\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">value1</parameter>\n'
     '<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>', "", "why",
     [("get_weather", {"city": "value1", "days": 2})]),
    ("sglang 0.5.23 parser/reasoning_parser.py (CohereCommand4Detector)", "cohere_command4", "cohere_command4",
     "<|START_THINKING|>thought<|END_THINKING|><|START_TEXT|>final answer<|END_TEXT|>", "final answer", "thought", []),
    ("vllm reasoning/ernie45_reasoning_parser.py", "ernie45", "ernie45",
     "<think>\nabc\n</think>\n\n<response>\ndef\n</response>\n", "def", "abc", []),
    ("vllm examples/tool_chat_template_phi4_mini.jinja", "phi4_mini_json", "none",
     'functools[{"name": "get_weather", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]', "", "",
     [("get_weather", {"city": "Oslo"}), ("now", {})]),
    ("vllm plugin nemotron_json (nemotron_toolcall_parser_no_streaming.py of NVIDIA-Nemotron-Nano-9B-v2), thoughts as in its "
     "template", "nemotron_json", "nemotron_v3",
     '<think>\nhm\n</think>\n\n<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]'
     '</TOOLCALL>', "", "hm", [("get_weather", {"city": "Oslo"}), ("now", {})]),
    ("vllm examples/tool_chat_template_olmo3.jinja", "olmo3", "none",
     "<function_calls>\nget_weather(city='New York', unit='celsius')\nnow()\n</function_calls>", "", "",
     [("get_weather", {"city": "New York", "unit": "celsius"}), ("now", {})]),
]


def written(name, turn):
    """What the template makes of the assistant's turn, alone."""
    _, _, head, end = FAMILIES[name]
    message = {"role": "assistant", "content": turn.get("content", "")}
    if "reasoning_content" in turn:
        message["reasoning_content"] = turn["reasoning_content"]
    if "calls" in turn:
        message["tool_calls"] = [
            {"id": IDS.get(name, SHORT_ID)(n, i), "type": "function",
             "function": {"name": n, "arguments": copy.deepcopy(a)}} for i, (n, a) in enumerate(turn["calls"])]
    chat = {"messages": [{"role": "user", "content": "Well?"}, message], "tools": TOOLS,
            "add_generation_prompt": False, "kwargs": {}}
    text = templates.environment().from_string(
        (templates.OUT / "templates" / f"{name}.jinja").read_text()).render(**templates.variables(name, chat))
    text = text[text.rindex(head) + len(head):]
    if end and end in text:
        text = text[: text.rindex(end)]
    # GLM-4.7's prompt ends with the mark itself, or with <think>.
    return text.removeprefix("</think>") if name == "glm4_7" else text


def main():
    cases = []
    for name, (calls, thoughts, *_) in FAMILIES.items():
        for turn in TURNS:
            if "calls" in turn and (name in NO_CALLS or (turn.get("content") and name in NO_WORDS_BESIDE_CALLS) or
                                    (len(turn["calls"]) > 1 and name in ONE_CALL)):
                continue
            text = written(name, turn)
            thought = turn.get("reasoning_content", "")
            if thought and (thoughts == "none" or thought not in text):
                thought = ""  # the template leaves it out
            expected = [{"name": n, "arguments": a} for n, a in turn.get("calls", [])]
            if name in IDS:  # the calls have the ids that the model wrote
                for i, call in enumerate(expected):
                    call["id"] = IDS[name](call["name"], i)
            cases.append({"source": f"template {name}", "template": name, "tool_call_parser": calls,
                          "reasoning_parser": thoughts, "text": text, "content": turn.get("content", ""),
                          "reasoning": thought, "calls": expected})
    for source, calls, thoughts, text, content, thought, expected in DOCUMENTED:
        cases.append({"source": source, "tool_call_parser": calls, "reasoning_parser": thoughts, "text": text,
                      "content": content, "reasoning": thought,
                      "calls": [{"name": c[0], "arguments": c[1], **({"id": c[2]} if len(c) > 2 else {})}
                                for c in expected]})
    write_json(DATA / "tool_answers.json", {"tools": TOOLS, "cases": cases})
    print(len(cases), "answers of", len(FAMILIES), "templates and", len(DOCUMENTED), "of parsers' documentation")


if __name__ == "__main__":
    main()
