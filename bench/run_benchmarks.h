// Google Benchmark's main(), for modules.
#pragma once

namespace aisc {

// Runs what BENCHMARK() registered, as the flags ask (--help names them), a row as soon as it is
// measured; returns main()'s status. Google Benchmark says of a library that a distribution
// compiled with its own checks that times may be wrong; what is timed here is compiled by us, so
// that this is left out.
int run_benchmarks(int argc, char** argv);

}  // namespace aisc
