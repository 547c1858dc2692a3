#include "fabric/arrivals.h"

#include <algorithm>

#include "fabric/slab.h"
#include "fabric/wire.h"

namespace sluice::fabric {

Arrivals::Arrivals(Window& window, const Options& options)
    : window_(window),
      rank_(options.rank),
      epoch_(options.epoch),
      sources_(static_cast<size_t>(options.ranks)) {
  for (Source& source : sources_) {
    for (auto& kind : source.inbound) kind[1].next_seq = 1;
  }
}

Arrivals::Event Arrivals::deliver(uint32_t immediate) {
  const auto it = decode_immediate(immediate);
  if (it && it->generation != (epoch_ & 7)) {
    count(stale_);
    return {};
  }
  if (!it || it->source >= sources_.size() || static_cast<int>(it->source) == rank_ ||
      it->kind == FragmentKind::fenced) {
    count(malformed_);
    return {};
  }
  return it->kind == FragmentKind::control ? control(*it) : fragment(*it);
}

Arrivals::Event Arrivals::fragment(const Immediate& it) {
  const auto kind = static_cast<Kind>(it.kind);
  Inbound& inbound = sources_[it.source].inbound[static_cast<size_t>(kind)][it.half];
  switch (inbound.fragments.mark(it.part, it.stripe, it.stripes)) {
    case FragmentTracker::Mark::added:
      return {};
    case FragmentTracker::Mark::duplicate:
      count(duplicates_);
      return {};
    case FragmentTracker::Mark::malformed:
      count(malformed_);
      return {};
    case FragmentTracker::Mark::completed:
      break;
  }
  const auto source = static_cast<int>(it.source);
  publish(source, kind, static_cast<int>(it.half));
  return {.what = Event::published, .source = source};
}

// A header that cannot be believed is published under the expected seq: its reader then gets the error that
// names the values, instead of waiting for ever.
void Arrivals::publish(int source, Kind kind, int half) {
  Source& from = sources_[static_cast<size_t>(source)];
  Inbound& inbound = from.inbound[static_cast<size_t>(kind)][half];
  const SlabHeader header = *window_.slab(source, kind, half);
  const size_t room = window_.layout().slab_bytes(kind);
  uint64_t seq = inbound.next_seq;
  if (half_of(header.seq) == half && header.seq <= kProofSeq * 2 &&
      check_slab_header(header, source, kind, epoch_, header.seq, room).ok()) {
    seq = header.seq;
  }
  if (seq < kProofSeq) inbound.next_seq = seq + 2;
  from.puts += 1;
  from.bytes += sizeof(SlabHeader) + std::min<uint64_t>(header.bytes, room);
  SourceWords& words = window_.words(source);
  words.puts.store(from.puts, std::memory_order_relaxed);
  words.bytes.store(from.bytes, std::memory_order_relaxed);
  words.arrival[static_cast<size_t>(kind)][half].store(arrival_word(seq, 1), std::memory_order_release);
}

Arrivals::Event Arrivals::control(const Immediate& it) {
  const auto source = static_cast<int>(it.source);
  if (it.half == 1) return {.what = Event::wake_acked, .source = source, .number = it.part};
  const Mailbox mail = *window_.mailbox(source);
  if (mail.check != ~mail.step) {  // its successor is being written and will be announced too
    count(duplicates_);
    return {};
  }
  Source& from = sources_[it.source];
  from.wake = std::max(from.wake, mail.step);
  window_.words(source).wake.store(from.wake, std::memory_order_release);
  return {.what = Event::woken, .source = source, .number = it.part};
}

}  // namespace sluice::fabric
