// The loss of many tokens, of any floating type, wherever they lie: tokens are shared among
// threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "10_model_compression/distill.h"
#include "common/core/error.h"
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

struct DistilledTokens {
  ConstView student, teacher, targets;
  std::int64_t classes;
  const DistillOptions& options;

  void check(const char* operation) const {
    const ops::Checks checks(operation, "student", student);
    options.validate();
    checks.rank("student", student, 2);
    checks.rank("teacher", teacher, 2);
    const std::int64_t N = student.shape()[0], V = student.shape()[1], W = teacher.shape()[1];
    if (!is_floating(teacher.dtype()))
      fail(fmt::format("{}: teacher is {}, expected a floating type", operation,
                       name_of(teacher.dtype())));
    if (teacher.shape()[0] != N)
      fail(fmt::format("{}: teacher has {} rows, student {}", operation, teacher.shape()[0], N));
    checks.is("targets", targets, {N}, DType::I32);
    if (classes < 1 || classes > std::min(V, W))
      fail(fmt::format("{}: classes are {}, expected 1 to {}: student has {} columns, teacher {}",
                       operation, classes, std::min(V, W), V, W));
  }
  void charge(const char* operation, double flops, std::size_t written_bytes) const {
    Device& device = student.device();
    if (!device.wants_costs()) return;
    const std::size_t bytes = student.bytes() + teacher.bytes() + targets.bytes() + written_bytes;
    device.charge({.operation = operation,
                   .flops = flops * static_cast<double>(student.shape()[0] * classes),
                   .bytes = static_cast<double>(bytes),
                   .dtype = student.dtype()});
  }
  void check_targets(const char* operation) const {
    for (const std::int32_t target : targets.values<std::int32_t>())
      if (target < -1 || target >= classes)
        fail(fmt::format("{}: target {} is no class, expected -1 to {}", operation, target,
                         classes - 1));
  }
};

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

// x where the host reads it, with `copy` to keep it.
ConstView readable_tokens(const ConstView& x, Device& host, Tensor& copy) {
  if (x.device().is_host()) return x;
  copy = Tensor(x.shape(), x.dtype(), host);
  x.device().copy(copy, x);
  return copy;
}

// Calls f(student, teacher, targets) on the host, unless there are no numbers.
template <class F>
void run_distilled(const DistilledTokens& all, Device& host, F f) {
  if (all.student.device().kind() == DeviceKind::Meta) return;
  Tensor student, teacher, targets;
  f(DistilledTokens{readable_tokens(all.student, host, student),
                    readable_tokens(all.teacher, host, teacher),
                    readable_tokens(all.targets, host, targets), all.classes, all.options});
}

}  // namespace

void distill_loss(View hard, View soft, ConstView student, ConstView teacher, ConstView targets,
                  std::int64_t classes, const DistillOptions& options) {
  const DistilledTokens all{student, teacher, targets, classes, options};
  all.check("distill_loss");
  const ops::Checks checks("distill_loss", "student", student);
  const DType statistics = statistics_of(student.dtype());
  checks.is("hard", hard, targets.shape(), statistics);
  checks.is("soft", soft, targets.shape(), statistics);
  all.charge("distill_loss", kLossFlops, hard.bytes() + soft.bytes());
  CpuDevice host;
  run_distilled(all, host, [&](const DistilledTokens& here) {
    here.check_targets("distill_loss");
    dispatch(statistics, [&](auto type) {
      using S = Accumulator<decltype(type)>;
      const Tensor parts({2, targets.count()}, statistics, host);
      const std::span<S> hards = parts.rows(0, 1).template values<S>(),
                         softs = parts.rows(1, 2).template values<S>();
      const auto write = [&](std::int64_t row, const DistilledLoss& loss) {
        hards[static_cast<std::size_t>(row)] = static_cast<S>(loss.hard);
        softs[static_cast<std::size_t>(row)] = static_cast<S>(loss.soft);
      };
      for_each_distilled<S>(
          here,
          [&](std::int64_t row, std::int64_t target, auto its, auto wanted, auto) {
            write(row, distill_token(its, wanted, target, options));
          },
          [&](std::int64_t row) { write(row, {}); });
      hard.device().copy(hard, parts.rows(0, 1).reshaped(hard.shape()));
      soft.device().copy(soft, parts.rows(1, 2).reshaped(soft.shape()));
    });
  });
}

void distill_backward(View dstudent, ConstView student, ConstView teacher, ConstView targets,
                      std::int64_t classes, const DistillOptions& options, double factor) {
  const DistilledTokens all{student, teacher, targets, classes, options};
  all.check("distill_backward");
  ops::Checks("distill_backward", "student", student)
      .is("dstudent", dstudent, student.shape(), student.dtype());
  all.charge("distill_backward", kGradientFlops, dstudent.bytes());
  CpuDevice host;
  run_distilled(all, host, [&](const DistilledTokens& here) {
    here.check_targets("distill_backward");
    const bool is_here = dstudent.device().is_host();
    const Tensor copy = is_here ? Tensor() : Tensor(dstudent.shape(), dstudent.dtype(), host);
    const View gradient = is_here ? dstudent : copy.view();
    dispatch(student.dtype(), [&](auto type) {
      using T = decltype(type);
      using S = Accumulator<T>;
      const std::int64_t V = student.shape()[1];
      T* const first = gradient.data<T>();
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
    if (!is_here) dstudent.device().copy(dstudent, gradient);
  });
}

}  // namespace aisc
