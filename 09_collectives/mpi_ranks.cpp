// The benchmark's ranks that are processes: they know the module's algorithms by name.
#include "09_collectives/named.h"
#include "bench/serve_ranks.h"

int main(int argc, char** argv) { return aisc::serve_ranks(argc, argv, aisc::plan_named); }
