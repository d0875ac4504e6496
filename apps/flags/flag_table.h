#pragma once
// A flag as one row of a table: from it come the parser's option and what the settings tell of it.
//
//   const FlagTable<AddressFlags>& address_flags() {
//     static const FlagTable<AddressFlags> table(
//         "Address", {{"--port", &AddressFlags::port, "Port to listen on", {.type = "PORT"}}});
//     return table;
//   }
//   address_flags().add_to(app, flags);        // --port, below "Address" in the help
//   address_flags().show(flags, settings);     // settings["port"] = 30000
//
// Tables are made once and only read: thread-safe. A struct that is given to add_to() must outlive the parse.

#include <CLI/App.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "base/log.h"

namespace fathom::apps {

// Where the value of a flag is told.
enum class Shown {
  kToClients,   // /server_info and the log
  kInLog,       // the log alone: it names what is on the host
  kCountInLog,  // the log alone, and only how many there are: they are secret
  kElsewhere,   // by the command itself; the row says by what
};

template <class T>
json::Value setting_of(const T& value) {
  return json::Value(value);
}
template <class T>
json::Value setting_of(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value("auto");
}

// A range lets "nan" pass, of which no comparison holds.
inline CLI::Validator finite_number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value);  // else it stays 0
        return std::isfinite(value) ? std::string() : text + " is no finite number";
      },
      "");
}

// The member of `Flags` that a flag fills: a bool is a switch, all else an option with a value.
template <class Flags>
struct FlagMember {
  using Add = std::function<CLI::Option*(CLI::App&, const std::string& names, Flags& flags,
                                         const std::string& help)>;
  using Value = std::function<json::Value(const Flags&)>;

  template <class T>
  FlagMember(T Flags::*member)
      : add([member](CLI::App& app, const std::string& names, Flags& flags,
                     const std::string& help) {
          if constexpr (std::is_same_v<T, bool>) {
            return app.add_flag(names, flags.*member, help);
          } else {
            CLI::Option* const option = app.add_option(names, flags.*member, help);
            if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
              option->check(finite_number());
            return option;
          }
        }),
        value([member](const Flags& flags) { return setting_of(flags.*member); }) {}
  // One that is added, or read, in a way of its own.
  FlagMember(Add add, Value value) : add(std::move(add)), value(std::move(value)) {}

  Add add;
  Value value;
};

// What most flags need only some of.
template <class Flags>
struct FlagForm {
  const char* type = nullptr;  // what the help calls the value; a switch has none
  std::optional<CLI::Validator> check = {};
  const char* default_text = nullptr;                          // none: the member's value
  std::function<void(CLI::Option&, Flags&)> parse_rules = {};  // what else the parser is told
  Shown shown = Shown::kToClients;
  const char* key = nullptr;                              // none: the flag's first long name
  std::function<json::Value(const Flags&)> setting = {};  // what clients see; none: the value
  const char* told_by = nullptr;                          // of Shown::kElsewhere
};

template <class Flags>
struct FlagRow {
  std::string names;  // as the parser reads them: "-m,--model-path", "--x,!--no-x"
  FlagMember<Flags> member;
  std::string help;
  FlagForm<Flags> form = {};

  // "--model-path"
  std::string long_name() const {
    const size_t begin = names.find("--");
    return names.substr(begin, names.find(',', begin) - begin);
  }
  // "model_path"
  std::string key() const {
    std::string key = long_name().substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    return key;
  }
};

template <class Flags>
class FlagTable {
 public:
  FlagTable(std::string group, std::initializer_list<FlagRow<Flags>> rows)
      : group_(std::move(group)), rows_(rows) {}

  const std::vector<FlagRow<Flags>>& rows() const { return rows_; }

  void add_to(CLI::App& app, Flags& flags) const {
    for (const FlagRow<Flags>& row : rows_) {
      CLI::Option* const option = row.member.add(app, row.names, flags, row.help);
      option->group(group_);
      const FlagForm<Flags>& form = row.form;
      if (form.check) option->check(*form.check);
      if (form.type != nullptr) option->type_name(form.type);
      if (form.default_text != nullptr) option->default_str(form.default_text);
      if (form.parse_rules) form.parse_rules(*option, flags);
    }
  }

  // What clients may see. A flag that only the log shows may tell them something else under a key of its own.
  void show(const Flags& flags, json::Value& settings) const {
    for (const FlagRow<Flags>& row : rows_) {
      const FlagForm<Flags>& form = row.form;
      if (form.shown != Shown::kToClients && !form.setting) continue;
      settings[form.key != nullptr ? form.key : row.key()] =
          form.setting ? form.setting(flags) : row.member.value(flags);
    }
  }

  // What the log shows besides. REQUIRES: a flag that only the log shows has text as its value.
  void log(const Flags& flags, std::vector<LogField>& fields) const {
    for (const FlagRow<Flags>& row : rows_) {
      const json::Value value = row.member.value(flags);
      if (row.form.shown == Shown::kCountInLog) fields.emplace_back(row.key(), value.size());
      if (row.form.shown == Shown::kInLog)
        fields.emplace_back(row.key(), value.template get<std::string>());
    }
  }

 private:
  std::string group_;
  std::vector<FlagRow<Flags>> rows_;
};

}  // namespace fathom::apps
