// LineWriter over a pipe: order, a reader that stalls, and what is said of lines that were dropped.
#include "base/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace fathom {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  // All that comes until the writing end is closed.
  std::string read_all() const {
    std::string text;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<size_t>(n));
    return text;
  }
  int ends[2] = {-1, -1};
};

std::string lost(int64_t num_lines) { return "lost " + std::to_string(num_lines) + "\n"; }

TEST(LineWriter, writes_lines_of_all_threads_whole_and_in_their_order) {
  Pipe pipe;
  std::string text;
  std::thread reader([&] { text = pipe.read_all(); });
  {
    LineWriter writer(pipe.ends[1], {.lost_line = lost});
    std::vector<std::thread> threads;
    for (const char* name : {"a", "b", "c"}) {
      threads.emplace_back([&writer, name] {
        for (int i = 0; i < 1000; ++i) writer.write(name + std::to_string(i) + "\n");
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(writer.num_dropped(), 0);
  }
  pipe.close_writer();
  reader.join();
  int next[3] = {0, 0, 0};
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(begin, end - begin);
    int& expected = next[line[0] - 'a'];
    ASSERT_EQ(line.substr(1), std::to_string(expected)) << line;
    ++expected;
  }
  for (const int count : next) EXPECT_EQ(count, 1000);
}

// A disk without room.
TEST(LineWriter, counts_lines_that_could_not_be_written) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  int num_reports = 0;
  {
    LineWriter writer(full, {.lost_line = [&num_reports](int64_t num_lines) {
                        ++num_reports;
                        return lost(num_lines);
                      }});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(writer.write("line\n"));
    ASSERT_TRUE(writer.flush(std::chrono::minutes(5)));
    EXPECT_EQ(writer.num_dropped(), 3);
  }
  EXPECT_GE(num_reports, 1);  // and it ended, though these could not be written either
  ::close(full);
}

// As a program that shares standard error may have made it.
TEST(LineWriter, waits_for_the_reader_of_a_pipe_that_does_not_block) {
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK), 0);
  std::string text;
  {
    LineWriter writer(pipe.ends[1], {.lost_line = lost});
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer.write(std::string(999, 'x') + "\n"));
    EXPECT_FALSE(writer.flush(std::chrono::milliseconds(1)));
    std::thread reader([&] { text = pipe.read_all(); });
    EXPECT_TRUE(writer.flush(std::chrono::minutes(5)));
    EXPECT_EQ(writer.num_dropped(), 0);
    pipe.close_writer();
    reader.join();
  }
  EXPECT_EQ(text.size(), 100'000U);
}

// Nobody reads: 64 KiB are in the pipe and max_bytes wait.
TEST(LineWriter, drops_and_counts_what_a_stalled_reader_leaves_and_says_so_when_it_goes_on) {
  Pipe pipe;
  std::string text;
  int64_t num_dropped = 0;
  const std::string line = std::string(999, 'x') + "\n";
  constexpr int kLines = 1000;
  std::thread reader;
  {
    LineWriter writer(pipe.ends[1], {.max_bytes = 100'000, .lost_line = lost});
    for (int i = 0; i < kLines; ++i) writer.write(line);  // returns although nobody reads
    num_dropped = writer.num_dropped();
    EXPECT_GE(num_dropped, kLines - 100 - 70);
    EXPECT_LT(num_dropped, kLines - 90);
    EXPECT_FALSE(writer.flush(std::chrono::milliseconds(1)));
    reader = std::thread([&] { text = pipe.read_all(); });
    EXPECT_TRUE(writer.flush(std::chrono::minutes(5)));
  }
  pipe.close_writer();
  reader.join();
  int64_t num_lines = 0, num_lost = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string got = text.substr(begin, end - begin + 1);
    if (got == line) {
      ++num_lines;
    } else {
      ASSERT_EQ(got.substr(0, 5), "lost ") << got;
      num_lost += std::stoll(got.substr(5));
    }
  }
  EXPECT_EQ(num_lines, kLines - num_dropped);
  EXPECT_EQ(num_lost, num_dropped);
}

TEST(LineWriter, names_lost_lines_at_most_once_in_an_interval) {
  Pipe pipe;
  std::string text;
  {
    LineWriter writer(pipe.ends[1], {.max_bytes = 10, .lost_line = lost});
    for (int i = 0; i < 5; ++i) {
      EXPECT_FALSE(writer.write("longer than ten bytes\n"));
      EXPECT_TRUE(writer.write("short\n"));
      EXPECT_TRUE(writer.flush(std::chrono::minutes(5)));
    }
  }
  pipe.close_writer();
  text = pipe.read_all();
  // The first at once, the rest when the writer ends.
  EXPECT_EQ(text, "short\nlost 1\nshort\nshort\nshort\nshort\nlost 4\n");
}

}  // namespace
}  // namespace fathom
