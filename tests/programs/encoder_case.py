"""What tests of train_bert and train_translation share."""
from gpt_case import STANDSTILL, GptCase, main, words_of  # noqa: F401


class EncoderCase(GptCase):
    program = None

    def command(self, out, *flags):
        return words_of([self.program, "--out", out, *self.small, *flags])

    def resume(self, path, *flags, **options):
        return self.run_program(self.program, "--resume", path, *flags, **options)

    def says_help(self, *absent):
        text = self.run_program(self.program, "--help").stdout
        self.assertIn("--layers", text)
        self.assertIn("--machine", text)
        for flag in absent:
            self.assertNotRegex(text, rf"--{flag}\b")

    def check_right(self, out, *kinds):
        last = self.metrics(out)[-1]
        self.assertEqual(sorted(last["right"]), sorted(kinds))
        for share in last["right"].values():
            self.assertTrue(0 <= share <= 1, share)
        self.assertIn("right are", self.said)
        page = (self.folder / out / "report.html").read_text(encoding="utf-8")
        for kind in kinds:
            self.assertIn(f'"{kind}"', page)

    def check_same_right(self, out, serial):
        self.assertEqual([row.get("right") for row in self.metrics(out)],
                         [row.get("right") for row in self.metrics(serial)], out)

    def check_layouts(self, layouts):
        flags = ["--steps", "3", "--precision", "f64", "--dropout", "0.1", "--eval-interval", "2"]
        self.check_losses(flags, layouts)
        for number in range(len(layouts)):
            self.check_same_right(f"run{number}", "serial")

    def check_saved_by(self, *layouts):
        """The same files to the byte, whatever ranks read them and write them again."""
        self.train("run", "--steps", "3", "--keep", "99")
        first = self.saved("run", 3)
        for step, layout in enumerate(layouts, start=4):
            self.resume("run", "--steps", step, *STANDSTILL, *layout)
            self.assert_same_files(self.saved("run", step), first, f"saved by {layout}")

    def check_in_virtual_time(self, *flags):
        run = self.run_program(self.program, "--machine", "dgx-a100", "--meta", *flags)
        self.assertRegex(run.stdout, r"a step +[\d.e+-]+ s")
        self.assertNotIn("nan", run.stdout)
