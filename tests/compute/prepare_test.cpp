// What the back end refuses, and with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support.h"

namespace sluice::compute {
namespace {

using testing::HasSubstr;

TEST(MakeBackend, RefusesOptionsItCannotServe) {
  EXPECT_THAT(make_cpu_backend({DType::float32, false, 0}).status().message(), HasSubstr("0 threads"));
  EXPECT_THAT(make_cpu_backend({DType::float8_e4m3, false, 1}).status().message(),
              HasSubstr("activations of type float8_e4m3"));
}

TEST(MakeBackend, SaysWhatItRunsOn) {
  EXPECT_THAT(make_backend(DType::float32, true, 2)->description(), HasSubstr("deterministic, 2 threads"));
  EXPECT_THAT(make_backend(DType::float32, false, 1)->description(), HasSubstr("oneDNN"));
  for_each_instruction_set([](const std::string& name) {
    EXPECT_THAT(make_backend(DType::float32, true)->description(),
                HasSubstr(name == "AVX3" ? "AVX-512" : name));
  });
}

std::string refusal(const WeightSource& source) {
  const auto prepared = make_backend(DType::float32, false)->prepare(source);
  EXPECT_FALSE(prepared.ok());
  return prepared.status().message();
}

TEST(Prepare, RefusesWeightsItCannotMultiplyWith) {
  Random random(1);
  const HostWeight plain = random_weight(random, DType::float32, 4, 4);
  WeightSource source = plain.source();
  source.data = nullptr;
  EXPECT_THAT(refusal(source), HasSubstr("without data"));
  source = plain.source();
  source.out = 0;
  EXPECT_THAT(refusal(source), HasSubstr("shape (0, 4)"));
  source = plain.source();
  source.dtype = DType::int32;
  EXPECT_THAT(refusal(source), HasSubstr("type int32"));
}

TEST(Prepare, RefusesFp8ThatItsKernelsWouldMisread) {
  Random random(2);
  HostWeight fp8 = random_weight(random, DType::float8_e4m3, 200, 150);
  WeightSource source = fp8.source();
  source.scales = nullptr;
  EXPECT_THAT(refusal(source), HasSubstr("without block scales"));
  source = fp8.source();
  source.block_rows = 100;
  EXPECT_THAT(refusal(source), HasSubstr("100 x 128 scale blocks"));
  source = fp8.source();
  source.block_cols = 130;
  EXPECT_THAT(refusal(source), HasSubstr("128 x 130 scale blocks"));
  for (const int code : {0x7f, 0xff}) {
    HostWeight broken = fp8;
    broken.bytes[static_cast<size_t>(199 * 150 + 149)] = static_cast<std::byte>(code);
    EXPECT_THAT(refusal(broken.source()), HasSubstr("NaN at row 199, column 149"));
  }
  fp8.scales[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(fp8.source()), HasSubstr("the scale of block (1, 1) is inf"));
}

TEST(Prepare, KeepsWeightsInTheirOwnType) {
  Random random(3);
  const auto backend = make_backend(DType::float32, false);
  for (const DType type : {DType::float32, DType::bfloat16, DType::float8_e4m3}) {
    const auto weight = backend->prepare(random_weight(random, type, 256, 256).source());
    ASSERT_TRUE(weight.ok());
    EXPECT_GE((*weight)->bytes(), 256 * 256 * dtype_bytes(type));
    EXPECT_LE((*weight)->bytes(), 256 * 256 * dtype_bytes(type) + 64);
    EXPECT_EQ((*weight)->out(), 256);
    EXPECT_EQ((*weight)->in(), 256);
  }
}

TEST(PrepareVector, ConvertsAndRefuses) {
  const auto backend = make_backend(DType::float32, false);
  const uint16_t bits[] = {float_to_bfloat16(1.5F), float_to_bfloat16(-2.0F)};
  const auto vector = backend->prepare_vector(bits, DType::bfloat16, 2);
  ASSERT_TRUE(vector.ok());
  const auto* values = static_cast<const float*>((*vector)->data());
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(values[1], -2.0F);
  EXPECT_FALSE(backend->prepare_vector(bits, DType::float8_e4m3, 2).ok());
  EXPECT_FALSE(backend->prepare_vector(bits, DType::bfloat16, 0).ok());
  EXPECT_FALSE(backend->prepare_vector(nullptr, DType::bfloat16, 2).ok());
}

TEST(KvCache, RefusesShapesItCannotHold) {
  const auto backend = make_backend(DType::float32, false);
  const KvShape good{2, 4, 16, 2, 64, DType::float32};
  EXPECT_TRUE(backend->make_kv_cache(good).ok());
  KvShape shape = good;
  shape.block_size = 24;
  EXPECT_THAT(backend->make_kv_cache(shape).status().message(), HasSubstr("block size 24"));
  shape = good;
  shape.head_dim = 65;
  EXPECT_THAT(backend->make_kv_cache(shape).status().message(), HasSubstr("head_dim 65"));
  shape = good;
  shape.dtype = DType::float8_e4m3;
  EXPECT_THAT(backend->make_kv_cache(shape).status().message(), HasSubstr("float8_e4m3"));
  shape = good;
  shape.blocks = 0;
  EXPECT_FALSE(backend->make_kv_cache(shape).ok());
}

TEST(Allocate, GivesZeroedMemoryOfAnySize) {
  const auto backend = make_backend(DType::float32, false);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{3} << 20}) {
    const auto buffer = backend->allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->bytes(), bytes);
    const auto* data = static_cast<const std::byte*>((*buffer)->data());
    for (size_t i = 0; i < bytes; i += 997) ASSERT_EQ(data[i], std::byte{0});
  }
}

}  // namespace
}  // namespace sluice::compute
