// One client connection: reads requests one after another, also those sent ahead, and writes replies in the
// same order. It always has a read outstanding (unless the client is too far ahead), which is how it notices
// that a client has left. All of it runs on the io thread. Internal to the HTTP layer: this header includes
// Boost.
#pragma once

#include <utility>
// Asio wants <utility> first.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http_server.h"

namespace sluice::server {

class Connection;

// What a connection needs of its server.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpOptions& options() const = 0;
  virtual HttpHandler& handler() = 0;
  virtual bool draining() const = 0;
  virtual std::string_view date() = 0;  // for the Date header
  virtual std::string draw_request_id() = 0;
  virtual std::vector<char>& scratch() = 0;  // for one read at a time
  virtual void request_done() = 0;           // a connection has become idle or closed
  virtual void closed(Connection& connection) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionHost& host);

  void start();
  // Looks at the time-outs.
  void tick(Nanos now);
  // No request is being read or answered.
  bool idle() const { return state_ == State::reading && !started_; }
  // Accepted, or being answered: a drain waits for it.
  bool busy() const { return state_ == State::handling || state_ == State::finishing || head_done_; }
  void close();

  // For the responder of request number `ordinal`; ignored when that is not the current one.
  void reply(uint64_t ordinal, HttpReply reply);
  void begin_stream(uint64_t ordinal, std::string_view content_type, const Headers& headers);
  void write(uint64_t ordinal, std::string_view piece);
  void end_stream(uint64_t ordinal);
  void on_disconnect(uint64_t ordinal, std::function<void()> callback);
  void abandoned(uint64_t ordinal);

 private:
  using ErrorCode = boost::system::error_code;
  enum class State {
    reading,    // a request, or waiting for one
    handling,   // the handler has it
    finishing,  // the reply is complete and on its way out
    lingering,  // all is sent; what the client still sends is thrown away, so that it can read the reply
    closed,
  };

  void begin_request();
  void read();
  void on_readable(ErrorCode error);
  void on_end_of_input();
  void parse();
  bool on_head();
  HttpRequest take_head();
  void dispatch();
  void refuse(HttpReply reply);
  void refuse_malformed(ErrorCode error);

  bool current(uint64_t ordinal) const { return state_ == State::handling && ordinal == ordinal_; }
  void queue_head(const HttpReply& reply, std::optional<size_t> length);
  void send_queued();
  void complete();
  void write_some();
  void on_written(ErrorCode error, size_t bytes);
  void flushed();
  void linger();
  void drop(const char* why);
  void close_socket(bool reset);
  void end_exchange(bool whole);
  bool peer_has_hung_up();

  boost::asio::ip::tcp::socket socket_;
  ConnectionHost& host_;
  State state_ = State::reading;
  std::string peer_;

  std::string input_;  // read and not yet parsed
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  bool reading_ = false;       // waits for the socket to become readable
  bool end_of_input_ = false;  // the client will send no more
  bool started_ = false;       // the first byte of the request has come
  bool head_done_ = false;
  Nanos deadline_ = 0;

  uint64_t ordinal_ = 0;  // of the current request on this connection
  HttpRequest request_;   // the current one
  Nanos request_began_ = 0;
  int status_ = 0;
  bool http_1_0_ = false;
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool streaming_ = false;
  std::function<void()> disconnected_;

  std::string unsent_;   // queued behind `sending_`
  std::string sending_;  // being written, from sent_ on
  size_t sent_ = 0;
  bool write_in_flight_ = false;
  Nanos last_progress_ = 0;
  size_t discarded_ = 0;  // while lingering
};

}  // namespace sluice::server
