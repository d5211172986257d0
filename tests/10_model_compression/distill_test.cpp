// The loss of a student: two classes by hand, loops over numbers as the oracle, and slopes.
#include "10_model_compression/distill.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/compare.h"
#include "tests/support/devices.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc::distilling {
namespace {

using Numbers = std::vector<double>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// softmax(x / temperature), number by number.
Numbers softened(const Numbers& x, double temperature) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double logit : x) largest = std::max(largest, logit / temperature);
  Numbers y;
  for (const double logit : x) sum += y.emplace_back(std::exp(logit / temperature - largest));
  for (double& p : y) p /= sum;
  return y;
}

struct ExpectedToken {
  double hard = 0, soft = 0;
  Numbers gradient;
};
ExpectedToken expected_token(const Numbers& student, const Numbers& teacher, std::size_t target,
                             const DistillOptions& options) {
  const double T = options.temperature;
  const Numbers sharp = softened(student, 1), own = softened(student, T),
                its = softened(teacher, T);
  ExpectedToken expected{.hard = -std::log(sharp[target])};
  for (std::size_t c = 0; c < student.size(); ++c) {
    expected.soft += T * T * its[c] * (std::log(its[c]) - std::log(own[c]));
    expected.gradient.push_back(options.hard * (sharp[c] - (c == target ? 1 : 0)) +
                                (1 - options.hard) * T * (own[c] - its[c]));
  }
  return expected;
}

// Rows of logits with padding behind them, and targets.
struct SomeTokens {
  SomeTokens(std::int64_t tokens, std::int64_t classes_, std::int64_t student_columns,
             std::int64_t teacher_columns, DType student_type, DType teacher_type, Device& device)
      : N(tokens), classes(classes_) {
    student = padded(student_columns, student_type, "student", device);
    teacher = padded(teacher_columns, teacher_type, "teacher", device);
    std::vector<std::int32_t> ids = random_ids(N, classes, "targets");
    for (std::size_t n = 2; n < ids.size(); n += 3) ids[n] = -1;
    targets = ids_tensor(ids, device);
  }
  // What is padding holds NaN.
  Tensor padded(std::int64_t columns, DType type, std::string_view name, Device& device) const {
    Tensor x = random_tensor({N, columns}, type, device, name, 2);
    Numbers values = to_doubles(x);
    for (std::int64_t i = 0; i < x.count(); ++i)
      if (i % columns >= classes) values[static_cast<std::size_t>(i)] = kNaN;
    write_doubles(x, values);
    return x;
  }
  Numbers row(const Tensor& logits, std::int64_t n) const {
    Numbers all = to_doubles(logits.rows(n, n + 1));
    all.resize(static_cast<std::size_t>(classes));
    return all;
  }
  std::vector<std::int32_t> ids() const {
    const Numbers all = to_doubles(targets);
    return {all.begin(), all.end()};
  }

  std::int64_t N, classes;
  Tensor student, teacher, targets;
};

struct LossParts {
  Tensor hard, soft;  // (N)
};
LossParts parts_of(const SomeTokens& x, const DistillOptions& options) {
  const DType statistics = statistics_of(x.student.dtype());
  LossParts parts{Tensor({x.N}, statistics, x.student.device()),
                  Tensor({x.N}, statistics, x.student.device())};
  distill_loss(parts.hard, parts.soft, x.student, x.teacher, x.targets, x.classes, options);
  return parts;
}

// The student's logits are log 9 and 0: probabilities 9/10 and 1/10 at T = 1, 3/4 and 1/4 at T = 2.
// The teacher's are equal: 1/2 and 1/2. The right class is 0.
struct ByHand {
  const double log3 = std::log(3.0);
  const Numbers student{2 * log3, 0}, teacher{5, 5};
  const DistillOptions options{.temperature = 2, .hard = 0.25};
  CpuDevice host;
};

TEST(Distill, LogSumExpByHand) {
  const double log3 = std::log(3.0);
  const Numbers two{2 * log3, 0}, equal{-8, -8, -8};
  EXPECT_NEAR(softened_log_sum_exp<double>(two, 2.0), std::log(4.0), 1e-12)
      << "T = 2: log(3 + 1) = 1.386294, whatever is subtracted on the way; 2.484907 has the "
         "largest "
         "logit back undivided, and log(9 + 1) = 2.302585 is T = 1";
  EXPECT_NEAR(softened_log_sum_exp<double>(equal, 4.0), -2 + log3, 1e-12) << "-8 / 4 + log 3";
}

