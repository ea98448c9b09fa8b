"""docs/messages.md explains every message of the sources that a person can meet, and docs/operations.md explains every
setting and variable.

In the page a message is in backticks, with a capital word or a letter for each part that varies."""

import pathlib
import re

from world import ROOT

MESSAGES = pathlib.Path(ROOT, "docs", "messages.md")
SETTINGS = pathlib.Path(ROOT, "docs", "operations.md")
CONFIGURATION = pathlib.Path(ROOT, "docs", "configuration.md")
MAIN_ONLY = ("demo", "command_demo", "kill_point", "door_count")  # the demo explains itself; test builds alone have the other two

# The calls that print messages: folders, and the text from the call to its message.
SOURCES = (
    ("src/preload src/base src/daemon src/sched src/wire", r"log_(?:warning|error|notice)\(\s*"),
    ("src/daemon src/kubernetes/webhook src/kubernetes/extender src/kubernetes/api src/base", r"options_fail\((?:&table|t),\s*"),
    ("src/daemon", r"snprintf\(error,\s*PLACE_ERROR_MAX,\s*"),
    ("src/daemon", r"answer_(?:error|later)\(\s*"),
    ("src/daemon/orders", r"answer_program\(\s*s, order, (?:peer|by),\s*"),
    ("src/daemon/orders/control.c", r"(?:return|:) (?=\"[a-z])"),  # the reasons against an order
    ("src/daemon/orders/order_reload.c", r"snprintf\(\s*error, CONFIG_ERROR_MAX,\s*"),
    ("src/daemon/ledger/entitlement.c", r"snprintf\(text, sizeof\(text\),\s*"),  # texts of NOTICE
    ("src/daemon", r"client_refuse\([^\"()]*,\s*"),
    ("src/daemon", r"refuse_connection\([^\"()]*,\s*"),
    ("src/kubernetes", r"log_(?:warning|error|notice)\(\s*"),
    ("src/kubernetes/serve", r"say\(q, MHD_HTTP_FORBIDDEN,\s*"),
    ("src/kubernetes", r"patch_say\(\s*p,\s*"),
    ("src/kubernetes/webhook src/kubernetes/serve src/kubernetes/extender", r"snprintf\(\s*error, \w+_ERROR_MAX,\s*"),
    ("src/kubernetes/plugin", r"snprintf\(error, GRANT_ERROR_MAX,\s*"),
    ("src/kubernetes/webhook/review.c src/kubernetes/extender/extender_answer.c", r"refuse\(error,\s*"),
    ("src/kubernetes/extender", r"snprintf\(\s*line, sizeof\(line\),\s*"),
    ("src/kubernetes/extender", r"snprintf\(\s*ret, JOBS_WHY_MAX,\s*"),
    ("src/kubernetes/extender/place_jobs.c", r"refuse\(\s*ret,\s*"),
    ("src/kubernetes/plugin", r"snprintf\((?:sentence, sizeof\(sentence\)|message, sizeof\(message\)),\s*"),
    ("src/client src/lab", r"cli_fail\(\s*(?:-1|CLI_(?:OK|FAILED|NO_\w+)),\s*"),
    ("src/lab/measure/half.c", r"go_without\(\s*h,\s*"),
    ("src/pairing", r"command_fail\(\s*(?:0|STATUS_FAILED),\s*"),
    ("src/pairing", r"model_fail\(\s*error,\s*(?:-\w+,\s*)?"),
    ("src/pairing src/job", r"fail(?:_\w+)?\(\s*&?(?:r|error),\s*(?:-\w+,\s*)?"),
    ("src/ranks", r"(?:log_warning\(|comm_fail\(\s*(?:result|nccl(?:InvalidUsage|SystemError|UnhandledCudaError|RemoteError)),)\s*"),
    ("src/ranks/comm", r"(?:fail_for_good\(\s*c,\s*\w+,|snprintf\(\s*(?:ret|text), (?:COMM_WHY_MAX|sizeof\(text\)),)\s*"),
    ("src/slurm", r"(?<!void )say\(\s*"),
    ("src/slurm/slurm_jobs.c", r"snprintf\(\s*sentence,\s*JOBS_SENTENCE_MAX,\s*"),
    ("src/slurm/wishes.c", r"snprintf\(\s*error,\s*WISHES_ERROR_MAX,\s*"),
    ("src/client/doctor", r"finding_add\(\s*(?:WARN|FAIL),\s*"),
)

