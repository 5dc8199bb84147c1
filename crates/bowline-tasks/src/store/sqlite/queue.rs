//! [`JobQueue`]: a bounded queue between async callers and threads.

use std::collections::VecDeque;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use crate::sync::Mutex;

/// A queue that refuses jobs when it is full and lets its threads finish what it contains when it is closed.
#[derive(Debug)]
pub(super) struct JobQueue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    is_closed: bool,
    is_woken: bool,
}

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Closed,
}

impl<J> JobQueue<J> {
    pub(super) const fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                is_closed: false,
                is_woken: false,
            }),
            changed: Condvar::new(),
            capacity,
        }
    }

    /// Adds a job. Never blocks for longer than a thread needs to take jobs out.
    pub(super) fn push(&self, job: J) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Refused::Closed);
        }
        if state.jobs.len() >= self.capacity {
            return Err(Refused::Full);
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for jobs and takes up to `max`. Returns none after `wait` or [`wake`](Self::wake); `None` if the queue is
    /// closed and empty.
    pub(super) fn take(&self, max: usize, wait: Option<Duration>) -> Option<Vec<J>> {
        let mut state = self.state.lock();
        while state.jobs.is_empty() && !state.is_closed && !state.is_woken {
            let is_over;
            (state, is_over) = self.wait(state, wait);
            if is_over {
                break;
            }
        }
        state.is_woken = false;
        if state.jobs.is_empty() && state.is_closed {
            return None;
        }
        let count = state.jobs.len().min(max);
        Some(state.jobs.drain(..count).collect())
    }

    /// Makes one [`take`](Self::take) return.
    pub(super) fn wake(&self) {
        self.state.lock().is_woken = true;
        self.changed.notify_one();
    }

    /// Refuses further jobs.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Refuses further jobs and drops those that wait.
    pub(super) fn abort(&self) {
        self.close();
        // Dropped without the lock, because they wake their callers.
        let jobs = std::mem::take(&mut self.state.lock().jobs);
        drop(jobs);
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State<J>>,
        wait: Option<Duration>,
    ) -> (MutexGuard<'a, State<J>>, bool) {
        let Some(wait) = wait else {
            let state = self.changed.wait(state);
            return (state.unwrap_or_else(PoisonError::into_inner), false);
        };
        let waited = self.changed.wait_timeout(state, wait);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, timeout.timed_out())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_jobs() {
        let queue = JobQueue::new(2);

        assert_eq!([queue.push(1), queue.push(2)], [Ok(()), Ok(())]);
        assert_eq!(queue.push(3), Err(Refused::Full));
        assert_eq!(queue.take(1, None), Some(vec![1]));
        assert_eq!(queue.push(3), Ok(()));
        assert_eq!(queue.take(9, None), Some(vec![2, 3]));
    }

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = JobQueue::new(2);
        queue.push(1).unwrap();
        queue.close();

        assert_eq!(queue.push(2), Err(Refused::Closed));
        assert_eq!(queue.take(9, None), Some(vec![1]));
        assert_eq!(queue.take(9, None), None);
    }

    #[test]
    fn an_aborted_queue_is_empty() {
        let queue = JobQueue::new(2);
        queue.push(1).unwrap();
        queue.abort();

        assert_eq!(queue.take(9, None), None);
    }

    #[test]
    fn a_wait_ends_by_a_wake_or_in_time() {
        let queue = JobQueue::<u8>::new(2);
        queue.wake();

        assert_eq!(queue.take(9, None), Some(vec![]));
        assert_eq!(queue.take(9, Some(Duration::ZERO)), Some(vec![]));
    }
}
