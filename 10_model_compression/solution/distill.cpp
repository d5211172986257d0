// What one token contributes to a student's loss, and its gradient.
#include "10_model_compression/distill.h"

#include <algorithm>
#include <cmath>

#include "common/ops/cpu/vector_math.h"

namespace aisc {

using cpu::vector_exp;  // std::exp, in a form that a loop over floats vectorises

template <class S>
S softened_log_sum_exp(std::span<const S> x, double temperature) {
  // LAB 10.7: distillation
  // > exp of a float overflows at 89. What may be subtracted from all x without changing
  // > softmax(x)? It comes back behind the log, divided by the temperature.
  const S largest = *std::max_element(x.begin(), x.end());
  const S inverse = static_cast<S>(1 / temperature);
  S sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t c = 0; c < x.size(); ++c) sum += vector_exp((x[c] - largest) * inverse);
  return largest * inverse + std::log(sum);
  // END LAB 10.7
}

template <class S>
DistilledLoss distill_token(std::span<const S> student, std::span<const S> teacher,
                            std::int64_t target, const DistillOptions& options) {
  // LAB 10.7: distillation
  // > Both parts, without their weights. log p_c of a class is x_c / T less softened_log_sum_exp;
  // > KL is the sum over the classes of p_teacher (log p_teacher - log p_student). Which of the two
  // > parts is at T = 1?
  const S inverse = static_cast<S>(1 / options.temperature);
  const S of_student = softened_log_sum_exp(student, options.temperature);
  const S of_teacher = softened_log_sum_exp(teacher, options.temperature);
  S divergence = 0;
#pragma omp simd reduction(+ : divergence)
  for (std::size_t c = 0; c < student.size(); ++c) {
    const S log_student = student[c] * inverse - of_student;
    const S log_teacher = teacher[c] * inverse - of_teacher;
    divergence += vector_exp(log_teacher) * (log_teacher - log_student);
  }
  const S log_sum_exp = softened_log_sum_exp(student, 1.0);
  return {.hard = log_sum_exp - student[static_cast<std::size_t>(target)],
          .soft = options.temperature * options.temperature * divergence};
  // END LAB 10.7
}

template <class S>
void distill_token_backward(std::span<S> dstudent, std::span<const S> student,
                            std::span<const S> teacher, std::int64_t target,
                            const DistillOptions& options, double factor) {
  // LAB 10.7: distillation
  // > Of the hard part: softmax(z) - one_hot(target). Of the soft one: the derivative of T^2 KL,
  // > in which one T is left. Then their weights, and factor.
  const S inverse = static_cast<S>(1 / options.temperature);
  const S of_student = softened_log_sum_exp(student, options.temperature);
  const S of_teacher = softened_log_sum_exp(teacher, options.temperature);
  const S log_sum_exp = softened_log_sum_exp(student, 1.0);
  const S hard = static_cast<S>(factor * options.hard);
  const S soft = static_cast<S>(factor * (1 - options.hard) * options.temperature);
#pragma omp simd
  for (std::size_t c = 0; c < student.size(); ++c) {
    const S apart = vector_exp(student[c] * inverse - of_student) -
                    vector_exp(teacher[c] * inverse - of_teacher);
    dstudent[c] = hard * vector_exp(student[c] - log_sum_exp) + soft * apart;
  }
  dstudent[static_cast<std::size_t>(target)] -= hard;
  // END LAB 10.7
}

template float softened_log_sum_exp(std::span<const float>, double);
template double softened_log_sum_exp(std::span<const double>, double);
template DistilledLoss distill_token(std::span<const float>, std::span<const float>, std::int64_t,
                                     const DistillOptions&);
template DistilledLoss distill_token(std::span<const double>, std::span<const double>, std::int64_t,
                                     const DistillOptions&);
template void distill_token_backward(std::span<float>, std::span<const float>,
                                     std::span<const float>, std::int64_t, const DistillOptions&,
                                     double);
template void distill_token_backward(std::span<double>, std::span<const double>,
                                     std::span<const double>, std::int64_t, const DistillOptions&,
                                     double);

}  // namespace aisc
