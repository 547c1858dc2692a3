#include "server/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

// Builds the document from the parser's events, so that limits hold while the body is read and not after.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(BodyLimits limits) : limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Json& object = *open_.back();
    if (object.size() >= static_cast<size_t>(limits_.keys)) {
      return refuse(fmt::format("an object has more than {} keys, the limit", limits_.keys));
    }
    slot_ = &object[std::move(name)];
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // The library's text is "[json.exception.parse_error.101] parse error at line 1, column 2: ...".
    std::string_view what = error.what();
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    return refuse(std::string(what));
  }

  Json& document() { return document_; }
  const std::string& error() const { return error_; }

 private:
  // Where the next value goes: a key's slot, the end of an array, or the document itself.
  template <class Value>
  Json* place(Value&& value) {
    if (open_.empty()) {
      document_ = Json(std::forward<Value>(value));
      return &document_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::forward<Value>(value));
    *slot_ = Json(std::forward<Value>(value));
    return slot_;
  }
  template <class Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }
  bool open(Json::value_t type) {
    if (static_cast<int>(open_.size()) >= limits_.depth) {
      return refuse(fmt::format("nested more than {} deep, the limit", limits_.depth));
    }
    open_.push_back(place(type));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  BodyLimits limits_;
  Json document_;
  std::vector<Json*> open_;  // the objects and arrays around the next value
  Json* slot_ = nullptr;
  std::string error_;
};

}  // namespace

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<Json> parse_body(std::string_view body, BodyLimits limits) {
  Builder builder(limits);
  if (!Json::sax_parse(body, &builder)) {
    return invalid_argument(fmt::format("the body is not valid JSON: {}", builder.error()));
  }
  return std::move(builder.document());
}

}  // namespace sluice::server
