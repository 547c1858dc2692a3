// One level of an Interpreter's recursion.
#pragma once

#include "text/jinja_interpreter.h"

namespace sluice::text::jinja {

class Interpreter::Level {
 public:
  Level(Interpreter&, int& depth) : depth_(depth) {
    if (++depth_ > kMaxDepth) {
      --depth_;
      throw Error("maximum recursion depth exceeded");
    }
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  static constexpr int kMaxDepth = 1000;
  int& depth_;
};

}  // namespace sluice::text::jinja