# A string literal, or a macro or conversion between two literals.
TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_]\w*)(?=\s*"))')


def text_after(source, at):
    """Returns the pieces of the text that begins here, split at its variable parts; None if it is no literal."""
    whole, found = "", False
    while True:
        token = TOKEN.match(source, at)
        if not token:
            break
        found = True
        whole += "%s" if token[1] is None else token[1].replace('\\"', '"')
        at = token.end()
    # SUBLET_VERSION or another macro may also come last.
    pieces = re.split(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j)?[a-zA-Z]", whole.replace("%%", "\0"))
    return [piece.replace("\0", "%") for piece in pieces] if found else None


def messages():
    for folders, call in SOURCES:
        for folder in folders.split():
            for path in sorted(pathlib.Path(ROOT).glob(folder if folder.endswith(".c") else folder + "/**/*.c")):
                if path.name.startswith(MAIN_ONLY):
                    continue
                source = path.read_text()
                for found in re.finditer(r"(?<!\w)" + call, source):
                    pieces = text_after(source, found.end())
                    if pieces and any(p.strip() for p in pieces):
                        yield path.relative_to(ROOT), pieces


def spans(text):
    return [" ".join((a or b).split()) for a, b in re.findall(r"``(.+?)``|`([^`]+)`", text)]


def test_every_message_is_explained():
    shown, patterns, telling, missing = spans(MESSAGES.read_text()), [], [], []
    for path, pieces in messages():
        patterns.append(re.compile(".+?".join(re.escape(p) for p in pieces) + (".+" if pieces[-1].endswith(" ") else "")))
        if sum(len(p.strip()) for p in pieces) > 4:  # "NAME: REASON" fits anything
            telling.append(patterns[-1])
        if not any(patterns[-1].fullmatch(s) for s in shown):
            missing.append(f"{path}: {'…'.join(pieces)}")
    assert len(patterns) > 60, "the sources were not read"
    assert not missing, "not in docs/messages.md:\n" + "\n".join(sorted(set(missing)))
    # The page has no other messages: the first cells of its tables are checked.
    rows = re.findall(r"^\| (`.+?) \| ", MESSAGES.read_text(), re.M)
    surplus = [s for row in rows for s in spans(row) if not any(p.fullmatch(s) for p in telling)]
    assert len(rows) > 40
    assert not surplus, "in docs/messages.md, and in no source:\n" + "\n".join(surplus)


def test_every_setting_is_explained():
    """Settings are keys of the configuration and variables of the environment."""
    page = SETTINGS.read_text()
    keys = [key for name in ("config.c", "classes.c")
            for key in re.findall(r'^        \{"(\w+)", &\w+,', pathlib.Path(ROOT, "src/daemon/setup", name).read_text(), re.M)]
    table = pathlib.Path(ROOT, "src/base/settings.def").read_text()
    variables = {"SUBLET_" + name: readers for name, readers in re.findall(r'^SETTING\((\w+), "([^"]+)"', table, re.M)}
    assert len(keys) > 30 and len(variables) > 5
    assert not [k for k in keys if f"`{k}`" not in CONFIGURATION.read_text()]
    assert not [v for v, readers in variables.items() if "test builds" not in readers and f"`{v}" not in page]
    assert not set(re.findall(r"`(SUBLET_\w+)", page)) - set(variables), "no such variable"


def test_every_key_of_slurms_plugin_is_explained():
    page = pathlib.Path(ROOT, "docs", "slurm.md").read_text()
    asked = re.findall(r'^        \{"(\w+)", SETTING_', pathlib.Path(ROOT, "src/slurm/wishes.c").read_text(), re.M)
    allowed = re.findall(r'^        \{"(\w+)", "', pathlib.Path(ROOT, "src/slurm/job_bounds.c").read_text(), re.M)
    words = re.findall(r'^ +\{"(\w+)=", plugin', pathlib.Path(ROOT, "src/slurm/spank.c").read_text(), re.M)
    assert len(asked) == 4 and len(allowed) == 6 and len(words) == 3
    assert not [key for key in asked if f"| `{key}=" not in page]
    assert not [key for key in allowed if f"| `{key}` |" not in page]
    assert not [word for word in words if f"| `{word}=" not in page]


def test_variables_are_read_through_their_table():
    sources = [p for p in pathlib.Path(ROOT, "src").glob("**/*.c") if p.name != "settings.c"]
    assert len(sources) > 100
    assert not [p for p in sources if re.search(r'getenv\("SUBLET_', p.read_text())]