TEST(Distill, BothPartsByHand) {
  const ByHand c;
  const DistilledLoss found = distill_token<double>(c.student, c.teacher, 0, c.options);
  EXPECT_NEAR(found.hard, std::log(10.0 / 9), 1e-12)
      << "the hard part is -log of the right class's probability at T = 1, -log(9/10) = .105361; "
         ".287682 is -log(3/4): softened, and 2.302585 the other class's";
  // 1/2 log((1/2) / (3/4)) + 1/2 log((1/2) / (1/4)) = .143841, times T^2.
  const double divergence = 0.5 * std::log(2.0 / 3) + 0.5 * std::log(2.0);
  EXPECT_NEAR(found.soft, 4 * divergence, 1e-12)
      << "the soft part is T^2 KL(teacher || student) = 4 * .143841 = .575364; .143841 is without "
         "T^2, and .523248 is KL(student || teacher)";
}

TEST(Distill, GradientByHand) {
  ByHand c;
  const Tensor gradient({2}, DType::F64, c.host);
  distill_token_backward<double>(gradient.values<double>(), c.student, c.teacher, 0, c.options, 1);
  // Hard: 9/10 - 1 = -.1. Soft: T (3/4 - 1/2) = .5. Together .25 * -.1 + .75 * .5 = .35.
  EXPECT_TRUE(numbers_are(
      "two classes: dstudent", gradient, {0.35, -0.35},
      {{"T^2 is forgotten: the gradient of KL alone is (student's - teacher's) / T",
        {0.06875, -0.06875}},
       {"T^2 is there, and the 1 / T of z / T is not", {0.725, -0.725}},
       {"the hard part is softened, too", {0.3125, -0.3125}},
       {"the weights of the two parts are exchanged", {0.05, -0.05}},
       {"logits are not divided by T before their softmax",
        {0.25 * -0.1 + 0.75 * 0.8, 0.25 * 0.1 - 0.75 * 0.8}},
       {"the right class takes off 1, and not the weight of hard labels", {-0.4, -0.35}},
       {"the right class is not taken off", {0.25 * 0.9 + 0.375, 0.25 * 0.1 - 0.375}}}));
}

TEST(Distill, EqualsLoopsOverNumbers) {
  CpuDevice device({.poison = true});
  const std::int64_t N = drawn("tokens of Distill", 5, 60), V = drawn("classes of Distill", 3, 70);
  for (const auto& [tokens, classes] : {std::pair{N, V}, {1, 1}, {4, 2}, {0, 7}})
    for (const DistillOptions& options :
         {DistillOptions{}, {.temperature = 0.5, .hard = 0.1}, {.temperature = 7, .hard = 0}}) {
      const SomeTokens x(tokens, classes, classes + 5, classes + 2, DType::F64, DType::F64, device);
      const LossParts found = parts_of(x, options);
      const Tensor gradient({tokens, classes + 5}, DType::F64, device);
      distill_backward(gradient, x.student, x.teacher, x.targets, classes, options, 0.125);
      Numbers hard, soft, slopes;
      for (std::int64_t n = 0; n < tokens; ++n) {
        const std::int32_t target = x.ids()[static_cast<std::size_t>(n)];
        ExpectedToken token{.gradient = Numbers(static_cast<std::size_t>(classes))};
        if (target >= 0)
          token = expected_token(x.row(x.student, n), x.row(x.teacher, n),
                                 static_cast<std::size_t>(target), options);
        hard.push_back(token.hard);
        soft.push_back(token.soft);
        for (const double slope : token.gradient) slopes.push_back(0.125 * slope);
        slopes.insert(slopes.end(), 5, 0.0);  // padding
      }
      const std::string where = std::to_string(tokens) + " tokens, " + std::to_string(classes) +
                                " classes, T = " + std::to_string(options.temperature);
      EXPECT_TRUE(numbers_are(where + ": hard", found.hard, hard));
      EXPECT_TRUE(numbers_are(where + ": soft", found.soft, soft));
      EXPECT_TRUE(numbers_are(where + ": dstudent", gradient, slopes));
    }
}

