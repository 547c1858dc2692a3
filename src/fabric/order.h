// What a rank asks of its proxy, as the four words of a descriptor. A GPU fills the same words.
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/descriptor_ring.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

struct Order {
  enum Op : uint8_t { put = 1, wake = 2 };
  Op op = put;
  Kind kind = Kind::dispatch;
  int half = 0;
  int peer = 0;
  uint64_t offset = 0;  // of the bytes in the registered staging memory (put)
  uint64_t bytes = 0;   // header included (put)
  uint64_t value = 0;   // the step (wake)
};

// Word 0: op 4 bits | kind 2 | half 1 | peer 16. Then offset, bytes, value, each below 2^63.
constexpr DescriptorRing::Words encode_order(const Order& it) {
  return {static_cast<uint64_t>(it.op) | static_cast<uint64_t>(it.kind) << 4 |
              static_cast<uint64_t>(it.half) << 6 | static_cast<uint64_t>(it.peer) << 7,
          it.offset, it.bytes, it.value};
}

// Nothing when the words are no order.
constexpr std::optional<Order> decode_order(const DescriptorRing::Words& words) {
  const uint64_t op = words[0] & 15;
  const uint64_t kind = words[0] >> 4 & 3;
  if ((op != Order::put && op != Order::wake) || kind >= kKinds || words[0] >> 23 != 0) return std::nullopt;
  return Order{.op = static_cast<Order::Op>(op),
               .kind = static_cast<Kind>(kind),
               .half = static_cast<int>(words[0] >> 6 & 1),
               .peer = static_cast<int>(words[0] >> 7 & 0xffff),
               .offset = words[1],
               .bytes = words[2],
               .value = words[3]};
}

}  // namespace sluice::fabric
