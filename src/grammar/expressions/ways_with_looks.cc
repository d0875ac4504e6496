// Ways whose free edges may stand under conditions on the text so far or on the rest. What is asked of the rest goes
// along as a duty, a place in the automaton of the condition, which must accept where the text ends; the automata of
// conditions on the text so far run from its beginning.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "grammar/expressions/ways.h"

namespace fathom::grammar {
namespace {

constexpr int32_t kNoState = -1;
constexpr char32_t kTextEnd = 0x110000;

using Duties =
    std::vector<std::pair<int32_t, int32_t>>;  // the condition and the place in it, sorted

struct Way {
  int32_t state = 0;
  Duties duties = {};
  friend auto operator<=>(const Way&, const Way&) = default;
};

struct Place {
  std::vector<Way> ways;        // sorted
  std::vector<int32_t> behind;  // [conditions]; kNoState as well for those on the rest
  friend auto operator<=>(const Place&, const Place&) = default;
};

int32_t next_of(const TextSet& set, int32_t state, char32_t c) {
  if (state == kNoState) return kNoState;
  const std::vector<TextSet::Edge>& edges = set.states[static_cast<size_t>(state)].edges;
  const auto found =
      std::lower_bound(edges.begin(), edges.end(), c,
                       [](const TextSet::Edge& edge, char32_t x) { return edge.last < x; });
  return found == edges.end() || found->first > c ? kNoState : found->target;
}

bool accepts(const TextSet& set, int32_t state) {
  return state != kNoState && set.states[static_cast<size_t>(state)].accepting;
}

// Whether every text is accepted from here on.
bool is_free(const TextSet& set, int32_t state) {
  const TextSet::State& one = set.states[static_cast<size_t>(state)];
  char32_t next = 0;
  for (const TextSet::Edge& edge : one.edges) {
    if (edge.target != state || (edge.first != next && edge.first != 0xE000)) return false;
    next = edge.last + 1;
  }
  return one.accepting && next == kTextEnd;
}

class LookSearch {
 public:
  LookSearch(const Ways& ways, int32_t end, Budget& budget)
      : ways_(ways), end_(end), budget_(budget) {}

  std::optional<TextSet> merged() {
    find_classes();
    Place start;
    for (const Ways::Condition& condition : ways_.conditions())
      start.behind.push_back(condition.is_behind ? 0 : kNoState);
    start.ways = closed({Way{}}, start.behind);
    state_of(std::move(start));
    for (size_t i = 0; i < places_.size(); ++i) {
      if (result_.states.size() > kMaxTextStates || !budget_.ok()) return std::nullopt;
      follow(i);
    }
    if (!budget_.ok()) return std::nullopt;
    return without_dead_ends(std::move(result_));
  }

 private:
  // Characters between which no edge tells a difference: one of each, and where they are.
  struct Class {
    char32_t sample;
    std::vector<CodePointRange> ranges;
  };

  void find_classes() {
    std::vector<std::tuple<char32_t, char32_t, int>>
        edges;  // first, last, number of the set of characters
    std::map<std::pair<int32_t, int32_t>, int> numbers;  // by where an edge is
    int32_t owner = 0;
    const auto add = [&](char32_t first, char32_t last, int32_t from, int32_t target) {
      const auto number = static_cast<int>(numbers.size());
      edges.emplace_back(first, last, numbers.try_emplace({from, target}, number).first->second);
      budget_.charge(16);
    };
    for (int32_t i = 0; i < ways_.size(); ++i, ++owner) {
      for (const Ways::Edge& edge : ways_.state(i).edges)
        add(edge.range.first, edge.range.last, owner, edge.target);
    }
    for (const Ways::Condition& condition : ways_.conditions()) {
      for (const TextSet::State& state : condition.set.states) {
        for (const TextSet::Edge& edge : state.edges)
          add(edge.first, edge.last, owner, edge.target);
        ++owner;
      }
    }
    std::vector<std::pair<char32_t, int>> events;  // where a set begins (+) or has ended (-)
    for (const auto& [first, last, number] : edges) {
      events.emplace_back(first, number + 1);
      events.emplace_back(last + 1, -number - 1);
    }
    std::sort(events.begin(), events.end());
    std::map<std::set<int>, size_t> known;
    std::map<int, int> counts;  // ranges of one set may overlap
    std::set<int> open;
    for (size_t i = 0;
         i < events.size() && budget_.charge(8 + static_cast<int64_t>(open.size()));) {
      const char32_t first = events[i].first;
      // Ends come first as they are smaller, so that a set that goes on stays.
      for (; i < events.size() && events[i].first == first; ++i) {
        const int number = std::abs(events[i].second);
        int& count = counts[number];
        count += events[i].second < 0 ? -1 : 1;
        if (count == 0) open.erase(number);
        if (count > 0) open.insert(number);
      }
      if (open.empty() || i == events.size()) continue;
      const auto [entry, is_new] = known.try_emplace(open, classes_.size());
      if (is_new) classes_.push_back({first, {}});
      classes_[entry->second].ranges.push_back({first, events[i].first - 1});
    }
  }

