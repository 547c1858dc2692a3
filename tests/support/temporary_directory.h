// A directory that exists as long as the object does.
#pragma once

#include <string>
#include <string_view>

namespace sluice::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view file, std::string_view content) const;

 private:
  std::string path_;
};

}  // namespace sluice::test
