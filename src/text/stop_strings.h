// Stops a stream at the first of some strings, and holds back text that may be the beginning of one, so that
// no part of a stop string ever reaches the client.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops, bool include_in_output = false);

  // Text that is now certain to be before any stop string. After stopped() nothing more comes out.
  std::string feed(std::string_view text);
  // The rest, at the end of the stream.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  bool include_in_output_;
  bool stopped_ = false;
  std::string held_;
};

}  // namespace sluice::text
