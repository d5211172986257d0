// What NVIDIA says of rings, trees and CollNet, column by column.
#include "09_collectives/nvidia_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "09_collectives/search.h"

namespace aisc {
namespace {

std::vector<TableRow> rows_of(std::string_view algorithm, std::span<const int> ranks) {
  std::vector<TableRow> rows;
  for (const TableRow& row : nvidia_table(ranks))
    if (row.algorithm == algorithm) rows.push_back(row);
  EXPECT_EQ(rows.size(), ranks.size()) << algorithm;
  return rows;
}
const std::vector<int> kRanks{4, 8, 13, 64, 128};

TEST(NvidiaTable, LatencyOfRingsIsLinear) {
  for (const TableRow& row : rows_of("ring", kRanks)) EXPECT_EQ(row.latencies, 2 * (row.ranks - 1));
}

TEST(NvidiaTable, LatencyOfTreesIsLogarithmic) {
  for (const TableRow& row : rows_of("double tree", kRanks))
    EXPECT_EQ(row.latencies, 2 * std::bit_width(static_cast<unsigned>(row.ranks - 1)));
}

TEST(NvidiaTable, LatencyOfCollNetIsConstant) {
  for (const TableRow& row : rows_of("in network", kRanks)) EXPECT_EQ(row.latencies, 2);
}

// Without help of the network a rank has to send 2 (p - 1) / p of the buffer.
TEST(NvidiaTable, BandwidthOfRingsIsPerfect) {
  for (const TableRow& row : rows_of("ring", kRanks))
    EXPECT_DOUBLE_EQ(row.bandwidth, row.ranks / (2.0 * (row.ranks - 1)));
}

// Of 2 n bytes for n; the rest is what the first segment takes to the root and back.
TEST(NvidiaTable, BandwidthOfTreesIsCloseToPerfect) {
  for (const TableRow& row : rows_of("double tree", kRanks)) {
    EXPECT_LT(row.bandwidth, 0.5) << row.ranks;
    EXPECT_GT(row.bandwidth, 0.97 * 0.5) << row.ranks;
  }
}

TEST(NvidiaTable, BandwidthOfCollNetIsCloseToTwice) {
  const std::vector<TableRow> rings = rows_of("ring", kRanks);
  const std::vector<TableRow> sums = rows_of("in network", kRanks);
  for (std::size_t i = 0; i < kRanks.size(); ++i) {
    EXPECT_LT(sums[i].bandwidth, 1);
    EXPECT_GT(sums[i].bandwidth, 0.98);
    EXPECT_LT(sums[i].bandwidth / rings[i].bandwidth, 2);
  }
  EXPECT_GT(sums.back().bandwidth / rings.back().bandwidth, 1.95);
}

// Between nodes CollNet brings a byte of the buffer for each byte that the cards carry; within the
// node a ring has to move 2 * 7/8 of it first, over NVLink.
TEST(NvidiaTable, BandwidthOfCollNetIsLimitedByNvlink) {
  const Channels in_node = find_rings(nvswitch_node());
  const double nvlink = in_node.total_bytes_per_second() / (2 * 7.0 / 8);
  const Channels of_cards = find_rings(cluster(nvswitch_node(), 2, hdr_fabric()));
  EXPECT_LT(nvlink, of_cards.total_bytes_per_second());
}

// Every rank of a ring adds as much as the others. Of the trees a rank's worker of the one adds
// twice the mean, that of the other nothing: together they are even.
TEST(NvidiaTable, ComputingIsImbalancedInTrees) {
  for (const TableRow& row : rows_of("ring", kRanks)) {
    EXPECT_EQ(row.busiest_rank, 1);
    EXPECT_EQ(row.busiest_worker, 1);
  }
  for (const TableRow& row : rows_of("double tree", kRanks)) {
    EXPECT_DOUBLE_EQ(row.busiest_worker, 2.0 * row.ranks / (row.ranks - 1)) << row.ranks;
    EXPECT_DOUBLE_EQ(row.busiest_rank, 1.0 * row.ranks / (row.ranks - 1)) << row.ranks;
  }
  for (const TableRow& row : rows_of("in network", kRanks)) EXPECT_EQ(row.busiest_rank, 0);
}

TEST(NvidiaTable, RingsHaveFewFlows) {
  for (const TableRow& row : rows_of("ring", kRanks)) {
    EXPECT_EQ(row.peers, 1);
    EXPECT_EQ(row.flows, 1);
  }
  for (const TableRow& row : rows_of("double tree", std::vector<int>{8, 64, 128})) {
    EXPECT_EQ(row.peers, 4);  // two parents, two children
    EXPECT_EQ(row.flows, 2);
  }
}

TEST(NvidiaTable, PrintsARowForEach) {
  const std::string text = to_string(nvidia_table(std::vector<int>{8}));
  EXPECT_NE(text.find("ring              8        14     0.571"), std::string::npos) << text;
  EXPECT_NE(text.find("in network        8         2"), std::string::npos) << text;
}

}  // namespace
}  // namespace aisc
