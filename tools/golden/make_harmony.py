#!/usr/bin/env python3
"""Answers in OpenAI's harmony format, and the messages that the PyPI package openai-harmony 0.0.8 reads in them.

Writes tests/data/harmony/answers.json: a list of {text, messages: [{channel, recipient, content}]}. The texts are written by the
package, too, but for those of OTHER_FORMS. An answer begins behind the "<|start|>assistant" that a prompt ends with. Where it stops in
the middle of a message, that message is the last of the list.

Writes tests/data/harmony/prompts.json as well: conversations as OpenAI's clients send them, and the prompts that the package renders
of them: {request: {messages, tools, reasoning_effort}, prompt}, on the day of make_chat_templates.NOW.

The package wants o200k_base.tiktoken in the folder that TIKTOKEN_ENCODINGS_BASE names (sha256 446a9538...1a2d, which it checks).
"""

import itertools
import random

from common import DATA, write_json

from openai_harmony import (Conversation, DeveloperContent, HarmonyEncodingName, Message, ReasoningEffort, Role, StreamableParser,
                            SystemContent, ToolDescription, load_harmony_encoding)

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
START = "<|start|>assistant"

THOUGHTS = ["The user asks for 2 + 2.", "Zuerst: ½ € größer?\n\nDann 東京.", "a < b and <| is no mark, nor is <|channel or |end|>", "", " leading and trailing "]
WORDS = ["It is **4**.", "```python\nprint('<|')\n```\n", "東京です。🙂", "to=functions.f is text here", "x"]
ARGUMENTS = ['{"city": "Paris"}', "{}", '{"text": "a } { \\"quoted\\" <|x", "list": [1, 2.5, null]}', '{\n  "größe": "½"\n}\n']
NAMES = ["get_weather", "a-b.c_9"]

# As models write them besides: the recipient before the channel, without a constraint, text of no message's own.
OTHER_FORMS = [
    ' to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    '<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{"a": 1}<|call|>',
    '<|channel|>commentary to=functions.f json<|message|>{"a": 1}<|call|>',
    "<|channel|>final<|message|>never ends",
    "<|channel|>analysis<|message|>cut in a thou",
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c",
    "<|channel|>analysis to=python<|message|>print(1)<|call|>",
]


def message(channel, content, recipient=None):
    m = Message.from_role_and_content(Role.ASSISTANT, content).with_channel(channel)
    return m.with_recipient(recipient).with_content_type("<|constrain|>json") if recipient else m


def text_of(messages):
    text = "".join(ENCODING.decode(ENCODING.render(m)) for m in messages)
    assert text.startswith(START)
    text = text[len(START):]
    return text[: -len("<|end|>")] + "<|return|>" if text.endswith("<|end|>") else text


def read(text):
    parser = StreamableParser(ENCODING, role=Role.ASSISTANT)
    for token in ENCODING.encode(text, allowed_special="all"):
        parser.process(token)
    out = [dict(channel=m.channel, recipient=m.recipient, content="".join(c.text for c in m.content)) for m in parser.messages]
    if parser.current_content:
        out.append(dict(channel=parser.current_channel, recipient=parser.current_recipient, content=parser.current_content))
    return out


DAY = "2025-07-26"
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city now.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "number"}}, "required": ["city"]}}}
CLOCK = {"type": "function", "function": {"name": "now", "description": "The time."}}
ASKED = {"role": "user", "content": "What is the weather in Paris?"}
# Those that the template which OpenAI publishes (gptoss.jinja) writes as the package does. It ends instructions without tools with
# two more lines, and writes earlier calls without a mark before "json" and their results in quotes.
REQUESTS = [
    {"messages": [{"role": "user", "content": "Hello!"}]},
    {"messages": [{"role": "user", "content": "Hello!"}], "reasoning_effort": "low"},
    {"messages": [ASKED], "tools": [WEATHER], "reasoning_effort": "high"},
    {"messages": [{"role": "system", "content": "Be brief."}, ASKED], "tools": [WEATHER, CLOCK]},
    {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4."}, {"role": "user", "content": "And 3 + 3?"}]},
]


def prompt_of(request):
    system = SystemContent.new().with_conversation_start_date(DAY)
    if "reasoning_effort" in request:
        system = system.with_reasoning_effort(ReasoningEffort(request["reasoning_effort"].capitalize()))
    developer, said = None, []
    tools = [t["function"] for t in request.get("tools", [])]
    for m in request["messages"]:
        if m["role"] == "system":
            developer = DeveloperContent.new().with_instructions(m["content"])
        elif m["role"] == "user":
            said.append(Message.from_role_and_content(Role.USER, m["content"]))
        else:
            said.append(message("final", m["content"]))
    if tools:
        described = [ToolDescription.new(t["name"], t["description"], parameters=t.get("parameters")) for t in tools]
        developer = (developer or DeveloperContent.new()).with_function_tools(described)
    opening = [Message.from_role_and_content(Role.SYSTEM, system)]
    if developer:
        opening.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    conversation = Conversation.from_messages(opening + said)
    return ENCODING.decode(ENCODING.render_conversation_for_completion(conversation, Role.ASSISTANT))


def main():
    write_json(DATA / "harmony" / "prompts.json", [dict(request=r, prompt=prompt_of(r)) for r in REQUESTS])
    rng = random.Random(9)
    texts = [text_of([message("final", w)]) for w in WORDS]
    for thought, word in itertools.product(THOUGHTS, WORDS):
        texts.append(text_of([message("analysis", thought), message("final", word)]))
    for name, arguments in itertools.product(NAMES, ARGUMENTS):
        call = message("commentary", arguments, "functions." + name)
        texts.append(text_of([call]))
        texts.append(text_of([message("analysis", rng.choice(THOUGHTS)), call]))
        texts.append(text_of([message("analysis", rng.choice(THOUGHTS)), message("commentary", rng.choice(WORDS)), call]))
    texts.append(text_of([message("analysis", THOUGHTS[0]), message("analysis", THOUGHTS[1]), message("commentary", "I look."), message("final", WORDS[0])]))
    cases = [dict(text=t, messages=read(t)) for t in texts + OTHER_FORMS]
    for c in cases:
        assert c["messages"], c
    write_json(DATA / "harmony" / "answers.json", cases)
    print(len(cases), "answers")


if __name__ == "__main__":
    main()
