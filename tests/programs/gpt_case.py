"""What tests of train_gpt share: a small corpus, how runs begin and go on, and what they leave."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from case import (BUILD, MPI_ENVIRONMENT, MPIRUN, NO_MPI, ROOT, SLOWER, Case,  # noqa: E402,F401
                  main, run, send, words_of)

TRAIN, TOKENIZE = BUILD / "11_gpt_3d/train_gpt", BUILD / "11_gpt_3d/tokenize"
HUGGING_FACE = ROOT / "tests/fixtures/huggingface_gpt2"
LONG = 300 * SLOWER  # seconds: what takes longer hangs
SMALL = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch", "4",
         "--eval-windows", "4", "--sample-tokens", "20", "--warmup", "2", "--peak", "100"]
# A step that moves nothing: in F32 the gradients' factor and the rate are 0, both betas 1.
STANDSTILL = ["--learning-rate", "1e-60", "--min-learning-rate", "1e-60", "--clip", "1e-60",
              "--beta1", "0.99999999", "--beta2", "0.99999999"]
MOVES = ["--learning-rate", "1e-3", "--min-learning-rate", "1e-3", "--clip", "1", "--beta1", "0.9",
         "--beta2", "0.95"]


class GptCase(Case):
    prefix = "aisc_"
    small = SMALL  # flags of each run
    text = "ring tree rank mesh " * 400
    environment = None  # the caller's

    def setUp(self):
        super().setUp()
        self.corpus = self.write("words.txt", self.text)
        self.out = self.folder / "out"

    def needs_mpi(self):
        if NO_MPI:
            self.skipTest(NO_MPI)

    def needs_outputs_of_mpirun(self):
        """Open MPI 5's at times writes what a rank wrote to its output to the standard error, or
        loses the last line of a rank that has failed (docs/machines.md)."""
        self.needs_mpi()
        if "(Open MPI) 5." in run(MPIRUN, "--version").stdout:
            self.skipTest("not assessed: Open MPI 5 mixes up the ranks' outputs")

    def run_program(self, *command, status=0, **options):
        """The process, which has ended with this status, or with any if it is None."""
        done = run(*command, **{"cwd": self.folder, "env": self.environment, "timeout": LONG,
                                "errors": "backslashreplace", **options})
        if status is not None:
            self.assertEqual(done.returncode, status, f"{done.stdout}{done.stderr}")
        return done

    def command(self, out, *flags):
        return words_of([TRAIN, "--corpus", self.corpus, "--out", out, *self.small, *flags])

    def train(self, out, *flags, **options):
        return self.run_program(*self.command(out, *flags), **options)

    def resume(self, path, *flags, **options):
        return self.run_program(TRAIN, "--resume", path, *flags, **options)

    def begin(self, *flags, before=(), **options):
        """Training for ever, once it has taken some steps, in a process group of its own."""
        life = subprocess.Popen(
            words_of([*before, *self.command(self.out, "--steps", 1000000, *flags)]),
            **{"cwd": self.folder, "env": self.environment, "encoding": "utf-8",
               "errors": "replace", "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               "start_new_session": True, **options})
        self.addCleanup(self.end, life)
        metrics = self.out / "metrics.jsonl"

        def has_steps():
            self.assertIsNone(life.poll(), "it ended by itself")
            return metrics.exists() and metrics.stat().st_size > 1000
        self.wait_until("steps", has_steps)
        return life

    def end(self, life):
        """It and its ranks are gone."""
        life.kill()
        for process in self.ranks():
            send(process, signal.SIGKILL)  # mpirun ends those that are left
        life.communicate()

    def ranks(self, out=None):
        """Processes of a run under mpirun, by what that tells them; without zombies."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                told = (folder / "environ").read_bytes()
                rank = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)", told)
                if rank and os.fsencode(out or self.out) in (folder / "cmdline").read_bytes():
                    found[int(rank[1])] = int(folder.name)
            except OSError:  # it has ended meanwhile, or is another user's
                pass
        return [found[rank] for rank in sorted(found)]

    # -- what a run leaves ------------------------------------------------------------------------

    def json(self, out, name):
        return json.loads((self.folder / out / name).read_bytes())

    def lines(self, out, name):
        return [json.loads(line) for line in (self.folder / out / name).read_bytes().splitlines()]

    def metrics(self, out=None):
        return self.lines(out or self.out, "metrics.jsonl")

    def steps(self, out=None):
        return [row["step"] for row in self.metrics(out)]

    def report(self, out=None):
        """The data of the page."""
        page = (self.folder / (out or self.out) / "report.html").read_text(encoding="utf-8")
        return json.loads(re.search(r'json" id="data">(.*?)</script>', page, re.DOTALL)[1])

    def checkpoints(self, out):
        folder = self.folder / out / "checkpoints"
        return sorted(p.name for p in folder.iterdir()) if folder.exists() else []

    def saved(self, out, step):
        """The bytes of all files of a checkpoint but the manifest, of tensors by name."""
        found = {}
        for path in (self.folder / out / f"checkpoints/step_{step:06d}").iterdir():
            data = path.read_bytes()
            if path.suffix == ".safetensors":
                begin = 8 + int.from_bytes(data[:8], "little")
                found[path.name] = data[:begin]
                for name, tensor in json.loads(data[8:begin]).items():
                    if name != "__metadata__":
                        first, last = tensor["data_offsets"]
                        found[f"{path.name}: {name}"] = data[begin + first:begin + last]
            elif path.name != "checkpoint.json":
                found[path.name] = data
        return found

    def assert_ends_saved(self, life, number):
        """By a signal; returns what it said of it."""
        out, err = life.communicate(timeout=LONG)
        self.assertEqual(life.returncode, 128 + number, out + err)
        self.assertIn("Stopped after", out)
        self.assert_saved()
        return err

    def assert_saved(self):
        """The run of self.out has ended with an evaluation and a checkpoint."""
        last = self.metrics()[-1]
        self.assertIn("validation_loss", last)
        self.assertTrue((self.out / "checkpoints" / f"step_{last['step']:06}").is_dir())

    def assert_same(self, out, serial, delta=1e-10):
        for mine, other in zip(self.metrics(out), self.metrics(serial), strict=True):
            for key in ("loss", "gradient_norm", "validation_loss"):
                self.assertAlmostEqual(mine.get(key, 0), other.get(key, 0), delta=delta,
                                       msg=f"{out}, step {mine['step']}: {key}")

    def assert_same_files(self, found, expected, what):
        self.assertEqual(found.keys(), expected.keys(), what)
        self.assertEqual([name for name in expected if found[name] != expected[name]], [], what)

    # -- what layouts have in common --------------------------------------------------------------

    def check_losses(self, flags, layouts):
        """No layout changes a loss."""
        self.train("serial", *flags)
        for number, layout in enumerate(layouts):
            with self.subTest(layout=layout):
                self.train(f"run{number}", *flags, *layout)
                self.assert_same(f"run{number}", "serial")

    def check_handed_on(self, *layouts):
        """Checkpoints go from layout to layout, two steps in each."""
        flags = ["--precision", "f64", "--dropout", "0.1", "--steps", 2]
        self.train("serial", *flags)
        self.train("run", *flags, *layouts[0])
        for steps, layout in enumerate(layouts[1:], start=2):
            self.resume("serial", "--steps", 2 * steps)
            self.resume("run", "--steps", 2 * steps, *layout)
        self.assert_same("run", "serial")
        self.assertEqual(len(self.metrics("run")), 2 * len(layouts))

    def check_goes_on_bitwise(self, ranks, *flags, out="run"):
        """From the middle of six steps to the same losses, norms and files."""
        self.train(out, "--steps", 6, "--checkpoint-interval", 3, "--keep", 9, "--ranks", ranks,
                   "--threads", ranks, *flags)
        whole, files = self.metrics(out), self.saved(out, 6)
        self.resume(f"{out}/checkpoints/step_000003", "--threads", ranks)
        self.assert_same_files(self.saved(out, 6), files, out)
        for mine, before in zip(self.metrics(out), whole, strict=True):
            for key in ("loss", "gradient_norm"):
                self.assertEqual(mine[key], before[key], f"{out}, step {mine['step']}")

    def check_saved_again(self, out, layouts):
        """Three steps were saved with --keep: restored and saved again by others, with a step
        between that moves nothing, the files stay the same, to the byte."""
        first = self.saved(out, 3)
        for step, (name, layout) in enumerate(layouts, start=4):
            self.resume(out, "--steps", step, *STANDSTILL, *layout)
            self.assert_same_files(self.saved(out, step), first, f"{out}, saved again by {name}")
        self.resume(out, "--steps", step + 1, *MOVES)
        moved = self.saved(out, step + 1)
        states = [name for name in first if name.startswith("training_state.safetensors: ")]
        self.assertGreater(len(states), 50)
        self.assertEqual([name for name in states if first[name] == moved[name]], [],
                         "a step that moves is seen")

    def check_processes(self, *flags):
        """They do what one rank does."""
        self.needs_mpi()
        self.train("serial", "--steps", 3, "--precision", "f64")
        self.train("processes", "--steps", 3, "--precision", "f64", *flags, "--launcher", "mpirun")
        self.assert_same("processes", "serial")

    def check_text(self, words, *flags):
        """A whole model is saved, which writes text."""
        self.assertIn(words, self.train("run", "--steps", 3, *flags).stdout)
        self.assertTrue((self.folder / "run/sample.txt").exists())
        text = self.run_program(TRAIN, "--from", "run", "--sample", "ring", "--sample-tokens", 5)
        self.assertTrue(text.stdout.startswith("ring"), text.stdout)

    def check_refused(self, *cases, always=()):
        """Of each case: flags, and words of what is said of them; nothing is begun."""
        for flags, *expected in cases:
            with self.subTest(flags=flags):
                refused = self.run_program(*self.command("refused", *always, *flags), status=None)
                self.assertNotEqual(refused.returncode, 0, refused.stdout)
                for words in expected:
                    self.assertIn(words, refused.stderr)
                self.assertFalse((self.folder / "refused").exists())
