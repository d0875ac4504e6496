#pragma once
// Mutex, MutexLock and CondVar: those of the standard library, with annotations that clang checks (-Wthread-safety, in
// tools/run_tidy.py): who reads or writes a member without its mutex is told when compiling.
//
//   class Counter {
//     void add() { const MutexLock lock(mutex_);  add_locked(); }
//     void wait() { MutexLock lock(mutex_);  changed_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) { return ...; }); }
//     void add_locked() FATHOM_REQUIRES(mutex_) { ++count_; }
//     Mutex mutex_;
//     CondVar changed_;
//     int count_ FATHOM_GUARDED_BY(mutex_) = 0;
//   };
//
// The attributes are those of https://clang.llvm.org/docs/ThreadSafetyAnalysis.html. Other compilers do not see them.

#include <condition_variable>
#include <mutex>
#include <utility>

#ifdef __clang__
#define FATHOM_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define FATHOM_THREAD_SAFETY(attribute)
#endif
// A member that is read and written with the mutex held.
#define FATHOM_GUARDED_BY(mutex) FATHOM_THREAD_SAFETY(guarded_by(mutex))
// A function, or the question of a wait, that is called with the mutex held.
#define FATHOM_REQUIRES(mutex) FATHOM_THREAD_SAFETY(requires_capability(mutex))
// For what the analysis cannot follow; says why beside it.
#define FATHOM_UNCHECKED_LOCKS FATHOM_THREAD_SAFETY(no_thread_safety_analysis)

namespace fathom {

class FATHOM_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  bool try_lock() FATHOM_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds the mutex while it lives, but between unlock() and lock().
class FATHOM_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) FATHOM_THREAD_SAFETY(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  // Of a mutex that try_lock() has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t adopt) FATHOM_REQUIRES(mutex)
      : lock_(mutex.mutex_, adopt) {}
  ~MutexLock() FATHOM_THREAD_SAFETY(release_capability()) = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() FATHOM_THREAD_SAFETY(release_capability()) { lock_.unlock(); }
  void lock() FATHOM_THREAD_SAFETY(acquire_capability()) { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// Waits are unchecked inside: the question is called with the lock held, which its own annotation asks for.
class CondVar {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  template <class Question>
  void wait(MutexLock& lock, Question question) FATHOM_UNCHECKED_LOCKS {
    condition_.wait(lock.lock_, std::move(question));
  }
  template <class Duration, class Question>
  bool wait_for(MutexLock& lock, const Duration& most, Question question) FATHOM_UNCHECKED_LOCKS {
    return condition_.wait_for(lock.lock_, most, std::move(question));
  }
  template <class TimePoint, class Question>
  bool wait_until(MutexLock& lock, const TimePoint& end, Question question) FATHOM_UNCHECKED_LOCKS {
    return condition_.wait_until(lock.lock_, end, std::move(question));
  }

 private:
  std::condition_variable condition_;
};

}  // namespace fathom
