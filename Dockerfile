# A Debian with everything that `./aisc setup` installs, what sanitizers, the book and a debugger
# need, and an ordinary user. The course itself is mounted, so that what is written and built stays
# when the container goes:
#
#   docker build -t aisc --build-arg UID=$(id -u) .
#   docker run --rm -it --shm-size 1g -v "$PWD":/home/student/aisc aisc
#
# The same on x86-64 and ARM64. tools/authors/try_container follows these steps without Docker.
FROM debian:bookworm-slim

ENV LANG=C.UTF-8
COPY tools/setup tools/compiler tools/packages.txt /usr/local/lib/aisc/
RUN /usr/local/lib/aisc/setup && \
    DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends clang gdb git less libclang-rt-dev libomp-dev \
        python3-markdown-it python3-pygments && \
    rm -rf /var/lib/apt/lists/*

# Whose the mounted folder is: of the same number as on the host.
ARG UID=1000
RUN useradd --create-home --shell /bin/bash --uid "$UID" student
USER student
WORKDIR /home/student/aisc
CMD ["bash"]
