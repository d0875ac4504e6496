// Ranks as threads of a process: what their collectives give, of every type and kind of tensor, and how they end where
// a rank stays away or brings another collective.

#include "comm/thread_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

#include "cpu/reference/reference_backend.h"
#include "tests/sanitized.h"

namespace {

std::atomic<int64_t> num_allocations = 0;

[[maybe_unused]] void* counted(std::size_t bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// Of the whole test program: a collective may not allocate. A sanitizer has an allocator of its own.
#if !FATHOM_IS_SANITIZED
void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace fathom::comm {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F8E4M3;
using tensor::Tensor;

std::unique_ptr<ops::Stream> make_stream() { return cpu::reference_backend().make_stream({}); }

void on_every_rank(int size, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

template <class T>
T make(float value) {
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<int32_t>(value);
  else
    return tensor::from_float<T>(value);
}
template <class T>
float value_of(T element) {
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<float>(element);
  else
    return tensor::to_float(element);
}

// A tensor [a, b, c] in rows of c + 2 elements, so that it is strided, with 96 in the gaps.
template <class T>
class Strided {
 public:
  Strided(int64_t a, int64_t b, int64_t c) : a_(a), b_(b), c_(c) {
    data_.assign(static_cast<size_t>(a * b * (c + 2)), make<T>(96));
  }
  Tensor view() {
    return Tensor::contiguous(data_.data(), tensor::DTypeOf<T>::value, {a_, b_, c_ + 2})
        .slice(2, 0, c_);
  }
  T& at(int64_t i, int64_t j, int64_t k) {
    return data_[static_cast<size_t>((i * b_ + j) * (c_ + 2) + k)];
  }
  // f(i, j, k) of every element.
  void fill(const std::function<float(int64_t, int64_t, int64_t)>& f) {
    for_each([&](int64_t i, int64_t j, int64_t k) { at(i, j, k) = make<T>(f(i, j, k)); });
  }
  void expect(const std::function<float(int64_t, int64_t, int64_t)>& f) {
    for_each([&](int64_t i, int64_t j, int64_t k) {
      EXPECT_EQ(value_of(at(i, j, k)), f(i, j, k)) << i << " " << j << " " << k;
    });
    for (int64_t row = 0; row < a_ * b_; ++row)
      EXPECT_EQ(value_of(data_[static_cast<size_t>(row * (c_ + 2) + c_ + 1)]), 96) << "a gap";
  }

 private:
  void for_each(const std::function<void(int64_t, int64_t, int64_t)>& f) {
    for (int64_t i = 0; i < a_; ++i)
      for (int64_t j = 0; j < b_; ++j)
        for (int64_t k = 0; k < c_; ++k) f(i, j, k);
  }
  int64_t a_, b_, c_;
  std::vector<T> data_;
};

// Small whole numbers, which every type holds.
float element(int rank, int64_t i, int64_t j, int64_t k) {
  return static_cast<float>((rank * 5 + i * 3 + j * 2 + k) % 13);
}

template <class T>
void check_sums(int size) {
  ThreadRanks group("tp", size);
  on_every_rank(size, [&](int rank) {
    // One row, fewer elements than ranks, and more than a sum is made of at once.
    for (const int64_t rows : {1, 3})
      for (const int64_t columns : {1, 7, 3000}) {
        Strided<T> t(rows, 2, columns);
        t.fill([&](int64_t i, int64_t j, int64_t k) { return element(rank, i, j, k); });
        group.of(rank).all_reduce(t.view(), *make_stream());
        t.expect([&](int64_t i, int64_t j, int64_t k) {
          float sum = 0;
          for (int from = 0; from < size; ++from) sum += element(from, i, j, k);
          return sum;
        });
      }
  });
}

template <class T>
void check_gathers(int size) {
  ThreadRanks group("tp", size);
  on_every_rank(size, [&](int rank) {
    for (const int axis : {0, 1, 2}) {
      const int64_t length[] = {2, 3, 5};
      int64_t shape[] = {2, 3, 5};
      shape[axis] *= size;
      const auto owner = [&](int64_t i, int64_t j, int64_t k) {
        const int64_t at[] = {i, j, k};
        return static_cast<int>(at[axis] / length[axis]);
      };
      Strided<T> t(shape[0], shape[1], shape[2]);
      t.fill([&](int64_t i, int64_t j, int64_t k) {
        return owner(i, j, k) == rank ? element(rank, i, j, k) : 0.0f;
      });
      group.of(rank).all_gather(t.view(), axis, *make_stream());
      t.expect([&](int64_t i, int64_t j, int64_t k) { return element(owner(i, j, k), i, j, k); });
    }
  });
}

// Where the rows of `size` ranks begin: the first has none, and each of the others one more than the one before it.
std::vector<int64_t> unequal_starts(int size) {
  std::vector<int64_t> starts = {0, size == 1 ? 2 : 0};
  for (int rank = 1; rank < size; ++rank) starts.push_back(starts.back() + rank);
  return starts;
}

int owner_of_row(const std::vector<int64_t>& starts, int64_t row) {
  return static_cast<int>(std::upper_bound(starts.begin(), starts.end(), row) - starts.begin()) - 1;
}

template <class T>
void check_rows_gathered(int size) {
  ThreadRanks group("dp", size);
  const std::vector<int64_t> starts = unequal_starts(size);
  on_every_rank(size, [&](int rank) {
    Strided<T> t(starts.back(), 2, 5);
    t.fill([&](int64_t i, int64_t j, int64_t k) {
      return owner_of_row(starts, i) == rank ? element(rank, i, j, k) : 0.0f;
    });
    group.of(rank).all_gather_rows(t.view(), starts, *make_stream());
    t.expect(
        [&](int64_t i, int64_t j, int64_t k) { return element(owner_of_row(starts, i), i, j, k); });
  });
}

template <class T>
void check_rows_summed(int size) {
  ThreadRanks group("dp", size);
  const std::vector<int64_t> starts = unequal_starts(size);
  on_every_rank(size, [&](int rank) {
    Strided<T> t(starts.back(), 2, 1500);
    t.fill([&](int64_t i, int64_t j, int64_t k) { return element(rank, i, j, k); });
    group.of(rank).reduce_scatter_rows(t.view(), starts, *make_stream());
    t.expect([&](int64_t i, int64_t j, int64_t k) {
      if (owner_of_row(starts, i) != rank) return element(rank, i, j, k);
      float sum = 0;
      for (int from = 0; from < size; ++from) sum += element(from, i, j, k);
      return sum;
    });
  });
}

class ThreadRanksOf : public testing::TestWithParam<int> {};

TEST_P(ThreadRanksOf, gather_and_sum_the_rows_of_each_however_many_it_has) {
  check_rows_gathered<float>(GetParam());
  check_rows_gathered<Bf16>(GetParam());
  check_rows_gathered<F8E4M3>(GetParam());
  check_rows_summed<float>(GetParam());
  check_rows_summed<Bf16>(GetParam());
  check_rows_summed<int32_t>(GetParam());
}

TEST_P(ThreadRanksOf, sum_every_type_in_tensors_of_any_shape) {
  check_sums<float>(GetParam());
  check_sums<Bf16>(GetParam());
  check_sums<int32_t>(GetParam());
}

TEST_P(ThreadRanksOf, gather_every_type_along_every_axis) {
  check_gathers<float>(GetParam());
  check_gathers<Bf16>(GetParam());
  check_gathers<F8E4M3>(GetParam());
  check_gathers<int32_t>(GetParam());
}

// Neighbours first, then sums of neighbours.
template <class T>
T tree_of(std::vector<T> values) {
  for (size_t half = 1; half < values.size(); half *= 2)
    for (size_t i = 0; i + half < values.size(); i += 2 * half) {
      const float sum = tensor::to_float(values[i]) + tensor::to_float(values[i + half]);
      values[i] = tensor::from_float<T>(sum);
    }
  return values[0];
}

// Large and small numbers, so that another order gives other bits.
TEST_P(ThreadRanksOf, sum_in_a_tree_to_the_same_bits_everywhere) {
  const int size = GetParam();
  const auto value = [](int rank, int i) {
    return std::ldexp(1.0f + static_cast<float>(i % 7) / 8, (rank * 11 + i) % 40 - 20) *
           (rank % 2 == 0 ? 1.0f : -1.0f);
  };
  constexpr int kElements = 2500;
  ThreadRanks group("tp", size);
  on_every_rank(size, [&](int rank) {
    std::vector<float> f32(kElements);
    std::vector<Bf16> bf16(kElements);
    for (int i = 0; i < kElements; ++i) {
      f32[static_cast<size_t>(i)] = value(rank, i);
      bf16[static_cast<size_t>(i)] = tensor::from_float<Bf16>(value(rank, i));
    }
    group.of(rank).all_reduce(Tensor::contiguous(f32.data(), DType::kF32, {kElements}),
                              *make_stream());
    group.of(rank).all_reduce(Tensor::contiguous(bf16.data(), DType::kBf16, {1, kElements}),
                              *make_stream());
    for (int i = 0; i < kElements; ++i) {
      std::vector<float> values;
      std::vector<Bf16> rounded;
      for (int from = 0; from < size; ++from) {
        values.push_back(value(from, i));
        rounded.push_back(tensor::from_float<Bf16>(values.back()));
      }
      ASSERT_EQ(f32[static_cast<size_t>(i)], tree_of(values)) << i;
      ASSERT_EQ(tensor::to_float(bf16[static_cast<size_t>(i)]), tensor::to_float(tree_of(rounded)))
          << i;
    }
  });
}

TEST_P(ThreadRanksOf, norm_what_they_sum_to_the_bits_of_both_operators) {
  const int size = GetParam();
  ThreadRanks group("tp", size);
  on_every_rank(size, [&](int rank) {
    constexpr int64_t kRows = 3, kDim = 40;
    std::vector<float> x(kRows * kDim), weight(kDim, 0.5f), residual(kRows * kDim, 2.0f);
    for (size_t i = 0; i < x.size(); ++i) x[i] = element(rank, static_cast<int64_t>(i), 0, 0);
    std::vector<float> sum = x, kept = residual, out(x.size()), expected(x.size());
    const auto view = [](std::vector<float>& values) {
      return Tensor::contiguous(values.data(), DType::kF32, {kRows, kDim});
    };
    const Tensor factors = Tensor::contiguous(weight.data(), DType::kF32, {kDim});
    const auto stream = make_stream();
    group.of(rank).all_reduce_norm(
        {.x = view(x), .weight = factors, .residual = view(residual), .out = view(out)}, {},
        *stream);
    group.of(rank).all_reduce(view(sum), *stream);
    ops::rms_norm(
        {.x = view(sum), .weight = factors, .residual = view(kept), .out = view(expected)},
        *stream);
    EXPECT_EQ(out, expected);
    EXPECT_EQ(residual, kept);
  });
}

TEST_P(ThreadRanksOf, allocate_nothing_in_a_collective_and_send_nothing_when_they_measure) {
  const int size = GetParam();
  ThreadRanks group("tp", size);
  std::atomic<int> ready = 0, done = 0;
  on_every_rank(size, [&](int rank) {
    const auto stream = make_stream(), measuring = make_stream();
    measuring->begin_measuring();
    Strided<float> t(2, 3, 4 * size);
    std::vector<int64_t> starts(static_cast<size_t>(size) + 1, 2);
    starts[0] = 0;
    // Alone: the others have not come yet.
    if (rank == 0) {
      group.of(0).all_reduce(t.view(), *measuring);
      group.of(0).all_gather(t.view(), 2, *measuring);
      group.of(0).all_gather_rows(t.view(), starts, *measuring);
      group.of(0).reduce_scatter_rows(t.view(), starts, *measuring);
    }
    const auto wait_for_all = [&](std::atomic<int>& counter) {
      for (++counter; counter < size;) std::this_thread::yield();
    };
    wait_for_all(ready);
    const int64_t before = num_allocations;
    for (int i = 0; i < 20; ++i) {
      group.of(rank).all_reduce(t.view(), *stream);
      group.of(rank).all_gather(t.view(), 2, *stream);
      group.of(rank).all_gather_rows(t.view(), starts, *stream);
      group.of(rank).reduce_scatter_rows(t.view(), starts, *stream);
      group.of(rank).barrier();
    }
    const int64_t after = num_allocations;
    EXPECT_EQ(before, after);
    EXPECT_EQ(measuring->scratch_bytes() + stream->scratch_bytes(), 0);
    wait_for_all(done);
  });
}

// A reader that was late would see the next collective's values.
TEST_P(ThreadRanksOf, keep_collectives_apart_that_follow_at_once) {
  const int size = GetParam();
  ThreadRanks group("tp", size);
  on_every_rank(size, [&](int rank) {
    const auto stream = make_stream();
    for (int round = 0; round < 300; ++round) {
      std::vector<float> t(static_cast<size_t>(size));
      t[static_cast<size_t>(rank)] = static_cast<float>(round * 100 + rank);
      const Tensor view = Tensor::contiguous(t.data(), DType::kF32, {size});
      group.of(rank).all_gather(view, 0, *stream);
      for (int from = 0; from < size; ++from)
        ASSERT_EQ(t[static_cast<size_t>(from)], static_cast<float>(round * 100 + from));
      group.of(rank).all_reduce(view, *stream);
      ASSERT_EQ(t[0], static_cast<float>(round * 100 * size));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanksOf, testing::Values(1, 2, 3, 8),
                         [](const auto& info) { return "of_" + std::to_string(info.param); });

constexpr std::chrono::milliseconds kShort{200};

class ThreadRanksDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// run(rank, its tensor f32[2, 6])
void on_three(const ThreadRanksConfig& config,
              const std::function<void(ThreadRanks&, int, const Tensor&)>& run) {
  ThreadRanks group("tp", 3, config);
  on_every_rank(3, [&](int rank) {
    std::vector<float> values(12);
    run(group, rank, Tensor::contiguous(values.data(), DType::kF32, {2, 6}));
  });
}

TEST_F(ThreadRanksDeathTest, name_who_is_missing_and_in_which_collective) {
  EXPECT_DEATH(on_three({.standstill = kShort},
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          group.of(rank).all_gather(t, 1, *make_stream());
                          if (rank == 1) return;
                          group.of(rank).all_reduce(t, *make_stream());
                        }),
               "rank [02] of 3 in tp has waited 2[0-9]+ ms in all_reduce \\(number 2\\) for rank 1 "
               "of 3 in tp, which stands still and whose last is all_gather \\(number 1\\)");
}

void compute_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST_F(ThreadRanksDeathTest, wait_for_a_rank_that_computes_until_the_deadline) {
  on_three({.standstill = kShort}, [](ThreadRanks& group, int rank, const Tensor& t) {
    group.of(rank).barrier();
    if (rank == 1) compute_for(4 * kShort);
    group.of(rank).all_reduce(t, *make_stream());
  });
  EXPECT_DEATH(on_three({.standstill = kShort, .deadline = 2 * kShort},
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          group.of(rank).all_reduce(t, *make_stream());
                          if (rank == 1) compute_for(std::chrono::seconds(20));
                          group.of(rank).barrier();
                        }),
               "rank [02] of 3 in tp has waited 4[0-9]+ ms in barrier \\(number 2\\) for rank 1 of "
               "3 in tp, whose last is all_reduce \\(number 1\\)");
}

// Rank 2 waits for rank 1 elsewhere: it is not the one that rank 0 should name, and rank 0 lets it be.
TEST_F(ThreadRanksDeathTest, name_the_one_that_all_the_others_wait_for) {
  EXPECT_DEATH(
      {
        ThreadRanks first("first", 2, {.standstill = kShort});
        ThreadRanks second("second", 2, {.standstill = 2 * kShort});
        on_every_rank(3, [&](int rank) {
          if (rank == 0) first.of(0).barrier();
          for (int round = 0; round < 2; ++round) {
            if (rank == 1 && round == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
            if (rank != 0) second.of(rank == 1 ? 0 : 1).barrier();
            if (rank != 1) first.of(rank == 0 ? 0 : 1).barrier();
          }
        });
      },
      "rank 1 of 2 in second has waited .* for rank 0 of 2 in second, which stands still");
}

// Whoever owns the group decides how it ends; no member goes on.
TEST_F(ThreadRanksDeathTest, tell_the_owner_of_a_failure_and_go_no_further) {
  EXPECT_EXIT(
      {
        std::mutex mutex;
        const auto end = [&](const std::string& why) {
          mutex.lock();
          std::fprintf(stderr, "failed: %s\n", why.c_str());
          std::_Exit(5);
        };
        on_three({.standstill = kShort, .on_failure = end},
                 [](ThreadRanks& group, int rank, const Tensor& t) {
                   group.of(rank).barrier();
                   if (rank != 1) group.of(rank).all_reduce(t, *make_stream());
                   std::fprintf(stderr, rank == 1 ? "" : "went on\n");
                 });
      },
      testing::ExitedWithCode(5), "^failed: rank [02] of 3 in tp has waited [^\n]*\n$");
}

const ThreadRanksConfig kLong = {};

TEST_F(ThreadRanksDeathTest, name_a_rank_that_brings_another_collective_or_shape) {
  EXPECT_DEATH(on_three(kLong,
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          if (rank == 2) return group.of(rank).all_gather(t, 1, *make_stream());
                          group.of(rank).all_reduce(t, *make_stream());
                        }),
               "rank . of 3 in tp is in all_(reduce|gather) \\(number 1\\) of f32\\[2, 6\\]");
  EXPECT_DEATH(on_three(kLong,
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          const Tensor part = rank == 0 ? t.slice(0, 0, 1) : t;
                          group.of(rank).all_reduce(part, *make_stream());
                        }),
               "f32\\[(1|2), 6\\] along axis 0, rank . of 3 in tp in all_reduce \\(number 1\\) of "
               "f32\\[(1|2), 6\\]");
  EXPECT_DEATH(on_three(kLong,
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          if (rank == 1) return group.of(rank).barrier();
                          group.of(rank).all_reduce(t, *make_stream());
                        }),
               "in tp (is )?in barrier");
}

TEST_F(ThreadRanksDeathTest, name_a_rank_that_has_other_rows_for_the_ranks) {
  EXPECT_DEATH(on_three(kLong,
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          const int64_t first = rank == 1 ? 0 : 1;
                          const std::vector<int64_t> starts = {0, first, 2, 2};
                          group.of(rank).all_gather_rows(t, starts, *make_stream());
                        }),
               "along axis 0, rows from 0, [01], 2, 2, rank . of 3 in tp in all_gather_rows "
               "\\(number 1\\) of f32\\[2, 6\\] along axis 0, rows from 0, [01], 2, 2");
  EXPECT_DEATH(on_three(kLong,
                        [](ThreadRanks& group, int rank, const Tensor& t) {
                          const std::vector<int64_t> starts = {0, 1, 2, 3};
                          group.of(rank).reduce_scatter_rows(t, starts, *make_stream());
                        }),
               "4 starts of rows of f32\\[2, 6\\] for 3 ranks");
}

TEST_F(ThreadRanksDeathTest, refuse_pieces_that_are_not_equal_and_sums_of_eight_bits) {
  std::vector<F8E4M3> values(12);
  const Tensor t = Tensor::contiguous(values.data(), DType::kF8E4M3, {2, 6});
  ThreadRanks two("tp", 2);
  EXPECT_DEATH(two.of(0).all_gather(t.slice(1, 0, 5), 1, *make_stream()),
               "axis 1 of f8_e4m3\\[2, 5\\], in 2 equal pieces");
  ThreadRanks one("tp", 1);
  EXPECT_DEATH(one.of(0).all_reduce(t, *make_stream()), "all_reduce of f8_e4m3\\[2, 6\\]");
}

}  // namespace
}  // namespace fathom::comm
