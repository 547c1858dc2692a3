// A checkpoint's tensors, memory-mapped: model.safetensors, or model.safetensors.index.json and its shards.
// Opening reads headers only; a tensor's bytes are read from disk when somebody touches them, so a rank that
// looks at its own experts alone reads those alone. Every offset, length, dtype and shape in the header is
// checked against the file before it is used (safetensors.h).
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
#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {

// Valid while the Checkpoint, or a copy of it, lives. `data` is aligned for the dtype.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::float32;
  std::vector<int64_t> shape;
  int64_t elements() const;
};

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& directory);

  // Errors: "<file>: no tensor '<name>'", and a dtype that Sluice does not have.
  Result<TensorView> find(std::string_view name) const;
  // The same, and its shape must be `shape`.
  Result<TensorView> find(std::string_view name, std::vector<int64_t> shape) const;
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  size_t tensor_count() const { return tensors_.size(); }
  size_t total_bytes() const;
  const std::string& directory() const { return directory_; }
  // Where an error about a tensor is: "<file>: tensor '<name>'".
  std::string where(std::string_view name) const;

 private:
  struct File {
    std::string path;
    Mapping mapping;
  };
  struct Entry {
    const File* file = nullptr;
    StoredTensor stored;
  };

  Status open_single(const std::string& path);
  Status open_sharded(const std::string& index_path);

  std::string directory_;
  std::string listing_;  // the file that says which tensors exist: the index, or the only file
  std::vector<std::shared_ptr<const File>> files_;
  std::map<std::string, Entry, std::less<>> tensors_;
};

}  // namespace sluice::checkpoint
