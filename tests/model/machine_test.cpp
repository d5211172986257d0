// Machines as data: every figure has a source, what follows from them, and what a bad file says.
#include "common/model/machine.h"

#include <gtest/gtest.h>

#include <string>

#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

TEST(Curve, IsLinearInTheLogarithmBetweenPointsAndConstantOutside) {
  const Curve curve({{10, 0.2}, {1000, 0.6}});
  EXPECT_EQ(curve.at(1), 0.2);
  EXPECT_EQ(curve.at(10), 0.2);
  EXPECT_DOUBLE_EQ(curve.at(100), 0.4);
  EXPECT_EQ(curve.at(1000), 0.6);
  EXPECT_EQ(curve.at(1e9), 0.6);
  EXPECT_EQ(Curve().at(5), 1);
  EXPECT_TRUE(error_says([] { Curve({{10, 0.2}, {10, 0.6}}); }, {"sizes must rise", "10"}));
}

TEST(Machines, HaveASourceForEveryFigure) {
  EXPECT_GE(machine_names().size(), 8u);
  for (const std::string& name : machine_names()) {
    const Machine machine = find_machine(name);
    EXPECT_EQ(machine.name, name);
    EXPECT_GE(machine.sources.size(), 17u) << name;
    for (const auto& [key, source] : machine.sources) EXPECT_GT(source.size(), 6u) << name << key;
    const std::string text = describe(machine);
    EXPECT_NE(text.find(machine.says), std::string::npos);
    EXPECT_NE(text.find("balance"), std::string::npos);
  }
}

// By hand, from what their makers print.
TEST(Machines, AgreeWithTheFactSheet) {
  const Machine a100 = find_machine("dgx-a100"), pod = find_machine("superpod");
  EXPECT_EQ(a100.peak(DType::BF16), 312e12);
  EXPECT_EQ(pod.nodes * pod.ranks_per_node, 1120);
  EXPECT_EQ(pod.peak(DType::BF16), a100.peak(DType::BF16)) << "like dgx-a100";
  EXPECT_EQ(find_machine("dgx-2").ranks_per_node, 16);
  // 28 cores, 2.5 GHz, 64 FLOPs a cycle; 1216 tiles, 1.6 GHz, 16 a cycle; 304 MiB.
  EXPECT_DOUBLE_EQ(find_machine("xeon-8180").peak(DType::F32), 28 * 2.5e9 * 64);
  EXPECT_NEAR(find_machine("ipu-gc2").peak(DType::F32) / (1216 * 1.6e9 * 16), 1, 0.002);
  EXPECT_EQ(find_machine("ipu-gc2").capacity, 304.0 * 1024 * 1024);
  EXPECT_NEAR(2 * find_machine("k80").peak(DType::F32) / (4992 * 2 * 0.56e9), 1, 0.001);
  // 3.14e23 FLOPs of GPT-3: years of one V100 and of a DGX A100, days of the SuperPOD.
  EXPECT_NE(describe(find_machine("dgx-2")).find("355.4 years"), std::string::npos);
  EXPECT_NE(describe(a100).find("14.8 years"), std::string::npos);
  EXPECT_NE(describe(pod).find("38.6 days"), std::string::npos);
  EXPECT_NE(describe(pod).find("share at 1e+11 FLOP"), std::string::npos);
  const std::string text = describe(find_machine("xeon-8180"));
  EXPECT_NE(text.find("1.36 TFLOP/s"), std::string::npos) << "a table that contradicts itself";
}

// launch + max(FLOPs / rate, bytes / bandwidth), by hand.
TEST(Machines, TakeTheLongerOfComputingAndMoving) {
  Machine m;
  m.name = "by hand";
  m.flops = {{DType::F32, 100}};
  m.vector_flops = 10;
  m.memory_bandwidth = 1000;
  m.launch_seconds = 1;
  m.product_share = Curve({{1, 0.5}, {1e6, 0.5}});
  EXPECT_DOUBLE_EQ(m.seconds({.flops = 200, .bytes = 10, .product = true}), 1 + 4);
  EXPECT_DOUBLE_EQ(m.seconds({.flops = 200, .bytes = 10}), 1 + 20);
  EXPECT_DOUBLE_EQ(m.seconds({.flops = 200, .bytes = 30000}), 1 + 30);
  m.slower["gelu"] = 3;
  EXPECT_DOUBLE_EQ(m.seconds({.operation = "gelu", .flops = 200}), 1 + 60);
  EXPECT_TRUE(error_says([&] { m.seconds({.dtype = DType::BF16, .product = true}); },
                         {"by hand", "products in bf16", "only in f32"}));
}

