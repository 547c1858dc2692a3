#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::text {
namespace {

// The whole text is known: the stop string that ends first, the longest of those that end there.
std::string cut_naively(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, include ? end : end - longest);
  }
  return text;
}

TEST(StopStrings, EqualsTheSearchInTheWholeTextHoweverItIsCut) {
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) {
      for (size_t n = random() % 5; n > 0; --n) stop += static_cast<char>('a' + random() % 3);
    }
    std::string text;
    for (size_t n = random() % 30; n > 0; --n) text += static_cast<char>('a' + random() % 3);
    const bool include = random() % 4 == 0;
    const std::string expected = cut_naively(text, stops, include);

    StopStrings filter(stops, include);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min(text.size() - at, 1 + random() % 6);
      out += filter.feed(std::string_view(text).substr(at, length));
      at += length;
      // Nothing that has left may have to be taken back.
      ASSERT_TRUE(expected.starts_with(out));
    }
    const bool stopped = filter.stopped();
    out += filter.finish();
    ASSERT_EQ(out, expected) << text;
    ASSERT_EQ(stopped,
              expected.size() < text.size() || (include && expected != cut_naively(text, stops, false)));
  }
}

TEST(StopStrings, HoldsBackOnlyWhatCouldBeABeginning) {
  StopStrings filter({"\n\nUser:"});
  EXPECT_EQ(filter.feed("Hello\n"), "Hello");
  EXPECT_EQ(filter.feed("x\n\nUs"), "\nx");
  EXPECT_EQ(filter.feed("er"), "");
  EXPECT_EQ(filter.feed(" "), "\n\nUser ");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.feed("\n\nUser: hi"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.feed("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopStrings, WithoutStopsEverythingPasses) {
  StopStrings filter({"", ""});
  EXPECT_EQ(filter.feed("abc"), "abc");
  EXPECT_EQ(filter.finish(), "");
}

}  // namespace
}  // namespace sluice::text
