"""The chat templates that an export gets against the families' published ones: chat_jinja_test.py

Each text of data/prepare/chat_templates renders the same as the published one of chat_templates/,
by transformers' own Jinja: with and without a system message, tools and what follows a prompt. What
a family has no words for it refuses.
"""
import itertools
import pathlib

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from chat_template_test import NO_SYSTEM, TEMPLATES, TOOLS, WITH_TOOLS, call, conversations, says

OURS = pathlib.Path(__file__).parents[2] / "data/prepare/chat_templates"
TURNS = ("gemma", "gemma3", "mistral")  # of the user and the assistant, one after the other
WORDS = ["Hi.", "", " ", "  two\n lines \n\n", "\n\t\u00e9\u00e8 \U0001F600\u00a0",
         "a 'b' \"c\" \\n {{ d }} <e>", "<tool_response>\nx\n</tool_response>"]


def render(path, messages, tools=None, **more):
    [[text], _] = render_jinja_template([messages], tools=tools, chat_template=path.read_text(),
                                        bos_token="", eos_token="</s>", **more)
    return text


def answers_with_tools(family):
    """Messages behind the user's."""
    one, two = call("weather", 1, town="Z\u00fcrich", days=1), call("time", 2)
    told = [says("tool", text, tool_call_id=f"call0000{number}")
            for number, text in ((1, '{"celsius": 21.5}'), (2, " no\u00f6n\n"))]
    for calls in ([one], [two], [one, two])[:2 if family == "llama3.1" else None]:
        for content in ("", None, "I look.", "I look.\n"):
            asks = {"role": "assistant", "content": content, "tool_calls": calls}
            yield [asks]
            yield [asks, *told[:len(calls)]]
            yield [asks, *told[:len(calls)], says("assistant", "Warm. ")]
    yield [asks, *told, {"role": "assistant", "tool_calls": [two]}, told[1], says("assistant", "b")]


def chats(family):
    """(messages, tools)"""
    yield from conversations(family)
    systems = [[]] + [[says("system", words)] for words in WORDS if family not in NO_SYSTEM]
    for system, asked, said in itertools.product(systems, WORDS, WORDS):
        chat = [*system, says("user", asked)]
        yield chat, None
        if family == "mistral" and system:  # its text leaves it out where the assistant is last
            yield [*chat[:-1], says("user", "a"), says("assistant", said), chat[-1]], None
        else:
            yield [*chat, says("assistant", said)], None
            yield [*chat, says("assistant", said), says("user", "a"), says("assistant", "b")], None
        if family not in TURNS:
            yield [*chat, says("user", "a"), says("system", said), says("assistant", "b")], None
    if family == "qwen3":
        thoughts = ["<think>\nfirst\n</think>\n\n", "<think></think>", "\n\nso</think>\n", ""]
        for first, last, more in itertools.product(thoughts, thoughts, WORDS):
            yield [says("user", "a"), says("assistant", first + "b"), says("user", "c"),
                   says("assistant", first + more), says("assistant", last + more)], None
            yield [says("user", "c"), says("assistant", "x", reasoning_content=more),
                   says("assistant", first + "d", reasoning_content=more)], None
    if family in WITH_TOOLS:
        some = systems[:1] if family == "mistral" else systems[:3]
        for system, behind in itertools.product(some, answers_with_tools(family)):
            for tools in (None, TOOLS[:1], TOOLS):
                yield [*system, says("user", " How warm? "), *behind], tools
                chat = [*system, says("user", "a"), says("assistant", "b"), says("user", "c"),
                        *behind]
                if family not in TURNS or behind[-1].get("content") == "Warm. ":
                    chat.append(says("user", "Thanks."))
                yield chat, tools


def refused(family):
    """(messages, tools)"""
    user, answer = says("user", "a"), says("assistant", "b")
    calls = {"role": "assistant", "content": "", "tool_calls": [call("time", 1)]}
    yield [user, says("critic", "c")], None
    yield [user, says("assistant", None)], None
    yield [user, says("assistant", [{"type": "text", "text": "b"}])], None
    yield [says("user", None), answer], None
    if family in NO_SYSTEM:
        yield [says("system", "s"), user], None
    if family in TURNS:
        yield [answer], None
        yield [user, user], None
        yield [user, answer, says("system", "s")], None
    if family not in WITH_TOOLS:
        yield [user, answer], TOOLS
        yield [user, calls], None
        yield [user, answer, says("tool", "t")], None
        return
    yield [user, says("user", "c", tool_calls=calls["tool_calls"])], None
    if family != "qwen3":
        function = {"name": "time", "arguments": "{}"}
        yield [user, calls | {"tool_calls": [{"id": "1", "function": function}]}], None
    if family == "llama3.1":
        yield [user, calls | {"tool_calls": 2 * calls["tool_calls"]}], None
        yield [answer], TOOLS
    if family == "mistral":
        yield [says("system", "s")], None
        function = {"name": "time", "arguments": {}}
        yield [user, calls | {"tool_calls": [{"function": function}]}], None
        yield [user, says("tool", "t")], None


def check_family(family):
    ours, published = OURS / f"{family}.jinja", TEMPLATES / f"{family}.jinja"
    count = 0
    for (messages, tools), prompt in itertools.product(chats(family), (False, True)):
        said, wanted = (render(path, messages, tools, add_generation_prompt=prompt)
                        for path in (ours, published))
        assert said == wanted, (family, messages, tools, said, wanted)
        count += 1
    for messages, tools in refused(family):
        try:
            said = render(ours, messages, tools)
        except (TemplateError, TypeError):
            continue
        raise AssertionError((family, "is not refused", messages, tools, said))
    return count


def check_what_the_published_leave_out():
    user, answer, system = says("user", "a"), says("assistant", "b"), says("system", "s")
    said = render(OURS / "mistral.jinja", [system, user, answer])
    assert said == "[INST]s\n\na[/INST]b</s>", said
    said = render(OURS / "qwen3.jinja", [user], add_generation_prompt=True, enable_thinking=False)
    assert said + "b<|im_end|>\n" == render(OURS / "qwen3.jinja", [user, answer]), said
    said = render(OURS / "llama3.1.jinja", [user], date_string="1 May 2025")
    assert "Today Date: 1 May 2025\n\n" in said, said


def main():
    families = sorted(file.name.removesuffix(".jinja") for file in TEMPLATES.glob("*.jinja"))
    assert families == sorted(file.name.removesuffix(".jinja") for file in OURS.iterdir())
    for family in families:
        print(f"{family}: {check_family(family)} chats as the published template has them")
    check_what_the_published_leave_out()


if __name__ == "__main__":
    main()
