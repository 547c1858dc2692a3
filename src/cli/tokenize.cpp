// `sluice tokenize MODEL [TEXT]`: text to ids, or ids to text, with the checkpoint's own tokenizer.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "text/tokenizer.h"

namespace sluice::cli {
namespace {

struct Options {
  std::string model;
  std::string text;
  bool from_standard_input = true;
  bool decode = false;
  bool pieces = false;
  bool special_as_text = false;
};

// Ids between blanks or commas.
Result<std::vector<int32_t>> parse_ids(std::string_view text, int vocabulary) {
  constexpr std::string_view kSeparators = " \t\r\n,[]";
  std::vector<int32_t> ids;
  for (size_t at = text.find_first_not_of(kSeparators); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int32_t id = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), id);
    if (read.ec != std::errc() || read.ptr != word.data() + word.size() || id < 0 || id >= vocabulary) {
      return invalid_argument(
          fmt::format("'{}' is not a token id; this model has 0 to {}", word, vocabulary - 1));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

void print_ids(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool pieces) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (pieces) {
      fmt::print("{}\t{}\n", ids[i], tokenizer.decode({&ids[i], 1}, false));
    } else {
      fmt::print("{}{}", i == 0 ? "" : " ", ids[i]);
    }
  }
  if (!pieces) fmt::print("\n");
}

Status run(const Options& options) {
  const bool is_folder = std::filesystem::is_directory(options.model);
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<text::Tokenizer> tokenizer,
      text::Tokenizer::load(is_folder ? options.model + "/tokenizer.json" : options.model));
  std::string input = options.text;
  if (options.from_standard_input) {
    input.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  if (!options.decode) {
    print_ids(*tokenizer, tokenizer->encode(input, !options.special_as_text), options.pieces);
    return {};
  }
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, parse_ids(input, tokenizer->vocab_size()));
  if (options.pieces) {
    print_ids(*tokenizer, ids, true);
  } else {
    fmt::print("{}", tokenizer->decode(ids, false));
  }
  return {};
}

}  // namespace

void add_tokenize(CLI::App& program, int& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("tokenize", "Show the token ids of a text, or the text of ids");
  command->add_option("MODEL", options->model, "a checkpoint's directory, or its tokenizer.json")->required();
  const CLI::Option* text = command->add_option(
      "TEXT", options->text, "the text, or with --decode the ids; without it, standard input");
  command->add_flag("--decode", options->decode, "turn ids (with blanks or commas between) into text");
  command->add_flag("--pieces", options->pieces, "one token a line: its id and its text");
  command->add_flag("--special-as-text", options->special_as_text,
                    "encode special tokens such as <|im_end|> letter by letter");
  command->callback([options, text, &status] {
    options->from_standard_input = text->count() == 0;
    const Status done = run(*options);
    if (!done.ok()) fmt::print(stderr, "sluice tokenize: {}\n", done.message());
    status = done.ok() ? 0 : 1;
  });
}

}  // namespace sluice::cli
