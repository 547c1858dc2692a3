#include "fabric/fragment_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace sluice::fabric {
namespace {

struct Fragment {
  uint64_t part;
  uint32_t stripe;
  uint32_t stripes;
};

// Thousands of orders with duplicates, among them duplicates of parts long complete: after every fragment the
// tracker says exactly what a plain set of (part, stripe) says.
TEST(FragmentTracker, AgreesWithASetInAnyOrder) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 1000; ++trial) {
    FragmentTracker tracker;
    std::vector<Fragment> past;
    std::set<std::pair<uint64_t, uint32_t>> here;
    uint64_t first = 0;
    uint64_t completed = 0;
    for (int batch = 0; batch < 12; ++batch) {
      // A batch of parts under way together, all fragments shuffled.
      const uint64_t parts = random() % 12 + 1;
      std::vector<Fragment> fragments;
      std::vector<uint32_t> stripes(parts);
      for (uint64_t part = 0; part < parts; ++part) {
        stripes[part] = static_cast<uint32_t>(random() % 16 + 1);
        for (uint32_t stripe = 0; stripe < stripes[part]; ++stripe) {
          fragments.push_back({first + part, stripe, stripes[part]});
          if (random() % 4 == 0) fragments.push_back(fragments.back());
        }
      }
      for (const Fragment& old : past) {
        if (random() % 8 == 0 && first - old.part <= 20) fragments.push_back(old);
      }
      std::shuffle(fragments.begin(), fragments.end(), random);
      for (const Fragment& it : fragments) {
        const bool fresh = here.insert({it.part, it.stripe}).second;
        const auto whole = [&](uint64_t part) {
          if (part < first || part >= first + parts) return false;
          for (uint32_t s = 0; s < stripes[part - first]; ++s) {
            if (!here.contains({part, s})) return false;
          }
          return true;
        };
        const uint64_t before = completed;
        while (whole(completed)) ++completed;
        const auto mark = tracker.mark(static_cast<uint32_t>(it.part % 64), it.stripe, it.stripes);
        ASSERT_EQ(tracker.completed(), completed) << "trial " << trial;
        ASSERT_EQ(mark, !fresh                ? FragmentTracker::Mark::duplicate
                        : completed != before ? FragmentTracker::Mark::completed
                                              : FragmentTracker::Mark::added);
      }
      ASSERT_EQ(completed, first + parts);
      first += parts;
      past.insert(past.end(), fragments.begin(), fragments.end());
    }
  }
}

TEST(FragmentTracker, FragmentsThatContradictEachOtherAreMalformed) {
  FragmentTracker tracker;
  EXPECT_EQ(tracker.mark(0, 0, 4), FragmentTracker::Mark::added);
  EXPECT_EQ(tracker.mark(0, 1, 2), FragmentTracker::Mark::malformed);
  EXPECT_EQ(tracker.mark(0, 1, 4), FragmentTracker::Mark::added);
  EXPECT_EQ(tracker.completed(), 0u);
}

TEST(FragmentTracker, ThePartNumberRunsOnOverManyWraps) {
  FragmentTracker tracker;
  for (uint64_t part = 0; part < 1000; ++part) {
    ASSERT_EQ(tracker.mark(static_cast<uint32_t>(part % 64), 0, 1), FragmentTracker::Mark::completed);
    ASSERT_EQ(tracker.mark(static_cast<uint32_t>(part % 64), 0, 1), FragmentTracker::Mark::duplicate);
  }
  EXPECT_EQ(tracker.completed(), 1000u);
}

}  // namespace
}  // namespace sluice::fabric
