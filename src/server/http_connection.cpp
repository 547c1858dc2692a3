#include "server/http_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>

#include "base/log.h"

namespace sluice::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kKeptCapacity = 16384;      // of buffers between requests
constexpr size_t kMaxDiscarded = 64u << 20;  // of what a refused client goes on sending
constexpr size_t kMaxRequestId = 128;

std::string_view reason(int status) {
  return {http::obsolete_reason(static_cast<http::status>(status)).data(),
          http::obsolete_reason(static_cast<http::status>(status)).size()};
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return result;
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

// The path and query of a target in origin form, or in the absolute form that proxies use.
void split_target(std::string_view target, HttpRequest& request) {
  if (const size_t scheme = target.find("://"); scheme != target.npos && target[0] != '/') {
    const size_t path = target.find('/', scheme + 3);
    target = path == target.npos ? "/" : target.substr(path);
  }
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != target.npos) request.query = target.substr(question + 1);
}

class ConnectionResponder : public Responder {
 public:
  ConnectionResponder(std::weak_ptr<Connection> connection, uint64_t ordinal)
      : connection_(std::move(connection)), ordinal_(ordinal) {}
  ~ConnectionResponder() override {
    if (auto connection = connection_.lock()) connection->abandoned(ordinal_);
  }

  void reply(HttpReply reply) override {
    if (auto connection = connection_.lock()) connection->reply(ordinal_, std::move(reply));
  }
  void begin_stream(std::string_view content_type, const Headers& headers) override {
    if (auto connection = connection_.lock()) connection->begin_stream(ordinal_, content_type, headers);
  }
  void write(std::string_view piece) override {
    if (auto connection = connection_.lock()) connection->write(ordinal_, piece);
  }
  void end_stream() override {
    if (auto connection = connection_.lock()) connection->end_stream(ordinal_);
  }
  void on_disconnect(std::function<void()> callback) override {
    if (auto connection = connection_.lock()) connection->on_disconnect(ordinal_, std::move(callback));
  }

 private:
  std::weak_ptr<Connection> connection_;
  uint64_t ordinal_;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

Connection::Connection(asio::ip::tcp::socket socket, ConnectionHost& host)
    : socket_(std::move(socket)), host_(host) {
  ErrorCode ignored;
  const auto endpoint = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

void Connection::start() {
  begin_request();
  read();
}

// ---- reading

void Connection::begin_request() {
  state_ = State::reading;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(host_.options().max_head_bytes));
  parser_->body_limit(host_.options().max_body_bytes);
  started_ = false;
  head_done_ = false;
  streaming_ = false;
  http_1_0_ = false;
  is_head_ = false;
  status_ = 0;
  ++ordinal_;
  request_ = {};
  deadline_ = now() + host_.options().idle_timeout;
}

void Connection::read() {
  if (reading_ || end_of_input_ || state_ == State::closed) return;
  if (state_ != State::reading && state_ != State::lingering &&
      input_.size() >= host_.options().max_pipelined_bytes) {
    return;
  }
  reading_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     [self = shared_from_this()](ErrorCode error) { self->on_readable(error); });
}

void Connection::on_readable(ErrorCode error) {
  reading_ = false;
  if (state_ == State::closed) return;
  std::vector<char>& scratch = host_.scratch();
  const size_t bytes = error ? 0 : socket_.read_some(asio::buffer(scratch), error);
  if (error == asio::error::would_block) return read();
  if (error) return on_end_of_input();
  if (state_ == State::lingering) {
    discarded_ += bytes;
    if (discarded_ > kMaxDiscarded) return close();
    return read();
  }
  input_.append(scratch.data(), bytes);
  if (state_ == State::reading) parse();
  read();
}

// A client that closes its sending side while it waits for an answer counts as gone, as in most servers: it
// cannot be told from one that has died. What was already answered is still delivered.
void Connection::on_end_of_input() {
  end_of_input_ = true;
  if (state_ == State::handling) return drop("the client left");
  if (state_ == State::finishing) return;
  close();
}

void Connection::parse() {
  size_t used = 0;
  while (state_ == State::reading && used < input_.size()) {
    if (!started_) {
      started_ = true;
      request_began_ = now();
      deadline_ = request_began_ + host_.options().head_timeout;
    }
    ErrorCode error;
    used += parser_->put(asio::buffer(input_.data() + used, input_.size() - used), error);
    if (error && error != http::error::need_more) return refuse_malformed(error);
    if (!head_done_ && parser_->is_header_done() && !on_head()) break;
    if (parser_->is_done()) {
      input_.erase(0, used);
      return dispatch();
    }
    if (error == http::error::need_more) break;
  }
  input_.erase(0, std::min(used, input_.size()));
}

HttpRequest Connection::take_head() {
  const auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.peer = peer_;
  request.has_body = !parser_->is_done();
  split_target({message.target().data(), message.target().size()}, request);
  for (const auto& field : message.base()) {
    request.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  }
  const std::string_view id = request.header("x-request-id");
  request.id =
      !id.empty() && id.size() <= kMaxRequestId && printable(id) ? std::string(id) : host_.draw_request_id();
  return request;
}

