// Distillation: a student learns from what a teacher thinks of every class, beside the one class
// that is right (Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", arXiv
// 1503.02531, section 2). With the student's logits z, the teacher's v and a temperature T the loss
// of a token is
//
//   hard * CE(target, softmax(z)) + (1 - hard) * T^2 * KL(softmax(v / T) || softmax(z / T))
//
// Of logits 4 and 0 the second class has a probability of .018 at T = 1 and of .269 at T = 4: what
// is softened shows which wrong classes the teacher nearly took. The gradient of KL with respect to
// z is (softmax(z / T) - softmax(v / T)) / T, and that difference itself shrinks as 1 / T. T^2
// makes up for both, so that `hard` means the same at every temperature; where T is large the soft
// gradient becomes (z - v) / classes, of logits whose means are 0.
#pragma once

#include <cstdint>
#include <span>

#include "common/core/tensor.h"

namespace aisc {

struct DistillOptions {
  double temperature = 2;
  double hard = 0.5;  // weight of the right class's part; the teacher's has 1 - hard

  void validate() const;  // throws Error: temperature > 0, hard in [0, 1]
};

// The two parts of the loss of a token, in nats, without their weights.
struct DistilledLoss {
  double hard = 0;  // the cross-entropy at T = 1: what losses of other runs are compared with
  double soft = 0;  // T^2 KL; 0 where the student says what the teacher says
};

// ---- of one token: exercise 10.7 ----------------------------------------------------------------
// S is float or double. Student and teacher have the same number of logits, one or more; `target`
// is one of them.

// log(sum of exp(x / temperature)). The largest is subtracted before exp, which then never
// overflows. With it log(softmax(x / temperature)) of a class is x / temperature less this.
template <class S>
S softened_log_sum_exp(std::span<const S> x, double temperature);

template <class S>
DistilledLoss distill_token(std::span<const S> student, std::span<const S> teacher,
                            std::int64_t target, const DistillOptions& options);

// dstudent = factor * the gradient of the weighted sum of both parts with respect to `student`.
template <class S>
void distill_token_backward(std::span<S> dstudent, std::span<const S> student,
                            std::span<const S> teacher, std::int64_t target,
                            const DistillOptions& options, double factor);

// ---- of many tokens -----------------------------------------------------------------------------
// student (N, V) and teacher (N, W) are logits, floating, each of a type of its own, on one device;
// targets (N) I32, -1 for none: such a token has no loss and no gradient. The first `classes`
// columns of each are classes, the rest is padding. Sums are kept in F32 (F64 for an F64 student).
// Rows are shared among threads; results do not depend on their number. The work is the CPU's: what
// lies on a GPU is copied to the host, and the gradient back. Without numbers (a meta device) the
// cost alone is charged. Both throw Error for shapes, types, options and for a target outside
// [-1, classes).

// The parts of each token: hard, soft (N), F32 (F64 for an F64 student).
void distill_loss(View hard, View soft, ConstView student, ConstView teacher, ConstView targets,
                  std::int64_t classes, const DistillOptions& options);

// dstudent (N, V), of student's type, = factor * the gradient of the weighted sum of both parts
// over all tokens, 0 in padding. May be student.
void distill_backward(View dstudent, ConstView student, ConstView teacher, ConstView targets,
                      std::int64_t classes, const DistillOptions& options, double factor);

}  // namespace aisc
