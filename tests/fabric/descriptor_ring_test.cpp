#include "fabric/descriptor_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ranks.h"

namespace sluice::fabric {
namespace {

class RingMemory {
 public:
  explicit RingMemory(size_t depth) : bytes_(DescriptorRing::memory_bytes(depth) + 64) {}
  void* data() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  }

 private:
  std::vector<std::byte> bytes_;
};

// Four words that only belong together.
DescriptorRing::Words words_of(uint64_t producer, uint64_t count) {
  const uint64_t key = mix(producer << 40 | count);
  return {producer, count, key & ~DescriptorRing::kLapBit, mix(key) & ~DescriptorRing::kLapBit};
}

TEST(DescriptorRing, GivesBackWhatWasPushedInOrder) {
  RingMemory memory(8);
  DescriptorRing ring(memory.data(), 8);
  DescriptorRing::Words words{};
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.try_pop(words));
  for (uint64_t lap = 0; lap < 100; ++lap) {
    for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(ring.try_push(words_of(1, lap * 5 + i)));
    for (uint64_t i = 0; i < 5; ++i) {
      ASSERT_FALSE(ring.empty());
      ASSERT_TRUE(ring.try_pop(words));
      ASSERT_EQ(words, words_of(1, lap * 5 + i));
    }
    ASSERT_FALSE(ring.try_pop(words));
  }
}

TEST(DescriptorRing, FullRingRefusesAndKeepsWhatItHas) {
  RingMemory memory(4);
  DescriptorRing ring(memory.data(), 4);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(ring.try_push(words_of(0, i)));
  EXPECT_FALSE(ring.try_push(words_of(0, 4)));
  EXPECT_FALSE(ring.try_push(words_of(0, 5)));
  DescriptorRing::Words words{};
  ASSERT_TRUE(ring.try_pop(words));
  EXPECT_EQ(words, words_of(0, 0));
  EXPECT_TRUE(ring.try_push(words_of(0, 6)));
  EXPECT_FALSE(ring.try_push(words_of(0, 7)));
  for (uint64_t expected : {1u, 2u, 3u, 6u}) {
    ASSERT_TRUE(ring.try_pop(words));
    EXPECT_EQ(words, words_of(0, expected));
  }
  EXPECT_FALSE(ring.try_pop(words));
}

TEST(DescriptorRing, IndicesWrapAt64Bits) {
  for (uint64_t before : {1u, 3u, 8u, 13u}) {
    RingMemory memory(8);
    DescriptorRing ring(memory.data(), 8, uint64_t{0} - before);
    DescriptorRing::Words words{};
    EXPECT_TRUE(ring.empty());
    EXPECT_FALSE(ring.try_pop(words));
    for (uint64_t i = 0; i < 60; ++i) {
      ASSERT_TRUE(ring.try_push(words_of(2, i)));
      ASSERT_TRUE(ring.try_push(words_of(3, i)));
      ASSERT_TRUE(ring.try_pop(words));
      ASSERT_EQ(words, words_of(2, i));
      ASSERT_TRUE(ring.try_pop(words));
      ASSERT_EQ(words, words_of(3, i));
      ASSERT_FALSE(ring.try_pop(words));
    }
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(ring.try_push(words_of(4, i)));
    EXPECT_FALSE(ring.try_push(words_of(4, 8)));
  }
}

// Several producers, a small ring that is full most of the time, and a start just below the wrap: nothing is
// lost, doubled, torn or out of its producer's order.
void stress(size_t depth, uint64_t start, uint64_t each) {
  constexpr uint64_t kProducers = 4;
  RingMemory memory(depth);
  DescriptorRing ring(memory.data(), depth, start);
  std::vector<std::thread> producers;
  for (uint64_t producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&, producer] {
      for (uint64_t i = 0; i < each; ++i) {
        while (!ring.try_push(words_of(producer, i))) std::this_thread::yield();
      }
    });
  }
  std::vector<uint64_t> next(kProducers, 0);
  uint64_t wrong = 0;
  for (uint64_t popped = 0; popped < kProducers * each;) {
    DescriptorRing::Words words{};
    if (!ring.try_pop(words)) {
      std::this_thread::yield();
      continue;
    }
    ++popped;
    if (words[0] >= kProducers || words != words_of(words[0], next[words[0]]++)) ++wrong;
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(ring.empty());
}

TEST(DescriptorRing, SeveralProducersSmallRing) { stress(4, uint64_t{0} - 1000, 5'000); }
TEST(DescriptorRing, SeveralProducersLargeRing) { stress(1024, 0, 50'000); }

}  // namespace
}  // namespace sluice::fabric
