"""What the server is to say, by another way than the one under test."""

import json
import subprocess
import urllib.request

from support import BINARY, MODEL


def generated(prompt, tokens, chat=True):
    """The greedy answer of the command, as text."""
    command = [str(BINARY), "generate", "--model-path", MODEL, "--prompt", prompt, "--max-new-tokens", str(tokens),
               "--temperature", "0", "--threads", "1", "--json"]
    if chat:
        command.append("--apply-chat-template")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)["output"]["text"]


def chat_says(server, messages, tokens):
    """The greedy answer of OpenAI's chat route to a conversation."""
    body = {"messages": messages, "max_completion_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
