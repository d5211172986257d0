#include "app/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "common/core/error.h"

namespace aisc {
namespace {

// Measured of runs of 0.01 to 25 million parameters, one arena for all threads: what libraries take
// at first, MPI as well; how much more than the books' a run takes, for packed blocks of products
// and for what is written; and a stack where the system does not say.
constexpr double kLibraryBytes = 100 << 20, kMoreThanBooks = 1.5, kStackBytes = 8 << 20;

std::string in_words(double bytes) {
  constexpr double kMib = 1 << 20, kGib = 1 << 30;
  return bytes < kGib ? fmt::format("{:.1f} MiB", bytes / kMib)
                      : fmt::format("{:.1f} GiB", bytes / kGib);
}

struct Needed {
  double model = 0, data = 0;
  double all() const { return model + data; }
};

Needed needed_by(const MemoryRequest& request) {
  // Tokens and targets in I32: all windows, and the rank's own in parts.
  const double windows = 2.0 * 2 * sizeof(std::int32_t) * static_cast<double>(request.eval_tokens);
  return {request.ranks * request.needed.model,
          request.ranks * (request.needed.activations + windows)};
}

std::string to_string(const Needed& needed, int ranks) {
  return fmt::format(
      "this run needs about {} of memory, {} for weights, gradients and optimizer and {} for "
      "activations and data, on {} rank{}",
      in_words(needed.all()), in_words(needed.model), in_words(needed.data), ranks,
      ranks == 1 ? "" : "s");
}

std::string less_of(const Needed& needed, double free) {
  return needed.model > free ? "--layers, --width or --ranks"
                             : "--batch, --context or --eval-windows, or raise --micro-batches";
}

double stack_bytes() {
  rlimit limit{};
  return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
             ? static_cast<double>(limit.rlim_cur)
             : kStackBytes;
}

// Of the report that lives: a handler has no argument for it.
std::atomic<const std::string*> last_words = nullptr;
std::atomic<std::terminate_handler> usual_end = nullptr;

[[noreturn]] void end_without_memory() {
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    const std::string& message = *last_words;
    [[maybe_unused]] const auto written = write(STDERR_FILENO, message.data(), message.size());
    std::_Exit(EXIT_FAILURE);
  } catch (...) {  // no concern of this
  }
  usual_end.load()();
  std::abort();
}

}  // namespace

void require_memory(const MemoryRequest& request, std::int64_t available) {
  const Needed needed = needed_by(request);
  const auto free = static_cast<double>(available);
  if (needed.all() <= free) return;
  fail(fmt::format("{}; {} are free: lower {}", to_string(needed, request.ranks), in_words(free),
                   less_of(needed, free)));
}

void require_address_space(const MemoryRequest& request, int threads, std::int64_t left) {
  const Needed needed = needed_by(request);
  const double libraries = kLibraryBytes + threads * stack_bytes();
  const double all = kMoreThanBooks * needed.all() + libraries;
  const auto free = static_cast<double>(left);
  if (all <= free) return;
  fail(
      fmt::format("{}; with its {} threads and libraries that takes {} of address space, {} "
                  "are left (ulimit -v): raise that, or lower {}",
                  to_string(needed, request.ranks), threads, in_words(all), in_words(free),
                  libraries > free ? "--ranks or --threads"
                                   : less_of(needed, (free - libraries) / kMoreThanBooks)));
}

std::string out_of_memory(const MemoryRequest& request) {
  return fmt::format(
      "the system has no more memory for this process; {}: lower --batch, --context, "
      "--layers, --width or --ranks, or raise what limits it (ulimit -v, a "
      "container's or job's memory)",
      to_string(needed_by(request), request.ranks));
}

OutOfMemoryReport::OutOfMemoryReport(const std::string& message) : message_(message + "\n") {
  last_words = &message_;
  usual_end = std::get_terminate();
  std::set_terminate(end_without_memory);
}

OutOfMemoryReport::~OutOfMemoryReport() { std::set_terminate(usual_end); }

}  // namespace aisc
