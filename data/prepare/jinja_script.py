"""Renders a chat template as transformers does, for data/prepare/jinja_template.h.

Reads lines of JSON from standard input and answers each with one line.
First line: {"template", "tokens", "date", "cpu_s", "memory_mib", "text_bytes"}; the answer is {},
or {"refused"}. Each further line: {"messages", "tools", "wanted"}; the answer is {"text",
"learnt", "blocks"} or {"refused": why}. "wanted" is answers, or without "learnt" text or prompt.
"learnt" has pairs of places, in bytes of UTF-8; "blocks":
the template's {% generation %} blocks say them. It ends with its standard input.
"""
import datetime
import json
import os
import resource
import signal
import sys

sys.path = [folder for folder in sys.path if folder]  # no module of the working folder
INSTALL = "install it with `apt-get install python3-jinja2` or `pip install jinja2`"
try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print(json.dumps({"refused": f"chat templates need Python's jinja2, which {sys.executable} "
                                 f"does not have: {INSTALL}"}), flush=True)
    sys.exit(0)


class Refused(Exception):
    """Why a conversation cannot be learnt."""


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: what is learnt."""
    tags = {"generation"}
    MARKS = "\ue000\ue001\ue002", "\ue002\ue001\ue000"  # around it; taken out afterwards

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_marked")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _marked(self, caller):
        return self.MARKS[0] + caller() + self.MARKS[1]


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):  # so that namespace(self=...) works
        self, args = args[0], args[1:]
        jinja2.utils.Namespace.__init__(self, *args, **kwargs)

    def __setitem__(self, name, value):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"{name} cannot be set")
        jinja2.utils.Namespace.__setitem__(self, name, value)


class Renderer:
    def __init__(self, template, tokens, date, cpu_s, memory_mib, text_bytes):
        self.tokens, self.date, self.cpu_s = tokens, date, cpu_s
        self.text_bytes = text_bytes
        signal.signal(signal.SIGPROF, self.out_of_time)
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
        environment.filters["tojson"] = tojson
        environment.globals.update(raise_exception=raise_exception, namespace=Namespace,
                                   strftime_now=self.strftime_now)
        self.header = None
        try:
            self.limited(lambda: setattr(self, "template", environment.from_string(template)))
        except jinja2.exceptions.TemplateSyntaxError as error:
            place = f"line {error.lineno}"
            raise Refused(f"the template is not valid Jinja: {place}: {error}") from None

    def strftime_now(self, form):
        if self.date is None:
            raise Refused("the template writes today's date; say which one with --chat-date "
                          "YYYY-MM-DD")
        return datetime.datetime.strptime(self.date, "%Y-%m-%d").strftime(form)

    def out_of_time(self, *_):
        raise Refused(f"the template takes more than {self.cpu_s} s of CPU time")

    def marked(self, messages, tools, is_prompt):
        """With the marks of {% generation %}."""
        parts, size = [], 0
        for part in self.template.generate(messages=messages, tools=tools, documents=None,
                                           add_generation_prompt=is_prompt, **self.tokens):
            size += len(part)
            if size > self.text_bytes:
                raise Refused(f"the template writes more than {self.text_bytes} bytes")
            parts.append(part)
        return "".join(parts)

    def text(self, messages, tools, is_prompt=False):
        text = self.marked(messages, tools, is_prompt)
        for mark in Generation.MARKS:
            text = text.replace(mark, "")
        return text

    def find_header(self):
        """What the template puts before an answer, by two unlike answers to one question."""
        if self.header is None:
            asked = {"role": "user", "content": "Q"}
            try:
                both = [self.text([asked, {"role": "assistant", "content": words}], None)
                        for words in ("Ab", "zY")]
                before = len(os.path.commonprefix([self.text([asked], None), both[0]]))
                if both[0] == both[1]:
                    raise Refused("the template does not write what the assistant says in a text")
                self.header = os.path.commonprefix(both)[before:]
            except Refused:
                raise
            except Exception:  # it does not take this question
                self.header = ""
        return self.header

    def start_of(self, messages, tools, longer, number):
        """Where the answer that `longer` ends with begins; `messages`: those before it."""
        try:
            plain = self.text(messages, tools)
            prompt = self.text(messages, tools, is_prompt=True)
        except jinja2.exceptions.TemplateError:
            if messages:
                raise
            plain = prompt = ""  # there is no text of no messages
        if prompt != plain and longer.startswith(prompt):
            return len(prompt)
        if not longer.startswith(plain):
            raise Refused(f"the template rewrites what stands before message {number} when that "
                          "message is added, so it does not say which part is its answer")
        header = self.find_header()
        return len(plain) + (len(header) if longer.startswith(header, len(plain)) else 0)

    def answers(self, messages, tools, whole):
        learnt = []
        self.find_header()
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            is_last = i + 1 == len(messages)
            longer = whole if is_last else self.text(messages[:i + 1], tools)
            if not whole.startswith(longer):
                raise Refused(f"the template rewrites message {i + 1} when later messages follow "
                              "it, so it does not say which part is its answer")
            learnt.append((self.start_of(messages[:i], tools, longer, i + 1), len(longer)))
        return learnt

    def rendered(self, messages, tools, wanted):
        marked = self.marked(messages, tools, wanted == "prompt")
        blocks, text = [], ""
        first, last = Generation.MARKS
        pieces = marked.split(first)
        text = pieces[0]
        for piece in pieces[1:]:
            block, _, rest = piece.partition(last)
            blocks.append((len(text), len(text) + len(block)))
            text += block + rest
        learnt = blocks
        if wanted == "answers" and not blocks:
            learnt = self.answers(messages, tools, text)
        if not text.isascii():
            learnt = [[len(text[:place].encode()) for place in pair] for pair in learnt]
        return {"text": text, "learnt": learnt, "blocks": bool(blocks)}

    def answer(self, request):
        for message in request["messages"]:
            if "reasoning_content" in message:
                message["thinking"] = message["reasoning_content"]  # gpt-oss reads that
        return self.limited(lambda: self.rendered(**request))

    def limited(self, work):
        used = resource.getrusage(resource.RUSAGE_SELF)
        end = int(used.ru_utime + used.ru_stime + 2 * self.cpu_s) + 2  # where no handler is run
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def why(error, memory_mib):
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, MemoryError):
        return f"the template needs more than {memory_mib} MiB of memory"
    if isinstance(error, jinja2.exceptions.SecurityError):
        return f"the template does what Jinja's sandbox forbids: {error}"
    if isinstance(error, jinja2.exceptions.TemplateError):
        return f"the template refuses it: {error}"
    return f"the template fails: {type(error).__name__}: {error}"


def say(answer):
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=True).encode() + b"\n")
    sys.stdout.buffer.flush()


def main():
    renderer, memory_mib = None, 0
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
            if renderer is None:
                memory_mib = request["memory_mib"]
                renderer = Renderer(**request)
                say({})
            else:
                say(renderer.answer(request))
        except Exception as error:  # what a template does can raise anything
            say({"refused": why(error, memory_mib)})


main()