// False when the request was refused.
bool Connection::on_head() {
  head_done_ = true;
  deadline_ = now() + host_.options().body_timeout;
  http_1_0_ = parser_->get().version() == 10;
  keep_alive_ = parser_->get().keep_alive() && !host_.draining();
  is_head_ = parser_->get().method() == http::verb::head;
  request_ = take_head();
  HttpHandler& handler = host_.handler();
  if (!http_1_0_ && request_.header("host").empty()) {
    request_.has_body = true;
    refuse(handler.protocol_error(400, "the request has no Host header, which HTTP/1.1 asks for"));
    return false;
  }
  const std::string coding = lower(request_.header("transfer-encoding"));
  if (!coding.empty() && coding != "chunked") {
    request_.has_body = true;
    refuse(handler.protocol_error(
        501, fmt::format("the header Transfer-Encoding has the value '{}', only chunked is known", coding)));
    return false;
  }
  if (auto reply = handler.refuse(request_)) {
    refuse(*std::move(reply));
    return false;
  }
  const std::string_view expect = request_.header("expect");
  if (expect.empty() || http_1_0_) return true;
  if (lower(expect) != "100-continue") {
    refuse(handler.protocol_error(
        417, fmt::format("the header Expect has the value '{}', only 100-continue is known", expect)));
    return false;
  }
  if (request_.has_body) {
    unsent_ += "HTTP/1.1 100 Continue\r\n\r\n";
    send_queued();
  }
  return true;
}

void Connection::dispatch() {
  state_ = State::handling;
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  const uint64_t ordinal = ordinal_;
  HttpRequest request = request_;
  request.body = std::move(request_.body);
  request_.headers.clear();
  auto responder = std::make_shared<ConnectionResponder>(weak_from_this(), ordinal);
  try {
    host_.handler().handle(std::move(request), responder);
  } catch (const std::exception& error) {
    log::error("request {}: {}", request_.id, error.what());
    reply(ordinal, host_.handler().protocol_error(500, "the server failed on this request"));
  }
}

// Refused before its body was read: when there is one, what follows cannot be told from a new request, so the
// connection ends with this reply.
void Connection::refuse(HttpReply refusal) {
  if (request_.has_body) keep_alive_ = false;
  state_ = State::handling;
  reply(ordinal_, std::move(refusal));
}

void Connection::refuse_malformed(ErrorCode error) {
  int status = 400;
  std::string message = fmt::format("not a proper HTTP/1.1 request: {}", error.message());
  if (error == http::error::header_limit) {
    status = 431;
    message = fmt::format("the request's head is larger than the limit of {} bytes",
                          host_.options().max_head_bytes);
  } else if (error == http::error::body_limit) {
    status = 413;
    message = fmt::format("the request's body is larger than the limit of {} bytes",
                          host_.options().max_body_bytes);
  } else if (error == http::error::bad_version) {
    status = 505;
    message = "only HTTP/1.0 and HTTP/1.1 are spoken here";
  }
  if (request_.id.empty()) request_.id = host_.draw_request_id();
  request_.peer = peer_;
  request_.has_body = true;
  refuse(host_.handler().protocol_error(status, std::move(message)));
}

// ---- replying

void Connection::queue_head(const HttpReply& reply, std::optional<size_t> length) {
  status_ = reply.status;
  std::string head;
  auto out = std::back_inserter(head);
  fmt::format_to(out, "HTTP/1.{} {} {}\r\nDate: {}\r\nx-request-id: {}\r\n", http_1_0_ ? 0 : 1, reply.status,
                 reason(reply.status), host_.date(), request_.id);
  if (!reply.content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", reply.content_type);
  for (const auto& [name, value] : reply.headers) fmt::format_to(out, "{}: {}\r\n", name, value);
  if (length) {
    fmt::format_to(out, "Content-Length: {}\r\n", *length);
  } else if (http_1_0_) {
    keep_alive_ = false;
  } else {
    head += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_alive_) {
    head += "Connection: close\r\n";
  } else if (http_1_0_) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  unsent_ += head;
}

void Connection::reply(uint64_t ordinal, HttpReply reply) {
  if (!current(ordinal) || streaming_) return;
  if (host_.draining()) keep_alive_ = false;
  queue_head(reply, reply.body.size());
  if (!is_head_) unsent_ += reply.body;
  complete();
}

void Connection::begin_stream(uint64_t ordinal, std::string_view content_type, const Headers& headers) {
  if (!current(ordinal) || streaming_) return;
  streaming_ = true;
  HttpReply reply{.status = 200, .content_type = std::string(content_type), .body = {}, .headers = headers};
  queue_head(reply, std::nullopt);
}

void Connection::write(uint64_t ordinal, std::string_view piece) {
  if (!current(ordinal) || !streaming_ || piece.empty()) return;
  auto out = std::back_inserter(unsent_);
  if (!http_1_0_) fmt::format_to(out, "{:x}\r\n", piece.size());
  unsent_ += piece;
  if (!http_1_0_) unsent_ += "\r\n";
  send_queued();
  const size_t waiting = unsent_.size() + sending_.size() - sent_;
  if (waiting > host_.options().max_unsent_bytes) {
    log::warning("request {}: the client reads too slowly: {} bytes wait for it, the limit is {}; cut off",
                 request_.id, waiting, host_.options().max_unsent_bytes);
    drop("the client reads too slowly");
  }
}

void Connection::end_stream(uint64_t ordinal) {
  if (!current(ordinal) || !streaming_) return;
  if (host_.draining()) keep_alive_ = false;
  if (!http_1_0_) unsent_ += "0\r\n\r\n";
  complete();
}

void Connection::on_disconnect(uint64_t ordinal, std::function<void()> callback) {
  if (current(ordinal)) disconnected_ = std::move(callback);
}

// The handler let go of the request without an answer.
void Connection::abandoned(uint64_t ordinal) {
  if (!current(ordinal)) return;
  if (streaming_) return drop("the stream was abandoned");
  reply(ordinal, host_.handler().protocol_error(500, "the server gave no answer to this request"));
}

void Connection::complete() {
  disconnected_ = nullptr;
  state_ = State::finishing;
  send_queued();
  if (!write_in_flight_) flushed();  // the end of an HTTP/1.0 stream has no bytes of its own
}

void Connection::send_queued() {
  if (write_in_flight_ || unsent_.empty()) return;
  last_progress_ = now();
  write_some();
}

void Connection::write_some() {
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    if (sending_.capacity() > kKeptCapacity) sending_.shrink_to_fit();
    sending_.swap(unsent_);
  }
  write_in_flight_ = true;
  socket_.async_write_some(
      asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->on_written(error, bytes); });
}

