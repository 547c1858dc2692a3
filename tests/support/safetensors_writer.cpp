#include "support/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace sluice::test {
namespace {

// The nearest finite value, found among all: slow and plainly right.
uint8_t float_to_float8(float value) {
  int best = 0;
  for (int bits = 0; bits < 256; ++bits) {
    const float candidate = float8_e4m3_to_float(static_cast<uint8_t>(bits));
    if (std::isnan(candidate)) continue;
    if (std::abs(candidate - value) < std::abs(float8_e4m3_to_float(static_cast<uint8_t>(best)) - value))
      best = bits;
  }
  return static_cast<uint8_t>(best);
}

template <class T>
void append(std::string& bytes, T value) {
  std::array<char, sizeof(T)> raw;
  std::memcpy(raw.data(), &value, sizeof(T));
  bytes.append(raw.data(), raw.size());
}

}  // namespace

WrittenTensor make_tensor(DType dtype, std::vector<int64_t> shape, const std::vector<float>& values) {
  WrittenTensor tensor{.dtype = "", .shape = std::move(shape), .bytes = ""};
  for (const float value : values) {
    switch (dtype) {
      case DType::float32:
        append(tensor.bytes, value);
        break;
      case DType::bfloat16:
        append(tensor.bytes, float_to_bfloat16(value));
        break;
      case DType::float8_e4m3:
        append(tensor.bytes, float_to_float8(value));
        break;
      case DType::int32:
        append(tensor.bytes, static_cast<int32_t>(value));
        break;
    }
  }
  constexpr std::array kNames = {"F32", "BF16", "F8_E4M3", "I32"};
  tensor.dtype = kNames[static_cast<size_t>(dtype)];
  return tensor;
}

std::string safetensors_file(const WrittenTensors& tensors) {
  std::vector<WrittenTensors::const_iterator> order;
  for (auto it = tensors.begin(); it != tensors.end(); ++it) order.push_back(it);
  const auto width = [](const WrittenTensor& t) {
    return t.dtype == "F32" || t.dtype == "I32" ? 4 : t.dtype == "BF16" ? 2 : 1;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return width(a->second) > width(b->second); });
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& it : order) {
    const auto& [name, tensor] = *it;
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return safetensors_file(text, data);
}

std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file;
  append(file, static_cast<uint64_t>(header.size()));
  file += header;
  file += data;
  return file;
}

}  // namespace sluice::test
