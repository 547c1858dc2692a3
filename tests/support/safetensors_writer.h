// Writes safetensors files for tests: right ones from tensors, and wrong ones from any header text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace sluice::test {

struct WrittenTensor {
  std::string dtype;  // "F32", "BF16", "F8_E4M3", ...
  std::vector<int64_t> shape;
  std::string bytes;
};

using WrittenTensors = std::map<std::string, WrittenTensor>;

// Values converted to the type.
WrittenTensor make_tensor(DType dtype, std::vector<int64_t> shape, const std::vector<float>& values);

// The file's bytes: larger elements first, so that all are aligned.
std::string safetensors_file(const WrittenTensors& tensors);
// The same from a header's text and the data, whatever they say; the length field is the header's.
std::string safetensors_file(std::string_view header, std::string_view data);

}  // namespace sluice::test