void Connection::on_written(ErrorCode error, size_t bytes) {
  write_in_flight_ = false;
  if (state_ == State::closed) return;
  if (error) return drop("the client left");
  sent_ += bytes;
  last_progress_ = now();
  if (sent_ < sending_.size() || !unsent_.empty()) return write_some();
  sending_.clear();
  sent_ = 0;
  if (sending_.capacity() > kKeptCapacity) sending_.shrink_to_fit();
  if (state_ == State::finishing) flushed();
}

void Connection::flushed() {
  end_exchange(true);
  if (!keep_alive_ || host_.draining()) {
    linger();
  } else {
    begin_request();
    if (input_.empty() && input_.capacity() > kKeptCapacity) input_.shrink_to_fit();
    parse();
    if (end_of_input_ && state_ == State::reading) return close();
    read();
  }
  host_.request_done();
}

// ---- ending

void Connection::end_exchange(bool whole) {
  if (request_.id.empty()) return;
  HttpAccess access{.method = std::move(request_.method),
                    .path = std::move(request_.path),
                    .id = std::move(request_.id),
                    .peer = peer_,
                    .status = status_,
                    .complete = whole,
                    .duration = now() - request_began_};
  request_ = {};
  head_done_ = false;
  host_.handler().finished(access);
}

// A close while the client is still sending would reset the connection and could destroy the reply on its
// way; so the sending side closes first, and for a while what comes is read and thrown away.
void Connection::linger() {
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  if (end_of_input_) return close();
  state_ = State::lingering;
  deadline_ = now() + host_.options().linger_timeout;
  input_ = {};
  read();
}

// The current exchange cannot be completed.
void Connection::drop(const char* why) {
  if (state_ == State::closed) return;
  log::debug("request {}: {}", request_.id, why);
  const auto disconnected = std::exchange(disconnected_, nullptr);
  const bool cut = state_ == State::handling || state_ == State::finishing;
  close_socket(cut);
  if (cut) end_exchange(false);
  if (disconnected) disconnected();
  host_.request_done();
}

void Connection::close() {
  if (state_ == State::handling || state_ == State::finishing) return drop("the server closes");
  if (state_ == State::closed) return;
  close_socket(false);
  host_.request_done();
}

void Connection::close_socket(bool reset) {
  state_ = State::closed;
  ErrorCode ignored;
  // A reset frees what the kernel still holds for a client that does not read.
  if (reset) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
  unsent_ = {};
  host_.closed(*this);
}

bool Connection::peer_has_hung_up() {
  pollfd entry{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::tick(Nanos now) {
  if (write_in_flight_ && now > last_progress_ + host_.options().write_timeout) {
    return drop("the client has taken nothing for too long");
  }
  switch (state_) {
    case State::reading:
      if (now < deadline_) return;
      if (!started_) return close();
      if (request_.id.empty()) request_.id = host_.draw_request_id();
      request_.has_body = true;
      return refuse(host_.handler().protocol_error(408, head_done_
                                                            ? "the request's body did not come in time"
                                                            : "the request's head did not come in time"));
    case State::lingering:
      if (now >= deadline_) close();
      return;
    case State::handling:
      // No read is outstanding when the client has sent far ahead: its leaving shows only here.
      if (!reading_ && peer_has_hung_up()) drop("the client left");
      return;
    case State::finishing:
    case State::closed:
      return;
  }
}

}  // namespace sluice::server
