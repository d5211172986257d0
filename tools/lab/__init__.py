"""The lab machine: exercises, stubs, grading, mutants. The commands are the scripts beside this
folder (labs, grade, mutants, export_students)."""
