#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace sluice::text {
namespace {

// The length of the longest proper beginning of `stop` that `text` ends in.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops, bool include_in_output)
    : stops_(std::move(stops)), include_in_output_(include_in_output) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

// The stop string that ends first wins, the longest of several that end there: a rule that does not depend on
// how the text was cut into pieces.
std::string StopStrings::feed(std::string_view text) {
  if (stopped_) return {};
  for (const char c : text) {
    held_.push_back(c);
    size_t longest = 0;
    for (const std::string& stop : stops_) {
      if (std::string_view(held_).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest == 0) continue;
    stopped_ = true;
    if (!include_in_output_) held_.resize(held_.size() - longest);
    return std::exchange(held_, {});
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, begun(held_, stop));
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace sluice::text
