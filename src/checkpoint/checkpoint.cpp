#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"

namespace sluice::checkpoint {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

std::optional<DType> our_dtype(std::string_view stored) {
  if (stored == "F32") return DType::float32;
  if (stored == "BF16") return DType::bfloat16;
  if (stored == "F8_E4M3") return DType::float8_e4m3;
  if (stored == "I32") return DType::int32;
  return std::nullopt;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Which shard holds which tensor. Shards lie beside the index: a path would let an index read any file.
Result<std::map<std::string, std::string>> read_weight_map(const std::string& index_path) {
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json index, read_json_file(index_path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return data_loss(index_path +
                     ": field 'weight_map' is missing; it must be an object of tensor name to file name");
  }
  if (map->empty()) return data_loss(index_path + ": field 'weight_map' is empty");
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    const bool plain = file.is_string() && !file.get_ref<const std::string&>().empty() &&
                       file.get_ref<const std::string&>().find('/') == std::string::npos &&
                       file.get_ref<const std::string&>().find('\0') == std::string::npos;
    if (!plain) {
      return data_loss(fmt::format(
          "{}: tensor '{}' is said to be in {}; it must be the name of a file in the same directory",
          index_path, tensor, file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    }
    shards.emplace(tensor, file.get<std::string>());
  }
  return shards;
}

}  // namespace

int64_t TensorView::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;  // cannot overflow: the file holds that many
  return product;
}

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    return not_found(fmt::format("{}: no such directory; a checkpoint is a directory with config.json and {}",
                                 directory, kSingleFile));
  }
  Checkpoint opened;
  opened.directory_ = directory;
  const std::string single = fmt::format("{}/{}", directory, kSingleFile);
  const std::string index = fmt::format("{}/{}", directory, kIndexFile);
  if (exists(single)) {
    SLUICE_RETURN_IF_ERROR(opened.open_single(single));
  } else if (exists(index)) {
    SLUICE_RETURN_IF_ERROR(opened.open_sharded(index));
  } else {
    return not_found(fmt::format("{}: holds neither {} nor {}", directory, kSingleFile, kIndexFile));
  }
  return opened;
}

Status Checkpoint::open_single(const std::string& path) {
  listing_ = path;
  SLUICE_ASSIGN_OR_RETURN(Mapping mapping, Mapping::read_file(path));
  SLUICE_ASSIGN_OR_RETURN(StoredTensors stored, parse_safetensors(mapping.bytes(), path));
  const auto file = std::make_shared<const File>(File{path, std::move(mapping)});
  files_.push_back(file);
  for (auto& [name, tensor] : stored) tensors_.emplace(name, Entry{file.get(), std::move(tensor)});
  return {};
}

Status Checkpoint::open_sharded(const std::string& index_path) {
  listing_ = index_path;
  SLUICE_ASSIGN_OR_RETURN(const auto weight_map, read_weight_map(index_path));
  struct Shard {
    std::shared_ptr<const File> file;
    StoredTensors stored;
  };
  std::map<std::string, Shard> shards;
  for (const auto& [tensor, shard_name] : weight_map) {
    if (!shards.contains(shard_name)) {
      const std::string path = fmt::format("{}/{}", directory_, shard_name);
      auto mapping = Mapping::read_file(path);
      if (!mapping.ok()) {
        return mapping.status().with_context(fmt::format("{}: shard of tensor '{}'", index_path, tensor));
      }
      SLUICE_ASSIGN_OR_RETURN(StoredTensors stored, parse_safetensors(mapping->bytes(), path));
      auto file = std::make_shared<const File>(File{path, std::move(mapping).value()});
      files_.push_back(file);
      shards.emplace(shard_name, Shard{std::move(file), std::move(stored)});
    }
    Shard& shard = shards.at(shard_name);
    const auto found = shard.stored.find(tensor);
    if (found == shard.stored.end()) {
      return data_loss(fmt::format("{}: tensor '{}' is said to be in {}, which does not hold it", index_path,
                                   tensor, shard_name));
    }
    tensors_.emplace(tensor, Entry{shard.file.get(), std::move(found->second)});
  }
  return {};
}

std::string Checkpoint::where(std::string_view name) const {
  const auto found = tensors_.find(name);
  return fmt::format("{}: tensor '{}'", found == tensors_.end() ? listing_ : found->second.file->path, name);
}

Result<TensorView> Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return not_found(fmt::format("{}: no tensor '{}'", listing_, name));
  const auto& [file, stored] = found->second;
  const std::optional<DType> dtype = our_dtype(stored.dtype);
  if (!dtype) {
    return unimplemented(
        fmt::format("{} has dtype {}; Sluice reads F32, BF16, F8_E4M3 and I32", where(name), stored.dtype));
  }
  const std::byte* data = file->mapping.data() + stored.begin;
  if (reinterpret_cast<uintptr_t>(data) % dtype_bytes(*dtype) != 0) {
    return data_loss(
        fmt::format("{} lies at byte {}, which is not aligned for {}; save the checkpoint again with a "
                    "current safetensors, which aligns",
                    where(name), stored.begin, stored.dtype));
  }
  return TensorView{.data = data, .dtype = *dtype, .shape = stored.shape};
}

Result<TensorView> Checkpoint::find(std::string_view name, std::vector<int64_t> shape) const {
  SLUICE_ASSIGN_OR_RETURN(TensorView tensor, find(name));
  if (tensor.shape != shape) {
    return data_loss(fmt::format("{} has shape {}; config.json makes it {}", where(name),
                                 shape_text(tensor.shape), shape_text(shape)));
  }
  return tensor;
}

size_t Checkpoint::total_bytes() const {
  size_t sum = 0;
  for (const auto& [name, entry] : tensors_) sum += entry.stored.bytes;
  return sum;
}

}  // namespace sluice::checkpoint
