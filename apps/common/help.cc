#include "apps/common/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "apps/common/command.h"

namespace fathom::apps {
namespace {

constexpr size_t kFlagColumn = 40, kTextWidth = 58;

// Words of `text` in lines of kTextWidth, the second and later ones indented to the text column.
std::string wrap(const std::string& text) {
  std::istringstream words(text);
  std::string out, word;
  size_t used = 0;
  while (words >> word) {
    if (used > 0 && used + 1 + word.size() > kTextWidth) {
      out += "\n" + std::string(kFlagColumn, ' ');
      used = 0;
    }
    if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
  return out;
}

// The type without the rule that a validator appends to it: "N:INT in [1 - 8]" -> "N".
std::string plain_type(std::string type) {
  for (const char* rule :
       {":{", ":INT in", ":UINT in", ":FLOAT in", ":NONNEGATIVE", ":POSITIVE", ":DIR"}) {
    type.resize(std::min(type.size(), type.find(rule)));
  }
  return type;
}

// "[1,8]" -> "1 8": lists are given as separate words.
std::string plain_default(std::string text) {
  if (text.size() < 2 || text.front() != '[') return text;
  text = text.substr(1, text.size() - 2);
  std::replace(text.begin(), text.end(), ',', ' ');
  return text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + plain_type(option->get_type_name());
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (option->get_required()) text += " (required)";
    const std::string fallback = plain_default(option->get_default_str());
    if (option->get_type_size() != 0 && !fallback.empty()) {
      text += " (default: " + fallback + ")";
    }
    return text;
  }

  // A switch and its negation, without what the parser notes behind the latter: "--no-x{false}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    constexpr std::string_view kNote = "{false}";
    if (name.ends_with(kNote)) name.resize(name.size() - kNote.size());
    return name;
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string left = "  " + make_option_name(option, is_positional) + make_option_opts(option);
    if (left.size() + 2 > kFlagColumn) {
      left += "\n" + std::string(kFlagColumn, ' ');
    } else {
      left.resize(kFlagColumn, ' ');
    }
    return left + wrap(make_option_desc(option)) + "\n";
  }
};

}  // namespace

void use_help_style(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(20);
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "Show this text");
}

void set_examples(CLI::App& app, std::initializer_list<const char*> lines) {
  std::string text = "Examples:";
  for (const char* line : lines) text += std::string("\n  ") + line;
  app.footer(text);
}

}  // namespace fathom::apps
