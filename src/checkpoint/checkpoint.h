// A checkpoint's tensors, memory-mapped: model.safetensors, or model.safetensors.index.json and its shards.
// Opening reads headers only; a tensor's bytes are read from disk when somebody touches them, so a rank that
// looks at its own experts alone reads those alone. Every offset, length, dtype and shape in the header is
// checked against the file before it is used. Source of the format: the safetensors README (8-byte
// little-endian header length, JSON header, then the data; offsets relative to the data).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapping.h"
#include "base/status.h"

namespace sluice::checkpoint {

struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::float32;
  std::vector<int64_t> shape;
  int64_t elements() const;
};

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& directory);

  // Error: "<file>: no tensor '<name>'".
  Result<TensorView> find(std::string_view name) const;
  // The same, and its shape must be `shape`.
  Result<TensorView> find(std::string_view name, std::vector<int64_t> shape) const;
  bool contains(std::string_view name) const;
  size_t tensor_count() const { return tensors_.size(); }
  size_t total_bytes() const;
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::vector<std::shared_ptr<Mapping>> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace sluice::checkpoint
