"""Run Python programs one after the other, each in a process of its own, after importing transformers only once.

A program of the interpreter that has transformers 4.x, for conftest.py: importing there takes seconds, forking does not.
Reads a JSON object per line from standard input: ``arguments`` (a file to run and its arguments, or -c and code) and
``text``, the program's standard input. Answers each with a line: ``status``, ``stdout`` and ``stderr``.
Computes nothing before it forks, so each program finds torch and transformers as a fresh interpreter has them.
"""

import importlib
import json
import os
import runpy
import sys
import tempfile
import traceback

MODELS = ("albert", "bert", "deberta_v2", "distilbert", "electra", "modernbert", "mpnet", "roberta")  # as tested


def execute(arguments: list[str]) -> None:
    """Run the program in this process, whose standard streams are the program's already."""
    status = 1
    try:
        sys.argv = arguments
        if arguments[0] == "-c":
            exec(arguments[1], {"__name__": "__main__"})
        else:
            runpy.run_path(arguments[0], run_name="__main__")
        sys.stdout.flush()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # never back into the loop of the parent


def serve() -> None:
    """Answer requests until standard input ends."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is no answer
    for name in MODELS:
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    for line in requests:
        request = json.loads(line)
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            stdin.write(request["text"].encode())
            stdin.seek(0)
            child = os.fork()
            if child == 0:
                for number, file in enumerate((stdin, stdout, stderr)):
                    os.dup2(file.fileno(), number)
                answers.close()
                execute(request["arguments"])
            answer: dict[str, int | str] = {"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}
            for name, file in (("stdout", stdout), ("stderr", stderr)):
                file.seek(0)
                answer[name] = file.read().decode(errors="replace")
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
