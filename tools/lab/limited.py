#!/usr/bin/env python3
"""Runs a command that is not trusted, within limits, and leaves nothing of it behind.

usage: limited.py REPORT SECONDS CPU_SECONDS MEMORY_MIB PROCESSES USER CORES -- command ...

It is a process of its own so that it can be the reaper of everything that the command starts: what
detaches itself from its parents becomes a child of this process, and is killed with the others in
the end. REPORT gets {"status", "exceeded", "seconds", "cpu_seconds"}: status as subprocess has it,
exceeded one of "", "time", "cpu", "memory", "processes". CPU_SECONDS are those of all threads
together, which a busy machine does not make longer. PROCESSES counts threads, too. USER is a number
to become, or "-"; nobody else may run as that user, since all its processes are killed in the end.
CORES are the numbers of those that it may run on, "0,2", or "-".
"""
import ctypes
import json
import os
import pathlib
import resource
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_SECONDS = 0.02
GRACE_SECONDS = 2  # from SIGTERM, in which a launcher may say what its ranks do, to SIGKILL
MOST_OUTPUT_BYTES = 64 << 20
# Beyond PROCESSES, which the looks see to: what starts more between two looks is stopped by the
# system. Other programs of the same user count there, too, and may come and go.
SLACK, SLACK_OF_A_SHARED_USER = 64, 1000
PAGE = resource.getpagesize()
TICK = os.sysconf("SC_CLK_TCK")


def descendants():
    """{process: (threads, resident bytes, CPU seconds)} of all that has this process as an ancestor;
    CPU seconds with those of children that have ended."""
    children, sizes = {}, {}
    for folder in os.listdir("/proc"):
        if not folder.isdigit():
            continue
        try:
            with open(f"/proc/{folder}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(folder))
        sizes[int(folder)] = (int(fields[17]), int(fields[21]) * PAGE,
                              sum(int(ticks) for ticks in fields[11:15]) / TICK)
    found, rest = {}, [os.getpid()]
    while rest:
        for child in children.get(rest.pop(), []):
            found[child] = sizes[child]
            rest.append(child)
    return found


def threads_of_user():
    """How many threads the system counts for the user who calls."""
    count = 0
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                if os.stat(f"/proc/{folder}").st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{folder}/task"))
            except OSError:  # it has ended meanwhile
                pass
    return count


def become(user):
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))


def kill_user(user):
    """All of a user's processes at once: none has the time to start another."""
    child = os.fork()
    if not child:
        try:
            become(user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def kill_all(group, user):
    while True:
        if user != "-":
            kill_user(user)
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        for process in descendants():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def start(command, processes, user, cores):
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    me = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        if cores != "-":
            os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_OUTPUT_BYTES, MOST_OUTPUT_BYTES))
        most = (processes + SLACK if user != "-"
                else threads_of_user() + processes + SLACK_OF_A_SHARED_USER)
        allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if allowed == resource.RLIM_INFINITY or most < allowed:
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        if user != "-":
            become(user)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == me:
            os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr, flush=True)
    os._exit(127)


def cpu_of_ended():
    """CPU seconds of children that this process has seen end."""
    times = os.times()
    return times.children_user + times.children_system


def watch(child, seconds, cpu_seconds, memory_bytes, processes):
    """Waits for the child. Returns (status or None, what it exceeded)."""
    begin = time.monotonic()
    terminated, why = None, ""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), why
        now = time.monotonic()
        if terminated and now - terminated > GRACE_SECONDS:
            return None, why
        sizes = descendants().values()
        is_late = now - begin > seconds
        if not terminated and (is_late or cpu_of_ended() + sum(cpu for *_, cpu in sizes) > cpu_seconds):
            terminated, why = now, "time" if is_late else "cpu"
            os.killpg(child, signal.SIGTERM)
        if sum(threads for threads, *_ in sizes) > processes:
            return None, "processes"
        if sum(resident for _, resident, _ in sizes) > memory_bytes:
            return None, "memory"
        time.sleep(LOOK_SECONDS)


def main():
    report, seconds, cpu_seconds, memory, processes, user, cores, dashes, *command = sys.argv[1:]
    assert dashes == "--"

    child = 0

    def stop(*_):
        if child:
            kill_all(child, user)
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    begin = time.monotonic()
    child = start(command, int(processes), user, cores)
    status, exceeded = watch(child, float(seconds), float(cpu_seconds), int(memory) << 20,
                             int(processes))
    took = time.monotonic() - begin
    kill_all(child, user)
    pathlib.Path(report).write_text(
        json.dumps({"status": status, "exceeded": exceeded, "seconds": took,
                    "cpu_seconds": cpu_of_ended()}), encoding="utf-8")


if __name__ == "__main__":
    main()
