#pragma once
// CharRuns: which characters all lead a place on to one other, or back to itself, as in "[^:]{1,9}" all but the colon
// do. Texts of such characters fit there whatever they are, so a walk need not look at them one by one.
//
//   CharRuns runs(places);
//   if (runs.takes_all(place, characters, 5)) ...     // any text of up to 5 of these characters fits
//
// A lower bound: a place may take more. Used by one thread, with the places; remembers what it saw.

#include <cstdint>
#include <limits>
#include <vector>

#include "grammar/first_bytes.h"
#include "grammar/places.h"

namespace fathom::grammar {

class CharRuns {
 public:
  explicit CharRuns(Places& places) : places_(places) {}

  // The last character may lack its end. False also where to find out costs more than has been gained lately.
  bool takes_all(int32_t place, const FirstBytes& characters, int num_characters);
  // From here on nothing is found out once Places::work() is above this; what is known holds.
  void set_max_work(int64_t max_work) { max_work_ = max_work; }
  // So much work was not done since something takes all (Places::work()).
  void add_gain(int64_t work) { work_gained_ += work; }
  // Others ask what places do with all texts of some kind, too: their work counts as spent here.
  void add_cost(int64_t work) { work_spent_ += work; }
  bool is_too_costly() const;
  int64_t memory_bytes() const {
    return static_cast<int64_t>(ways_.capacity() * sizeof(Way) +
                                way_of_place_.capacity() * sizeof(int32_t));
  }

 private:
  // Where most letters and digits lead, and the characters that lead there, of those that were looked at. Characters of
  // more than one byte are looked at when they are asked for: they lead through places that nobody else comes to.
  struct Way {
    FirstBytes characters{}, looked_at{};
    int32_t target = Places::kNowhere;
  };
  // Null: too costly to find out.
  Way* way(int32_t place);
  Way find_way(int32_t place);
  bool all_lead_on(int32_t place, const FirstBytes& characters, Way& on);
  // Looks at all characters that begin with the byte, and with others that no edge tells apart from it.
  void look_at(int32_t place, uint8_t byte, Way& on);
  int32_t usual_target(int32_t place);
  // Whether whatever ends a character, of which num_left bytes are missing, the next from `first` to `last`, leads to
  // the target.
  bool all_lead(int32_t at, int num_left, uint8_t first, uint8_t last, int32_t target);

  struct Seen {
    int32_t at;
    int num_left;
    bool do_lead;
  };

  Places& places_;
  int64_t work_spent_ = 0, work_gained_ = 0;
  int64_t max_work_ = std::numeric_limits<int64_t>::max();
  std::vector<Way> ways_;
  std::vector<int32_t> way_of_place_;  // -1: not known
  int32_t seen_place_ = Places::kNowhere;
  std::vector<Seen> seen_;  // of look_at() for that place, where any continuation byte may follow
};

}  // namespace fathom::grammar
