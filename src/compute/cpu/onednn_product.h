// Dense products by oneDNN, where it has a kernel that reads our packed weights as they are (float32 on
// AVX-512; bfloat16 on AVX-512 with its bfloat16 instructions). Each of the rank's threads runs a
// single-threaded product over its own tiles: oneDNN's own OpenMP team would spin against ours. Not for
// deterministic mode.
#pragma once

#include <memory>
#include <string>

#include "base/matrix.h"
#include "compute/cpu/pack.h"
#include "compute/cpu/workers.h"

namespace sluice::compute::cpu {

class OneDnnProduct {
 public:
  explicit OneDnnProduct(Workers& workers);
  ~OneDnnProduct();

  // out = x w^T, or false if there is no such kernel for these types here; `out` is then untouched.
  bool run(ConstMatrix x, const PackedMatrix& w, Matrix out);

  // "oneDNN 2.6.3"
  static std::string version();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::compute::cpu
