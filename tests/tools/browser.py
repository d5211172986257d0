"""How tests look at pages: a headless Chromium opens them in frames of any width, where a script that
stands in each page tells what it has found."""
import html
import json
import os
import re
import shutil

from case import run

BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome",
                                               "google-chrome-stable"])), None)
PHONE = 360  # CSS pixels

# Opens page after page in a frame of a width that a browser's windows need not have.
FRAME = """<!DOCTYPE html><pre id="answers"></pre><script>
const answers = [], steps = %s;
function next() {
  document.querySelector('iframe')?.remove();
  if (answers.length === steps.length)
    return document.getElementById('answers').textContent = JSON.stringify(answers);
  const {url, width, task} = steps[answers.length], frame = document.createElement('iframe');
  frame.name = JSON.stringify(task);
  frame.style = `width: ${width}px; height: 800px; border: 0`;
  frame.src = url;
  document.body.append(frame);
}
addEventListener('message', (event) => { answers.push(event.data); next(); });
next();
</script>
"""


def browse(case, pages, probe, steps, dark=False):
    """What `probe` answers to steps of (page, width, task, ...). It is a script that stands in each
    of the pages: it finds the task in window.name, and posts its answer to the page around it, with
    innerWidth as `inner`."""
    if BROWSER is None:
        case.skipTest("not assessed: no browser (chromium) is installed")
    for path in pages:
        if probe not in (text := path.read_text(encoding="utf-8")):
            path.write_text(text.replace("</body>", f"<script>{probe}</script></body>"),
                            encoding="utf-8")
    frame = case.write("frame.html", FRAME % json.dumps(
        [{"url": path.as_uri(), "width": width, "task": task} for path, width, *task in steps]))
    # In the locale C it keeps nothing of what pages store where a path of its own has an umlaut.
    done = run(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--user-data-dir={case.folder / 'browser'}", "--window-size=1400,1000",
               f"--blink-settings=preferredColorScheme={0 if dark else 1}",
               "--virtual-time-budget=100000", "--dump-dom", frame.as_uri(), timeout=200,
               env={**os.environ, "LC_ALL": "C.UTF-8"})
    answers = re.search(r'<pre id="answers">(.+?)</pre>', done.stdout, re.DOTALL)
    case.assertTrue(answers, "the pages did not run to their end\n" + done.stderr[-2000:])
    answers = json.loads(html.unescape(answers.group(1)))
    case.assertEqual([answer["inner"] for answer in answers], [step[1] for step in steps])
    return answers
