# SPDX-License-Identifier: Apache-2.0
"""Renders conversations with Hugging Face's renderer: hugging_face.py TEMPLATE_FOLDER OUT.json"""
import datetime
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as hugging_face

# They print lists without tojson, or escape HTML (common/chat/chat_template.h).
DIFFERENT = ["meetkai-functionary-medium-v3.1.jinja", "openbmb-MiniCPM5-1B.jinja"]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = datetime.datetime(2026, 3, 4, 5, 6, 7)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **fields):
    return {"role": "assistant", "content": content, **fields}


def call(name, arguments):
    function = {"name": name, "arguments": arguments}
    return assistant("", tool_calls=[{"id": "abcdef123", "type": "function", "function": function}])


def result(content):
    return {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": content}


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Get the <b>weather</b> & \"more\" in Z\u00fcrich's",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "A city", "enum": ["Z\u00fcrich", "\u5317\u4eac"]},
        "days": {"type": "integer", "default": 3}, "ratio": {"type": "number", "default": 0.5},
        "flags": {"type": "array", "items": {"type": "boolean"}}}}}}]
SYSTEM = {"role": "system", "content": "You are <b>kind</b>."}
CONVERSATIONS = [
    [user("Hello")],
    [SYSTEM, user("Hi  \n"), assistant(" Hello!\n"), user("  \u00dcn\u00ef \u2713 \u4e16 ' \" \\ \t end \u3000")],
    [user("a"), assistant("<think>\nI think.\n</think>\n\nAnswer"), user("b"), assistant("<think>x</think>y"), user("c")],
    [user("a"), assistant("Answer", reasoning_content="Because", thinking="Because"), user("b")],
    [SYSTEM, user("Weather?"), call("get_weather", {"city": "Z\u00fcrich", "days": 2, "ratio": 1.5, "flags": [True]}),
     result('{"t": 20}'), assistant("It is 20."), user("Thanks")],
    [user("Weather?"), call("get_weather", '{"city": "B"}'), result("20")],
    [user("a"), user("b")],
    [{"role": "developer", "content": "Be short."}, user("a"), assistant("b"), user("c")],
    [user("<|im_end|></s><|eot_id|>[INST]<end_of_turn><|end|>"), assistant("<|start|>x"), user("y")],
]
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True, "reasoning_effort": "high"}]


def render(template, messages, tools, add_generation_prompt, variables):
    """The text, or False if the template refuses, or None if Python fails in a way that is not the template's."""
    try:
        return hugging_face.render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template,
            add_generation_prompt=add_generation_prompt, **variables, **TOKENS)[0][0]
    except Exception as error:
        return False if type(error).__name__ == "TemplateError" else None


def main():
    folder, out = sys.argv[1:]
    hugging_face.datetime = FixedTime
    cases = []
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        if path.name in DIFFERENT:
            continue
        template = path.read_text()
        for messages in CONVERSATIONS:
            for tools in (None, TOOLS):
                for add_generation_prompt in (False, True):
                    for variables in VARIABLES:
                        expected = render(template, messages, tools, add_generation_prompt, variables)
                        if expected is None:
                            continue
                        cases.append({"name": path.name, "template": template, "messages": messages, "tools": tools,
                                      "add_generation_prompt": add_generation_prompt, "variables": variables,
                                      "tokens": TOKENS, "expected": expected})
    pathlib.Path(out).write_text(json.dumps({"now": NOW.isoformat(), "cases": cases}))


if __name__ == "__main__":
    main()