  // With all that is reached without reading. Of ways to one state, one whose duties another one has too makes that
  // other one needless.
  std::vector<Way> closed(std::vector<Way> pending, const std::vector<int32_t>& behind) {
    std::set<Way> seen;
    while (!pending.empty() && budget_.charge(32)) {
      Way way = std::move(pending.back());
      pending.pop_back();
      if (!seen.insert(way).second) continue;
      const Ways::State& state = ways_.state(way.state);
      for (const int32_t target : state.free) pending.push_back({target, way.duties});
      for (const Ways::LookEdge& look : state.looks) {
        const Ways::Condition& condition = ways_.conditions()[static_cast<size_t>(look.look)];
        if (!condition.is_behind) {
          Way next = {look.target, way.duties};
          if (!is_empty(condition.set)) {
            add_duty(next.duties, look.look, 0);
            pending.push_back(std::move(next));
          }
        } else if (accepts(condition.set, behind[static_cast<size_t>(look.look)]) !=
                   condition.is_negated) {
          pending.push_back({look.target, way.duties});
        }
      }
    }
    std::vector<Way> ways;
    for (const Way& way : seen) {
      const bool is_needless = std::any_of(seen.begin(), seen.end(), [&](const Way& other) {
        return other.state == way.state && other.duties.size() < way.duties.size() &&
               std::includes(way.duties.begin(), way.duties.end(), other.duties.begin(),
                             other.duties.end());
      });
      budget_.charge(static_cast<int64_t>(seen.size()));
      if (!is_needless) ways.push_back(way);
    }
    return ways;
  }

  void add_duty(Duties& duties, int32_t look, int32_t state) const {
    if (is_free(ways_.conditions()[static_cast<size_t>(look)].set, state)) return;
    const std::pair<int32_t, int32_t> duty = {look, state};
    const auto place = std::lower_bound(duties.begin(), duties.end(), duty);
    if (place == duties.end() || *place != duty) duties.insert(place, duty);
  }

  int32_t state_of(Place place) {
    const auto [entry, is_new] =
        known_.try_emplace(place, static_cast<int32_t>(result_.states.size()));
    if (is_new) {
      result_.states.emplace_back().accepting = std::any_of(
          place.ways.begin(), place.ways.end(), [&](const Way& way) { return ends(way); });
      budget_.charge_memory(static_cast<int64_t>(place.ways.size()) * 96 + 128);
      places_.push_back(std::move(place));
    }
    return entry->second;
  }

  bool ends(const Way& way) const {
    return way.state == end_ &&
           std::all_of(way.duties.begin(), way.duties.end(), [&](const auto& duty) {
             return accepts(ways_.conditions()[static_cast<size_t>(duty.first)].set, duty.second);
           });
  }

  void follow(size_t from) {
    std::map<char32_t, TextSet::Edge> edges;  // by their beginning
    for (const Class& one : classes_) {
      if (!budget_.charge(64)) return;
      Place next = step(places_[from], one.sample);
      if (next.ways.empty()) continue;
      const int32_t target = state_of(std::move(next));
      for (const CodePointRange& range : one.ranges)
        edges[range.first] = {range.first, range.last, target};
    }
    for (const auto& [first, edge] : edges) append_edge(result_.states[from], edge);
  }

  Place step(const Place& place, char32_t c) {
    Place next;
    for (size_t i = 0; i < place.behind.size(); ++i)
      next.behind.push_back(next_of(ways_.conditions()[i].set, place.behind[i], c));
    std::vector<Way> reached;
    for (const Way& way : place.ways) {
      if (!budget_.charge(16)) break;
      std::optional<Duties> duties = kept(way.duties, c);
      for (const Ways::Edge& edge : ways_.state(way.state).edges) {
        if (duties && edge.range.first <= c && c <= edge.range.last)
          reached.push_back({edge.target, *duties});
      }
    }
    next.ways = closed(std::move(reached), next.behind);
    return next;
  }

  // The duties behind the character; nullopt: one cannot be kept.
  std::optional<Duties> kept(const Duties& duties, char32_t c) const {
    Duties result;
    for (const auto& [look, state] : duties) {
      const int32_t next = next_of(ways_.conditions()[static_cast<size_t>(look)].set, state, c);
      if (next == kNoState) return std::nullopt;
      add_duty(result, look, next);
    }
    return result;
  }

  const Ways& ways_;
  const int32_t end_;
  Budget& budget_;
  std::vector<Class> classes_;
  std::map<Place, int32_t> known_;
  std::vector<Place> places_;
  TextSet result_;
};

}  // namespace

std::optional<TextSet> merged_with_looks(const Ways& ways, int32_t end, Budget& budget) {
  return LookSearch(ways, end, budget).merged();
}

}  // namespace fathom::grammar
