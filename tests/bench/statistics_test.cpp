#include "bench/statistics.h"

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(Statistics, PercentilesAreValuesThatOccurred) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 0.5), 3);
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
  EXPECT_EQ(percentile(hundred, 1.0), 100);
}

TEST(Statistics, TheSlowestRankOfEachRepetitionCounts) {
  // Two ranks, two repetitions: {begin, end, dispatch, combine}.
  const Slowest slowest = slowest_of({{{100, 200, 60, 40}, {300, 330, 10, 20}},  //
                                      {{110, 215, 30, 75}, {290, 320, 15, 10}}});
  EXPECT_EQ(slowest.dispatch, (std::vector<double>{60, 15}));
  EXPECT_EQ(slowest.combine, (std::vector<double>{75, 20}));
  EXPECT_EQ(slowest.both, (std::vector<double>{115, 40}));
}

}  // namespace
}  // namespace sluice::bench
