#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace sluice::checkpoint {
namespace {

constexpr size_t kLengthBytes = 8;
// The reference implementation's limit.
constexpr JsonLimits kHeaderLimits{.bytes = 100'000'000, .depth = 8};

struct StoredType {
  std::string_view name;
  uint64_t bits;
};
constexpr StoredType kTypes[] = {{"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},    {"U8", 8},
                                 {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"I16", 16},
                                 {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
                                 {"F32", 32}, {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64}};

// Where an error is: "model.safetensors: tensor 'a.weight'". A hostile name is cut, not echoed whole.
std::string where(std::string_view file, std::string_view tensor) {
  return fmt::format("{}: tensor '{}{}'", file, tensor.substr(0, 200), tensor.size() > 200 ? "…" : "");
}

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "…";
  return text;
}

Result<std::string_view> header_text(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < kLengthBytes) {
    return data_loss(
        fmt::format("{}: the file has {} bytes; a safetensors file starts with an 8-byte header length", name,
                    file.size()));
  }
  uint64_t length = 0;
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > file.size() - kLengthBytes) {
    return data_loss(
        fmt::format("{}: the header is said to have {} bytes, but the file has {} after the length field; it "
                    "is truncated, or "
                    "not a safetensors file",
                    name, length, file.size() - kLengthBytes));
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
}

Result<uint64_t> bits_of(std::string_view dtype, const std::string& tensor) {
  std::string known;
  for (const StoredType& type : kTypes) {
    if (type.name == dtype) return type.bits;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  return data_loss(fmt::format("{}: dtype '{}' is none of the format's: {}", tensor, dtype, known));
}

// The size that `shape` and `bits` give, or an error when it is not a whole number of bytes below 2^63.
Result<uint64_t> bytes_of(std::span<const int64_t> shape, uint64_t bits, const std::string& tensor) {
  uint64_t elements = 1;
  uint64_t total_bits = 0;
  bool overflow = false;
  for (const int64_t extent : shape) {
    overflow |= __builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements);
  }
  overflow |= __builtin_mul_overflow(elements, bits, &total_bits);
  if (overflow || total_bits % 8 != 0) {
    return data_loss(fmt::format("{}: shape {} with {} bits an element is not a possible size", tensor,
                                 shape_text(shape), bits));
  }
  return total_bits / 8;
}

Result<std::vector<int64_t>> read_shape(const nlohmann::json& entry, const std::string& tensor) {
  const auto found = entry.find("shape");
  const auto wrong = [&](const nlohmann::json& value) {
    return data_loss(fmt::format("{}: shape is {}; it must be a list of integers from 0 to 2^63 - 1", tensor,
                                 shown(value)));
  };
  if (found == entry.end()) return wrong(nullptr);
  if (!found->is_array()) return wrong(*found);
  std::vector<int64_t> shape;
  for (const nlohmann::json& extent : *found) {
    if (!extent.is_number_unsigned()) return wrong(*found);
    const auto value = extent.get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return wrong(*found);
    shape.push_back(static_cast<int64_t>(value));
  }
  return shape;
}

Result<StoredTensor> read_entry(const nlohmann::json& entry, size_t data_begin, size_t data_bytes,
                                const std::string& tensor) {
  if (!entry.is_object()) {
    return data_loss(fmt::format("{}: its header entry is {}; it must be an object", tensor, shown(entry)));
  }
  StoredTensor stored;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    return data_loss(fmt::format("{}: its header entry has no dtype (a string)", tensor));
  }
  stored.dtype = dtype->get<std::string>();
  SLUICE_ASSIGN_OR_RETURN(const uint64_t bits, bits_of(stored.dtype, tensor));
  SLUICE_ASSIGN_OR_RETURN(stored.shape, read_shape(entry, tensor));
  SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes, bytes_of(stored.shape, bits, tensor));

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return data_loss(fmt::format("{}: data_offsets is {}; it must be [begin, end], two integers from 0",
                                 tensor, offsets == entry.end() ? "missing" : shown(*offsets)));
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    return data_loss(
        fmt::format("{}: data_offsets [{}, {}] do not lie within the file's {} bytes of data; it is "
                    "truncated or corrupt",
                    tensor, begin, end, data_bytes));
  }
  if (end - begin != bytes) {
    return data_loss(fmt::format("{}: data_offsets [{}, {}] hold {} bytes, but {} of shape {} takes {}",
                                 tensor, begin, end, end - begin, stored.dtype, shape_text(stored.shape),
                                 bytes));
  }
  stored.begin = data_begin + begin;
  stored.bytes = bytes;
  return stored;
}

// The format allows neither overlaps nor holes: either means that some tensor is not where its writer put it.
Status check_tiling(const StoredTensors& tensors, size_t data_begin, size_t file_bytes,
                    std::string_view name) {
  std::vector<const StoredTensors::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.bytes) < std::pair(b->second.begin, b->second.bytes);
  });
  size_t expected = data_begin;
  for (const auto* entry : order) {
    const StoredTensor& tensor = entry->second;
    if (tensor.begin != expected) {
      return data_loss(fmt::format("{} begins at data offset {}, but the one before it ends at {}: they {}",
                                   where(name, entry->first), tensor.begin - data_begin,
                                   expected - data_begin,
                                   tensor.begin < expected ? "overlap" : "leave a hole"));
    }
    expected += tensor.bytes;
  }
  if (expected != file_bytes) {
    return data_loss(
        fmt::format("{}: its tensors end at byte {}, but the file has {} bytes", name, expected, file_bytes));
  }
  return {};
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<StoredTensors> parse_safetensors(std::span<const std::byte> file, std::string_view name) {
  SLUICE_ASSIGN_OR_RETURN(const std::string_view text, header_text(file, name));
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json header,
                          parse_json(text, fmt::format("{}: header", name), kHeaderLimits));
  if (!header.is_object()) {
    return data_loss(fmt::format("{}: the header is {}; it must be a JSON object", name, shown(header)));
  }
  const size_t data_begin = kLengthBytes + text.size();
  const size_t data_bytes = file.size() - data_begin;
  StoredTensors tensors;
  for (const auto& [tensor, entry] : header.items()) {
    if (tensor == "__metadata__") continue;
    SLUICE_ASSIGN_OR_RETURN(StoredTensor stored,
                            read_entry(entry, data_begin, data_bytes, where(name, tensor)));
    tensors.emplace(tensor, std::move(stored));
  }
  SLUICE_RETURN_IF_ERROR(check_tiling(tensors, data_begin, file.size(), name));
  return tensors;
}

}  // namespace sluice::checkpoint
