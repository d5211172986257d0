// The loss of many tokens, of any floating type, wherever they lie: tokens are shared among
// threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "10_model_compression/distill.h"
#include "10_model_compression/host_numbers.h"
#include "common/core/error.h"
#include "common/ops/cpu/check_range.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/ops_checks.h"

namespace aisc {

void DistillOptions::validate() const {
  if (!(temperature > 0) || !std::isfinite(temperature))
    fail(fmt::format("distill: the temperature is {}, expected more than 0", temperature));
  if (!(hard >= 0 && hard <= 1))
    fail(fmt::format("distill: the weight of hard labels is {}, expected 0 to 1", hard));
}

namespace {

// Of each class: three sums of exponentials (maximum, difference, exponential, sum), and what is
// made of them. A formula's count, as those of common/ops/costs.h.
constexpr double kLossFlops = 18, kGradientFlops = 23;

// On one device.
struct DistilledTokens {
  ConstView student, teacher, targets;
  std::int64_t classes;
};

// Both functions' checks of what they read, and the charge for so many FLOPs a class.
void check_distilled(const char* operation, const DistilledTokens& all,
                     const DistillOptions& options, double flops, std::size_t written_bytes) {
  const auto& [student, teacher, targets, classes] = all;
  options.validate();
  const ops::Checks checks(operation, "student", student);
  (void)ops::Checks(operation, "teacher", teacher);  // floating, too
  checks.rank("student", student, 2);
  checks.rank("teacher", teacher, 2);
  const std::int64_t N = student.shape()[0], V = student.shape()[1], W = teacher.shape()[1];
  if (teacher.shape()[0] != N)
    fail(fmt::format("{}: teacher has {} rows, student {}", operation, teacher.shape()[0], N));
  checks.is("targets", targets, {N}, DType::I32);
  if (classes < 1 || classes > std::min(V, W))
    fail(fmt::format("{}: classes are {}, expected 1 to {}: student has {} columns, teacher {}",
                     operation, classes, std::min(V, W), V, W));
  const std::size_t bytes = student.bytes() + teacher.bytes() + targets.bytes() + written_bytes;
  student.device().charge({.operation = operation,
                           .flops = flops * static_cast<double>(N * classes),
                           .bytes = static_cast<double>(bytes),
                           .dtype = student.dtype()});
}

template <class S>
void widened_row(std::span<S> wide, const ConstView& x, std::int64_t row) {
  dispatch(x.dtype(), [&](auto type) {
    const auto* from = x.data<decltype(type)>() + row * x.shape()[1];
    for (std::size_t c = 0; c < wide.size(); ++c) wide[c] = static_cast<S>(from[c]);
  });
}

// Calls token(row, target, student's row, teacher's row, a row to write) for each row that has a
// target, and none(row) for each that has not. What one of them throws is thrown again behind the
// loop: nothing may leave a parallel region.
template <class S, class Token, class None>
void for_each_distilled(const DistilledTokens& all, Token token, None none) {
  const std::int64_t V = all.student.shape()[1];
  const std::int32_t* targets = all.targets.data<std::int32_t>();
  const auto width = static_cast<std::size_t>(all.classes);
  std::exception_ptr failure;
  cpu::parallel_pieces(all.targets.count(), V, 1, [&](std::int64_t begin, std::int64_t end) {
    try {
      std::vector<S> student(width), teacher(width), out(width);
      for (std::int64_t row = begin; row < end; ++row) {
        if (targets[row] < 0) {
          none(row);
          continue;
        }
        widened_row<S>(student, all.student, row);
        widened_row<S>(teacher, all.teacher, row);
        token(row, targets[row], std::span<const S>(student), std::span<const S>(teacher),
              std::span<S>(out));
      }
    } catch (...) {
#pragma omp critical(distilled_tokens)
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

// Calls f(what `all` has, on the host), unless there are no numbers.
template <class F>
void run_distilled(const char* operation, const DistilledTokens& all, F f) {
  if (all.student.device().kind() == DeviceKind::Meta) return;
  const HostNumbers student(all.student), teacher(all.teacher), targets(all.targets);
  cpu::check_range(operation, "target", targets.view(), -1, all.classes);
  f(DistilledTokens{student.view(), teacher.view(), targets.view(), all.classes});
}

}  // namespace

void distill_loss(View hard, View soft, ConstView student, ConstView teacher, ConstView targets,
                  std::int64_t classes, const DistillOptions& options) {
  const DistilledTokens all{student, teacher, targets, classes};
  check_distilled("distill_loss", all, options, kLossFlops, hard.bytes() + soft.bytes());
  const ops::Checks checks("distill_loss", "student", student);
  const DType statistics = statistics_of(student.dtype());
  checks.is("hard", hard, targets.shape(), statistics);
  checks.is("soft", soft, targets.shape(), statistics);
  run_distilled("distill_loss", all, [&](const DistilledTokens& here) {
    const HostNumbers hards(hard), softs(soft);
    dispatch(statistics, [&](auto type) {
      using S = Accumulator<decltype(type)>;
      const auto write = [h = hards.view().data<S>(), s = softs.view().data<S>()](
                             std::int64_t row, const DistilledLoss& loss) {
        h[row] = static_cast<S>(loss.hard);
        s[row] = static_cast<S>(loss.soft);
      };
      for_each_distilled<S>(
          here,
          [&](std::int64_t row, std::int64_t target, auto its, auto wanted, auto) {
            write(row, distill_token(its, wanted, target, options));
          },
          [&](std::int64_t row) { write(row, {}); });
    });
    hards.write_back();
    softs.write_back();
  });
}

void distill_backward(View dstudent, ConstView student, ConstView teacher, ConstView targets,
                      std::int64_t classes, const DistillOptions& options, double factor) {
  const DistilledTokens all{student, teacher, targets, classes};
  check_distilled("distill_backward", all, options, kGradientFlops, dstudent.bytes());
  ops::Checks("distill_backward", "student", student)
      .is("dstudent", dstudent, student.shape(), student.dtype());
  run_distilled("distill_backward", all, [&](const DistilledTokens& here) {
    const HostNumbers gradient(dstudent);
    dispatch(student.dtype(), [&](auto type) {
      using T = decltype(type);
      using S = Accumulator<T>;
      const std::int64_t V = student.shape()[1];
      T* const first = gradient.view().data<T>();
      for_each_distilled<S>(
          here,
          [&](std::int64_t row, std::int64_t target, auto its, auto wanted, auto out) {
            distill_token_backward(out, its, wanted, target, options, factor);
            T* const to = first + row * V;
            std::transform(out.begin(), out.end(), to, [](S x) { return static_cast<T>(x); });
            std::fill(to + classes, to + V, T{});  // padding
          },
          [&](std::int64_t row) { std::fill_n(first + row * V, V, T{}); });
    });
    gradient.write_back();
  });
}

}  // namespace aisc
