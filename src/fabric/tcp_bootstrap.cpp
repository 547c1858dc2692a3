#include "fabric/tcp_bootstrap.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

namespace sluice::fabric {
namespace {

constexpr std::string_view kGreeting = "sluice-bootstrap-1";
constexpr size_t kMostValue = 64 << 20;
constexpr Nanos kReplyTime = seconds(10);

// A message is a list of strings: each a decimal length, ':' and so many bytes.
std::string pack(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) {
    text += std::to_string(field.size());
    text += ':';
    text += field;
  }
  return text;
}

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<std::string>> unpack(std::string_view text) {
  std::vector<std::string> fields;
  while (!text.empty()) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto size = to_number(text.substr(0, colon));
    text.remove_prefix(colon + 1);
    if (!size || *size < 0 || static_cast<uint64_t>(*size) > text.size()) return std::nullopt;
    fields.emplace_back(text.substr(0, static_cast<size_t>(*size)));
    text.remove_prefix(static_cast<size_t>(*size));
  }
  return fields;
}

// One connected rank, as the server sees it.
struct Guest {
  UniqueFd fd;
  int rank = -1;  // until it has introduced itself
  std::string input;
  // The gather that it waits in.
  bool waiting = false;
  std::string name;
  std::string value;
  Nanos deadline = 0;
  Nanos since = 0;
};

class Meeting {
 public:
  Meeting(UniqueFd listener, int ranks, int stop)
      : listener_(std::move(listener)), ranks_(ranks), stop_(stop) {}

  void run() {
    while (true) {
      std::vector<pollfd> entries{{stop_, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Guest& guest : guests_) entries.push_back({guest.fd.get(), POLLIN, 0});
      ::poll(entries.data(), entries.size(), timeout());
      if (entries[0].revents != 0) return;
      for (size_t i = 2; i < entries.size(); ++i) {
        if (entries[i].revents != 0) read(guests_[i - 2]);
      }
      std::erase_if(guests_, [](const Guest& guest) { return !guest.fd; });
      if (entries[1].revents != 0) admit();
      settle();
    }
  }

 private:
  int timeout() const {
    Nanos first = now() + seconds(60);
    for (const Guest& guest : guests_) {
      if (guest.waiting) first = std::min(first, guest.deadline);
    }
    return static_cast<int>(std::max<Nanos>(0, first - now()) / milliseconds(1)) + 1;
  }

  void admit() {
    auto fd = accept_connection(listener_, Deadline::after(0));
    if (!fd.ok()) return;
    guests_.emplace_back();
    guests_.back().fd = std::move(*fd);
  }

  void read(Guest& guest) {
    char bytes[65536];
    const ssize_t count = ::recv(guest.fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return leave(guest);
    guest.input.append(bytes, static_cast<size_t>(count));
    uint32_t size = 0;
    if (guest.input.size() < sizeof(size)) return;
    std::memcpy(&size, guest.input.data(), sizeof(size));
    size = __builtin_bswap32(size);
    if (size > kMostValue) return leave(guest);
    if (guest.input.size() < sizeof(size) + size) return;
    const auto fields = unpack(std::string_view(guest.input).substr(sizeof(size), size));
    guest.input.erase(0, sizeof(size) + size);
    if (!fields) return leave(guest);
    guest.rank < 0 ? introduce(guest, *fields) : visit(guest, *fields);
  }

  void leave(Guest& guest) {
    guest.fd.reset();
    if (guest.rank >= 0) gone_.push_back(guest.rank);
  }

  void refuse(Guest& guest, const std::string& why) {
    (void)send_frame(guest.fd.get(), pack({"-", why}), Deadline::after(kReplyTime));
    guest.fd.reset();
  }

  void introduce(Guest& guest, const std::vector<std::string>& fields) {
    if (fields.size() != 3 || fields[0] != kGreeting) {
      return refuse(guest, fmt::format("this port speaks '{}', not '{}'", kGreeting,
                                       fields.empty() ? std::string() : fields[0].substr(0, 40)));
    }
    const int64_t rank = to_number(fields[1]).value_or(-1);
    const int64_t ranks = to_number(fields[2]).value_or(-1);
    if (ranks != ranks_) {
      return refuse(guest, fmt::format("rank {} was started for {} ranks, the first node for {} "
                                       "(--data-parallel-size must be equal everywhere)",
                                       rank, ranks, ranks_));
    }
    if (rank < 0 || rank >= ranks_)
      return refuse(guest, fmt::format("rank {} is not below {}", rank, ranks_));
    for (const Guest& other : guests_) {
      if (other.rank == rank && other.fd) {
        return refuse(guest, fmt::format("rank {} is here already: two nodes were started with the same "
                                         "--data-parallel-start-rank",
                                         rank));
      }
    }
    guest.rank = static_cast<int>(rank);
    std::erase(gone_, guest.rank);
    (void)send_frame(guest.fd.get(), pack({"+"}), Deadline::after(kReplyTime));
  }

  void visit(Guest& guest, const std::vector<std::string>& fields) {
    if (fields.size() != 3 || guest.waiting) return leave(guest);
    guest.waiting = true;
    guest.name = fields[0];
    guest.since = now();
    guest.deadline = guest.since + to_number(fields[1]).value_or(0);
    guest.value = fields[2];
  }

  // Answers what can be answered: a full round, or one that cannot become full.
  void settle() {
    std::vector<Guest*> present(static_cast<size_t>(ranks_));
    Guest* first = nullptr;
    bool late = false;
    if (!out_of_step_.empty()) return fail(out_of_step_);
    for (Guest& guest : guests_) {
      if (!guest.waiting) continue;
      present[static_cast<size_t>(guest.rank)] = &guest;
      if (first == nullptr) first = &guest;
      if (guest.name != first->name) {
        out_of_step_ = fmt::format(
            "rank {} gathers '{}' while rank {} gathers '{}': the ranks' calls must come in the same order",
            guest.rank, guest.name, first->rank, first->name);
        return fail(out_of_step_);
      }
      late |= guest.deadline <= now();
    }
    if (first == nullptr) return;
    std::vector<int> missing;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (present[static_cast<size_t>(rank)] == nullptr) missing.push_back(rank);
    }
    if (missing.empty()) return answer(present);
    for (const int rank : missing) {
      if (std::find(gone_.begin(), gone_.end(), rank) != gone_.end()) {
        return fail(fmt::format("rank {} went away before '{}'", rank, first->name));
      }
    }
    if (late) {
      fail(fmt::format("rank{} {} {} missing from '{}' after {} ms", missing.size() == 1 ? "" : "s",
                       fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are", first->name,
                       (now() - first->since) / milliseconds(1)));
    }
  }

  void answer(const std::vector<Guest*>& present) {
    std::vector<std::string> reply{"+"};
    for (Guest* guest : present) reply.push_back(std::move(guest->value));
    send_to_waiting(pack(reply));
  }

  void fail(const std::string& why) { send_to_waiting(pack({"-", why})); }

  void send_to_waiting(const std::string& reply) {
    for (Guest& guest : guests_) {
      if (!guest.waiting) continue;
      guest.waiting = false;
      (void)send_frame(guest.fd.get(), reply, Deadline::after(kReplyTime));
    }
  }

  UniqueFd listener_;
  const int ranks_;
  const int stop_;
  std::vector<Guest> guests_;
  std::vector<int> gone_;
  std::string out_of_step_;  // once said, the answer to everybody: no later round could be matched
};

class TcpBootstrap final : public Bootstrap {
 public:
  explicit TcpBootstrap(UniqueFd fd) : fd_(std::move(fd)) {}