TEST(Machines, HaveNetworksOfTheirRanks) {
  const Machine a100 = find_machine("dgx-a100");
  const Network network = a100.network(16);
  EXPECT_TRUE(network.crosses_nodes(7, 8));
  EXPECT_DOUBLE_EQ(network.link.seconds_per_byte, 1 / 300e9);
  EXPECT_DOUBLE_EQ(network.card.seconds_per_byte, 1 / 25e9);
  EXPECT_TRUE(error_says([&] { find_machine("superpod").network(1121); },
                         {"superpod", "1121 ranks", "140 nodes of 8: 1120"}));
}

TEST(Machines, SayWhatIsWrongWithAFile) {
  EXPECT_TRUE(error_says([] { find_machine("cray"); },
                         {"machine \"cray\" is not known", "dgx-2", "superpod", "doctor"}));
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.json";
  const auto says = [&](const std::string& text, const std::vector<std::string>& words) {
    write_file(path, text);
    return error_says([&] { find_machine(path); }, words);
  };
  EXPECT_TRUE(says("[1]", {path, "no JSON object"}));
  EXPECT_TRUE(says("{", {path, "no JSON object"}));
  EXPECT_TRUE(says("{}", {path, "says is missing"}));
  EXPECT_TRUE(says(R"({"says": "x", "flops": {"f32": 5}})",
                   {path, "flops f32 is 5", "[a number from 1 to 1e+18, its source]"}));
  EXPECT_TRUE(says(R"({"says": "x", "flops": {"int4": [1, "s"]}})", {path, "a type \"int4\""}));
  EXPECT_TRUE(says(R"({"says": 5})", {path, "says is 5", "a text"}));
  EXPECT_TRUE(says(R"({"says": "x", "flops": 1})", {path, "flops is no object"}));
  // A whole one, with one thing wrong.
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string text = R"("name": "m", "says": "x", "flops": {"f32": [1, "s"]})";
    for (const char* number :
         {"vector_flops", "memory_bandwidth", "capacity", "launch_seconds", "host_link",
          "host_latency", "node_link", "node_latency", "card_link", "card_latency",
          "ranks_per_node", "cards_per_node", "nodes"})
      if (number != key) text += std::string(", \"") + number + R"(": [1, "s"])";
    for (const char* curve : {"product_share", "move_share"})
      if (curve != key) text += std::string(", \"") + curve + R"(": [[[1, 1]], "s"])";
    return "{" + text + (key.empty() ? "" : ", \"" + key + "\": " + value) + "}";
  };
  write_file(path, with("", ""));
  EXPECT_EQ(find_machine(path).name, "m");
  EXPECT_EQ(find_machine(path).host_bandwidth, 1) << "it is its own host";
  EXPECT_EQ(find_machine(path).host_capacity, 0);
  write_file(path, with("host_bandwidth", R"([9, "s"])"));
  EXPECT_EQ(find_machine(path).host_bandwidth, 9);
  EXPECT_TRUE(says(with("colour", "1"), {path, "colour is unknown"}));
  EXPECT_TRUE(says(with("nodes", R"([1.5, "s"])"), {path, "nodes is 1.5", "a whole number"}));
  EXPECT_TRUE(says(with("nodes", R"([1e300, "s"])"), {path, "nodes", "to 1e+18"}));
  EXPECT_TRUE(says(with("move_share", R"([[[1, 0]], "s"])"), {path, "move_share", "above 0"}));
  EXPECT_TRUE(says(with("move_share", R"([[[2, 1], [1, 1]], "s"])"), {path, "rising sizes"}));
  EXPECT_TRUE(says(with("notes", "[1]"), {path, "notes has 1"}));
  EXPECT_TRUE(says(R"({"says": "x", "flops": {}, "vector_flops": [-1, "s"]})",
                   {path, "vector_flops is [-1,\"s\"]"}));
}

}  // namespace
}  // namespace aisc
