// One file's header: what is right is read, and whatever is wrong is refused before it is used.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "support/expect_error.h"
#include "support/safetensors_writer.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::make_tensor;
using test::safetensors_file;

Result<StoredTensors> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string small_file() {
  return safetensors_file({{"a", make_tensor(DType::float32, {2, 3}, {1, 2, 3, 4, 5, 6})},
                           {"b", make_tensor(DType::bfloat16, {4}, {1, 2, 3, 4})},
                           {"scalar", make_tensor(DType::float32, {}, {7})},
                           {"empty", make_tensor(DType::float8_e4m3, {0, 5}, {})}});
}

// A file whose only tensor 'x' has this header entry, over 16 bytes of data.
std::string with_entry(const std::string& entry) {
  return safetensors_file(R"({"x":)" + entry + "}", std::string(16, '\0'));
}

TEST(Safetensors, ReadsTypesShapesAndPlaces) {
  const std::string file = small_file();
  const auto tensors = parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 4U);
  const StoredTensor& a = tensors->at("a");
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.bytes, 24U);
  EXPECT_EQ(file.substr(a.begin, 24), make_tensor(DType::float32, {6}, {1, 2, 3, 4, 5, 6}).bytes);
  EXPECT_EQ(tensors->at("scalar").bytes, 4U);
  EXPECT_EQ(tensors->at("empty").bytes, 0U);
}

TEST(Safetensors, FileShorterThanTheLengthField) {
  expect_error(parse("abc").status(), Code::data_loss, {"m.safetensors", "3 bytes", "8-byte header length"});
  expect_error(parse("").status(), Code::data_loss, {"0 bytes"});
}

TEST(Safetensors, HeaderLengthBeyondTheFile) {
  std::string file = small_file();
  file[6] = 1;  // adds 2^48
  expect_error(parse(file).status(), Code::data_loss, {"header is said to have 281474976710", "truncated"});
  expect_error(parse(std::string(8, '\xff') + "{}").status(), Code::data_loss,
               {"18446744073709551615", "has 2"});
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = small_file();
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(parse(file.substr(0, length)).ok()) << "cut to " << length << " of " << file.size();
  }
}

TEST(Safetensors, TrailingBytes) {
  expect_error(parse(small_file() + "x").status(), Code::data_loss, {"tensors end at byte", "the file has"});
}

TEST(Safetensors, HeaderIsNoJsonObject) {
  expect_error(parse(safetensors_file("{\"x\": ", "")).status(), Code::invalid_argument,
               {"m.safetensors: header", "not valid JSON"});
  expect_error(parse(safetensors_file("[1]", "")).status(), Code::data_loss,
               {"header is [1]", "JSON object"});
  expect_error(parse(safetensors_file(std::string(5000, '['), "")).status(), Code::invalid_argument,
               {"nested 5000 deep"});
}

TEST(Safetensors, EntryIsNoObject) {
  expect_error(parse(with_entry("3")).status(), Code::data_loss, {"tensor 'x'", "entry is 3", "object"});
}

TEST(Safetensors, UnknownOrMissingType) {
  expect_error(parse(with_entry(R"({"dtype":"F99","shape":[4],"data_offsets":[0,16]})")).status(),
               Code::data_loss, {"tensor 'x'", "dtype 'F99'", "BF16"});
  expect_error(parse(with_entry(R"({"shape":[4],"data_offsets":[0,16]})")).status(), Code::data_loss,
               {"tensor 'x'", "no dtype"});
  expect_error(parse(with_entry(R"({"dtype":7,"shape":[4],"data_offsets":[0,16]})")).status(),
               Code::data_loss, {"no dtype"});
}

TEST(Safetensors, ImpossibleShapes) {
  for (const char* shape :
       {"[-4]", "[4.5]", "[\"4\"]", "4", "null", "[18446744073709551615]", "[1e30]", "{}"}) {
    const std::string entry = std::string(R"({"dtype":"F32","data_offsets":[0,16],"shape":)") + shape + "}";
    expect_error(parse(with_entry(entry)).status(), Code::data_loss,
                 {"tensor 'x'", "shape is", "integers from 0"});
  }
  expect_error(parse(with_entry(R"({"dtype":"F32","data_offsets":[0,16]})")).status(), Code::data_loss,
               {"shape"});
}