TEST(Distill, GradientIsTheSlopeOfTheLoss) {
  CpuDevice device;
  for (const double temperature : {0.7, 1.0, 3.0, 20.0})
    for (const double hard : {0.0, 0.3, 1.0}) {
      const DistillOptions options{.temperature = temperature, .hard = hard};
      const SomeTokens x(4, 6, 6, 6, DType::F64, DType::F64, device);
      const Tensor gradient({4, 6}, DType::F64, device);
      distill_backward(gradient, x.student, x.teacher, x.targets, 6, options, 1);
      const auto loss = [&] {
        const LossParts parts = parts_of(x, options);
        double sum = 0;
        for (std::size_t n = 0; n < 4; ++n)
          sum +=
              hard * parts.hard.values<double>()[n] + (1 - hard) * parts.soft.values<double>()[n];
        return sum;
      };
      EXPECT_TRUE(check_gradient(loss, x.student, gradient))
          << "temperature " << temperature << ", hard " << hard;
    }
}

// Hinton et al., equation 4: where logits are small beside T, the gradient of T^2 KL is
// (z - v) / classes, of logits whose means are 0. So it does not depend on T.
TEST(Distill, TemperatureSquaredKeepsTheSizeOfTheGradient) {
  const Numbers student{0.003, -0.001, -0.002}, teacher{-0.001, 0.002, -0.001};
  for (const double temperature : {1.0, 2.0, 10.0, 100.0}) {
    Numbers gradient(3);
    distill_token_backward<double>(gradient, student, teacher, 1,
                                   {.temperature = temperature, .hard = 0}, 1);
    for (std::size_t c = 0; c < 3; ++c)
      // The next term of exp is a part of .002 of it.
      EXPECT_NEAR(gradient[c], (student[c] - teacher[c]) / 3, 4e-6)
          << "temperature " << temperature << ", class " << c
          << ": expected (z - v) / 3 at every temperature; a gradient that is T or T^2 times "
             "smaller or larger has lost or doubled its T^2";
  }
}

TEST(Distill, ATeacherThatIsTheStudentAsksForNothing) {
  const Numbers logits{3, -1, 0.5, 2};
  for (const double temperature : {0.5, 2.0, 9.0}) {
    const DistillOptions options{.temperature = temperature, .hard = 0};
    EXPECT_NEAR(distill_token<double>(logits, logits, 2, options).soft, 0, 1e-14);
    Numbers gradient(4, kNaN);
    distill_token_backward<double>(gradient, logits, logits, 2, options, 1);
    for (const double slope : gradient)
      EXPECT_NEAR(slope, 0, 1e-15) << "temperature " << temperature;
  }
}

TEST(Distill, LargeLogitsDoNotOverflow) {
  const std::vector<float> student{1000, 1001, 990}, teacher{-800, -801, -810};
  const DistillOptions options{.temperature = 0.5, .hard = 0.5};
  const ExpectedToken expected = expected_token({1000, 1001, 990}, {-800, -801, -810}, 0, options);
  const DistilledLoss found = distill_token<float>(student, teacher, 0, options);
  // Logits near 1000 / T have a last place of 1.2e-4.
  constexpr double kLastPlaces = 1e-3;
  EXPECT_NEAR(found.hard, expected.hard, kLastPlaces) << "exp of a float overflows at 89: NaN and "
                                                         "infinity mean that nothing is subtracted";
  EXPECT_NEAR(found.soft, expected.soft, kLastPlaces);
  std::vector<float> gradient(3);
  distill_token_backward<float>(gradient, student, teacher, 0, options, 1);
  for (std::size_t c = 0; c < 3; ++c)
    EXPECT_NEAR(gradient[c], expected.gradient[c], kLastPlaces) << "class " << c;
}

TEST(Distill, ShorterTypesAreRoundedOnceAndMayBeMixed) {
  CpuDevice device;
  const DistillOptions options{.temperature = 2, .hard = 0.4};
  for (const auto& [own, its] : {std::pair{DType::F32, DType::BF16},
                                 {DType::BF16, DType::BF16},
                                 {DType::BF16, DType::F64},
                                 {DType::F16, DType::F32}}) {
    const SomeTokens x(3, 20, 24, 32, own, its, device);
    const ExpectedToken expected = expected_token(x.row(x.student, 0), x.row(x.teacher, 0),
                                                  static_cast<std::size_t>(x.ids()[0]), options);
    const LossParts found = parts_of(x, options);
    EXPECT_TRUE(all_close(found.hard.rows(0, 1), {expected.hard}, tolerance_of(DType::F32, 4)));
    EXPECT_TRUE(all_close(found.soft.rows(0, 1), {expected.soft}, tolerance_of(DType::F32, 4)));
    distill_backward(x.student, x.student, x.teacher, x.targets, 20, options, 0.5);  // in place
    Numbers scaled = expected.gradient;
    for (double& slope : scaled) slope *= 0.5;
    scaled.resize(24);
    EXPECT_TRUE(all_close(x.student.rows(0, 1), scaled, tolerance_of(own))) << name_of(own);
  }
}

TEST(Distill, RepeatsToTheLastBitOnAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  CpuDevice device;
  const SomeTokens x(90, 250, 256, 256, DType::F32, DType::F32, device);  // above kSerialBelow
  std::vector<Tensor> gradients;
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    gradients.emplace_back(x.student.shape(), DType::F32, device);
    distill_backward(gradients.back(), x.student, x.teacher, x.targets, 250, {}, 1);
  }
  omp_set_num_threads(threads);
  for (const Tensor& other : gradients) EXPECT_TRUE(same_bits(gradients[0], other));
}

class DistillOnDevices : public PerDevice {};

// Where the host cannot read what is on the device it is copied.
TEST_P(DistillOnDevices, AreWhatTheHostComputes) {
  CpuDevice host;
  const DistillOptions options{.temperature = 3, .hard = 0.2};
  const SomeTokens here(5, 9, 16, 12, DType::F32, DType::F32, host),
      there(5, 9, 16, 12, DType::F32, DType::F32, device_);
  const LossParts expected = parts_of(here, options), found = parts_of(there, options);
  EXPECT_EQ(to_doubles(found.hard), to_doubles(expected.hard));
  EXPECT_EQ(to_doubles(found.soft), to_doubles(expected.soft));
  distill_backward(here.student, here.student, here.teacher, here.targets, 9, options, 1);
  distill_backward(there.student, there.student, there.teacher, there.targets, 9, options, 1);
  EXPECT_EQ(to_doubles(there.student), to_doubles(here.student));
}

INSTANTIATE_TEST_SUITE_P(Devices, DistillOnDevices, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST(DistillErrors, SayWhatIsWrong) {
  CpuDevice device;
  const SomeTokens x(3, 4, 6, 5, DType::F32, DType::F32, device);
  const Tensor small({3}, DType::F32, device), few({2, 5}, DType::F32, device),
      integers({3, 5}, DType::I32, device);
  const auto loss = [&](const DistillOptions& options) { parts_of(x, options); };
  const auto gradient = [&](ConstView teacher, ConstView targets, std::int64_t classes) {
    distill_backward(x.student, x.student, teacher, targets, classes, {}, 1);
  };
  for (const double temperature : {0.0, -1.0, kNaN})
    EXPECT_TRUE(
        error_says([&] { loss({.temperature = temperature}); }, {"temperature is", "more than 0"}));
  for (const double hard : {-0.1, 1.5, kNaN})
    EXPECT_TRUE(error_says([&] { loss({.hard = hard}); }, {"hard labels is", "expected 0 to 1"}));
  EXPECT_TRUE(error_says([&] { gradient(few, x.targets, 4); },
                         {"distill_backward", "teacher has 2 rows, student 3"}));
  EXPECT_TRUE(error_says([&] { gradient(small, x.targets, 4); }, {"teacher is (3)", "2 dimen"}));
  EXPECT_TRUE(
      error_says([&] { gradient(integers, x.targets, 4); }, {"teacher is (3, 5) I32", "floating"}));
  EXPECT_TRUE(error_says([&] { gradient(x.teacher, small, 4); }, {"targets is (3) F32", "I32"}));
  EXPECT_TRUE(error_says([&] { gradient(x.teacher, x.targets, 6); },
                         {"classes are 6, expected 1 to 5", "6 columns", "teacher 5"}));
  EXPECT_TRUE(error_says(
      [&] {
        gradient(x.teacher, ids_tensor({0, 4, 1}, device), 4);
      },
      {"target[1] is 4", "-1 <= target < 4"}));
  EXPECT_TRUE(error_says([&] { distill_backward(few, x.student, x.teacher, x.targets, 4, {}, 1); },
                         {"dstudent"}));
  EXPECT_TRUE(error_says([&] { distill_loss(few, small, x.student, x.teacher, x.targets, 4, {}); },
                         {"hard is (2, 5)"}));
}

}  // namespace
}  // namespace aisc::distilling
