#include "compute/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace sluice::compute::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

bool is_mapped(size_t bytes) { return bytes >= kHugePage; }

}  // namespace

Result<Memory> Memory::allocate(size_t bytes) {
  Memory memory;
  if (bytes == 0) return memory;
  if (is_mapped(bytes)) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return errno_status(Code::resource_exhausted, fmt::format("allocating {} bytes of memory", bytes));
    }
    // Advice: a system without transparent huge pages works all the same.
    madvise(data, bytes, MADV_HUGEPAGE);
    memory.data_ = data;
  } else {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory.data_ = std::aligned_alloc(kAlignment, rounded);
    if (memory.data_ == nullptr) {
      return errno_status(Code::resource_exhausted, fmt::format("allocating {} bytes of memory", bytes));
    }
    std::memset(memory.data_, 0, rounded);
  }
  memory.bytes_ = bytes;
  return memory;
}

void Memory::release() {
  if (data_ == nullptr) return;
  if (is_mapped(bytes_)) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
}

float* Scratch::get(size_t floats) {
  if (floats * sizeof(float) > memory_.bytes()) {
    // A quarter more than asked for: a batch that grows by a row a step does not allocate in every step.
    Result<Memory> larger = Memory::allocate((floats + floats / 4) * sizeof(float));
    if (!larger.ok()) throw std::bad_alloc();
    memory_ = std::move(larger).value();
  }
  return static_cast<float*>(memory_.data());
}

}  // namespace sluice::compute::cpu
