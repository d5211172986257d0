// The ranks of bench_comm that are processes. They know no algorithm by name.
#include "bench/serve_ranks.h"

int main(int argc, char** argv) { return aisc::serve_ranks(argc, argv); }
