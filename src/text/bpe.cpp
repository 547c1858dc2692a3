#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace sluice::text {
namespace {

constexpr uint64_t kFree = ~uint64_t{0};

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t merges)
    : slots_(std::bit_ceil(2 * merges + 16), Slot{kFree, {}}), shift_(64 - std::countr_zero(slots_.size())) {}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

Bpe::Bpe(Settings settings, MergeTable merges, std::unordered_map<std::string_view, int32_t> words,
         size_t vocabulary)
    : settings_(std::move(settings)),
      merges_(std::move(merges)),
      words_(std::move(words)),
      whole_(new std::atomic<uint8_t>[vocabulary]()) {}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const {
  std::atomic<uint8_t>* whole = nullptr;
  int32_t id = -1;
  if (const auto found = words_.find(word); found != words_.end()) {
    id = found->second;
    whole = &whole_[static_cast<size_t>(id)];
    if (settings_.ignore_merges || whole->load(std::memory_order_relaxed) == kWhole) {
      ids.push_back(id);
      return;
    }
  }
  start_symbols(word, scratch);
  merge_all(scratch);
  const size_t before = ids.size();
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
  if (whole != nullptr) {
    const bool alone = ids.size() == before + 1 && ids.back() == id;
    whole->store(alone ? kWhole : kSplits, std::memory_order_relaxed);
  }
}

void Bpe::start_symbols(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  const auto append = [&](int32_t id) {
    const auto index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, index - 1, -1});
  };
  bool after_unknown = false;
  for (const char c : word) {
    const auto& start = settings_.byte_symbols[static_cast<unsigned char>(c)];
    for (const int32_t id : start) append(id);
    const bool unknown = start.empty();
    if (unknown && settings_.unknown >= 0 && !(after_unknown && settings_.fuse_unknown)) {
      append(settings_.unknown);
    }
    after_unknown = unknown;
  }
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;  // rank << 32 | index of the left symbol; lowest first
  queue.clear();
  const auto at = [&](int32_t index) -> Scratch::Symbol& { return symbols[static_cast<size_t>(index)]; };
  const auto merge_of = [&](int32_t left) -> const MergeTable::Merge* {
    if (left < 0 || at(left).next < 0) return nullptr;
    return merges_.find(at(left).id, at(at(left).next).id);
  };
  const auto entry = [](const MergeTable::Merge& merge, int32_t left) {
    return uint64_t{merge.rank} << 32 | static_cast<uint32_t>(left);
  };

  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    if (const auto* merge = merge_of(i)) queue.push_back(entry(*merge, i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t top = queue.back();
    queue.pop_back();
    const auto left = static_cast<int32_t>(top & 0xFFFFFFFFU);
    if (at(left).id < 0) continue;
    // Either symbol may have changed since: then the pair has another rank, or none.
    const auto* merge = merge_of(left);
    if (merge == nullptr || entry(*merge, left) != top) continue;

    Scratch::Symbol& right = at(at(left).next);
    at(left).id = merge->id;
    at(left).next = right.next;
    right.id = -1;
    if (right.next >= 0) at(right.next).previous = left;
    for (const int32_t changed : {at(left).previous, left}) {
      if (const auto* next = merge_of(changed)) {
        queue.push_back(entry(*next, changed));
        std::push_heap(queue.begin(), queue.end(), std::greater<>());
      }
    }
  }
}

}  // namespace sluice::text