TEST(Safetensors, ShapesWhoseProductOverflows) {
  // 2^62 x 4 elements of 4 bytes would be 0 bytes modulo 2^64.
  for (const char* shape : {"[4611686018427387904,4]", "[4294967296,4294967296]", "[9223372036854775807]"}) {
    const std::string entry = std::string(R"({"dtype":"F32","data_offsets":[0,0],"shape":)") + shape + "}";
    expect_error(parse(with_entry(entry)).status(), Code::data_loss, {"tensor 'x'", "not a possible size"});
  }
}

TEST(Safetensors, HalfABytePerElementMustFillBytes) {
  EXPECT_TRUE(parse(with_entry(R"({"dtype":"F4","shape":[32],"data_offsets":[0,16]})")).ok());
  expect_error(parse(with_entry(R"({"dtype":"F4","shape":[31],"data_offsets":[0,16]})")).status(),
               Code::data_loss, {"not a possible size"});
}

TEST(Safetensors, OffsetsOutsideTheData) {
  for (const char* offsets : {"[0,17]", "[16,32]", "[8,4]", "[0,18446744073709551615]"}) {
    const std::string entry = std::string(R"({"dtype":"F32","shape":[4],"data_offsets":)") + offsets + "}";
    expect_error(parse(with_entry(entry)).status(), Code::data_loss,
                 {"tensor 'x'", "do not lie within", "16 bytes"});
  }
}

TEST(Safetensors, OffsetsThatAreNoPairOfIntegers) {
  for (const char* offsets : {"[0]", "[0,8,16]", "[-1,16]", "[0.0,16]", "\"0-16\"", "null"}) {
    const std::string entry = std::string(R"({"dtype":"F32","shape":[4],"data_offsets":)") + offsets + "}";
    expect_error(parse(with_entry(entry)).status(), Code::data_loss,
                 {"tensor 'x'", "data_offsets is", "[begin, end]"});
  }
}

TEST(Safetensors, OffsetsThatDoNotFitTheShape) {
  expect_error(parse(with_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})")).status(),
               Code::data_loss, {"tensor 'x'", "hold 16 bytes", "F32 of shape [3] takes 12"});
}

TEST(Safetensors, OverlapsAndHoles) {
  const std::string overlap = safetensors_file(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      std::string(12, '\0'));
  expect_error(parse(overlap).status(), Code::data_loss,
               {"tensor 'b'", "data offset 4", "ends at 8", "overlap"});
  const std::string same = safetensors_file(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      std::string(8, '\0'));
  expect_error(parse(same).status(), Code::data_loss, {"overlap"});
  const std::string hole = safetensors_file(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
      std::string(12, '\0'));
  expect_error(parse(hole).status(), Code::data_loss, {"tensor 'b'", "leave a hole"});
}

TEST(Safetensors, LongNamesAreCutInErrors) {
  const std::string file = safetensors_file("{\"" + std::string(100'000, 'n') + "\":3}", "");
  EXPECT_LT(parse(file).status().message().size(), 500U);
}

// Whatever a byte is changed to: refused, or read with every tensor inside the file.
TEST(Safetensors, MutatedFilesAreReadSafelyOrRefused) {
  const std::string original = small_file();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = original;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      file[random() % (original.size() - 36)] = static_cast<char>(random());
    }
    const auto tensors = parse(file);
    if (!tensors.ok()) {
      EXPECT_FALSE(tensors.status().message().empty());
      ++refused;
      continue;
    }
    for (const auto& [name, tensor] : *tensors) {
      ASSERT_LE(tensor.begin, file.size());
      ASSERT_LE(tensor.bytes, file.size() - tensor.begin);
    }
  }
  EXPECT_GT(refused, 15'000);
}

}  // namespace
}  // namespace sluice::checkpoint