  Result<std::vector<std::string>> all_gather(std::string_view name, std::string mine,
                                              Deadline deadline) override {
    const std::string patience = std::to_string(std::max<Nanos>(0, deadline.remaining()));
    SLUICE_RETURN_IF_ERROR(ask(name, pack({std::string(name), patience, std::move(mine)}), deadline));
    return std::move(reply_);
  }

  Status introduce(int rank, int ranks, Deadline deadline) {
    return ask("greeting", pack({std::string(kGreeting), std::to_string(rank), std::to_string(ranks)}),
               deadline);
  }

 private:
  Status ask(std::string_view name, const std::string& message, Deadline deadline) {
    SLUICE_RETURN_IF_ERROR(send_frame(fd_.get(), message, deadline).with_context("bootstrap"));
    // The server speaks when the time is up, and names who is missing: it gets a moment longer.
    auto frame = receive_frame(fd_.get(), kMostValue, Deadline::at(deadline.when() + seconds(2)));
    if (!frame.ok()) return frame.status().with_context(fmt::format("bootstrap '{}'", name));
    auto fields = unpack(*frame);
    if (!fields || fields->empty()) return data_loss("bootstrap: the server's answer is malformed");
    const bool good = fields->front() == "+";
    fields->erase(fields->begin());
    if (!good) return unavailable(fields->empty() ? "refused by the bootstrap server" : fields->front());
    reply_ = std::move(*fields);
    return {};
  }

  UniqueFd fd_;
  std::vector<std::string> reply_;
};

}  // namespace

BootstrapServer::BootstrapServer(UniqueFd listener, int ranks) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([listener = std::move(listener), ranks, stop = stop_.get()]() mutable {
    Meeting(std::move(listener), ranks, stop).run();
  });
}

BootstrapServer::~BootstrapServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

Result<std::unique_ptr<Bootstrap>> connect_bootstrap(const std::string& host, uint16_t port, int rank,
                                                     int ranks, Deadline deadline) {
  auto fd = connect_tcp(host, port, deadline);
  if (!fd.ok()) return fd.status().with_context(fmt::format("rank {} finds no bootstrap server", rank));
  auto bootstrap = std::make_unique<TcpBootstrap>(std::move(*fd));
  SLUICE_RETURN_IF_ERROR(bootstrap->introduce(rank, ranks, deadline));
  return std::unique_ptr<Bootstrap>(std::move(bootstrap));
}

}  // namespace sluice::fabric
