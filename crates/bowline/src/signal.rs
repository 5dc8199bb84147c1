//! [`Signal`], a flag that is raised once and awaited by many tasks.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

/// A flag that is raised once and stays raised.
///
/// Wakes its waiters in the order in which they began to wait, so that a seeded schedule is reproducible; a
/// `tokio::sync::watch` wakes in no defined order. A `tokio::sync::Notify` does, but its futures must be pinned: every
/// request waits for a drain, and would allocate one.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    is_raised: AtomicBool,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    /// By the order in which they began to wait.
    wakers: BTreeMap<u64, Waker>,
    last_key: u64,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut self.waiters.lock().wakers);
        // Not under the lock: a waker may run code that waits for this signal.
        wakers.into_values().for_each(Waker::wake);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Waits until the flag is raised.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping it has no effect on the flag.
    pub(crate) fn wait(&self) -> SignalRaised<&Self> {
        SignalRaised::new(self)
    }

    /// As [`wait`](Self::wait), for a future that owns what it waits for.
    pub(crate) fn wait_owned(self: Arc<Self>) -> SignalRaised<Arc<Self>> {
        SignalRaised::new(self)
    }
}

/// The future that [`Signal::wait`] returns.
///
/// It is usually polled in a `select!` whose other branch is woken often. So it keeps a copy of its waker, and takes the
/// lock only for another one.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct SignalRaised<S: Deref<Target = Signal>> {
    signal: S,
    /// Its key among the waiters, and the waker that is stored there.
    waiting: Option<(u64, Waker)>,
}

impl<S: Deref<Target = Signal>> SignalRaised<S> {
    fn new(signal: S) -> Self {
        Self {
            signal,
            waiting: None,
        }
    }

    fn register(&mut self, waker: &Waker) {
        let mut waiters = self.signal.waiters.lock();
        let key = match &self.waiting {
            Some((key, _)) => *key,
            None => {
                waiters.last_key += 1;
                waiters.last_key
            }
        };
        let replaced = waiters.wakers.insert(key, waker.clone());
        drop(waiters);
        drop(replaced); // not under the lock
        self.waiting = Some((key, waker.clone()));
    }
}

impl<S: Deref<Target = Signal> + Unpin> Future for SignalRaised<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_current = |(_, waker): &(u64, Waker)| waker.will_wake(cx.waker());
        if !self.signal.is_raised() && !self.waiting.as_ref().is_some_and(is_current) {
            self.register(cx.waker());
        }
        // Checked after registering: a `raise` between the check above and the registration wakes no waiter.
        if self.signal.is_raised() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl<S: Deref<Target = Signal>> Drop for SignalRaised<S> {
    fn drop(&mut self) {
        if let Some((key, _)) = &self.waiting {
            let removed = self.signal.waiters.lock().wakers.remove(key);
            drop(removed); // not under the lock
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl WakeCounter {
        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(waiting: Pin<&mut impl Future<Output = ()>>, waker: &Arc<WakeCounter>) -> bool {
        let waker = waker.clone().into();
        waiting.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    #[test]
    fn the_last_waker_that_polled_is_woken() {
        let signal = Signal::default();
        let [first, second] = [(); 2].map(|()| Arc::new(WakeCounter::default()));
        let mut waiting = pin!(signal.wait());

        let before = [&first, &first, &second].map(|waker| poll(waiting.as_mut(), waker));
        signal.raise();

        assert_eq!(before, [false; 3]);
        assert_eq!((first.times(), second.times()), (0, 1));
        assert!(poll(waiting, &second));
    }

    #[test]
    fn waiters_are_woken_in_the_order_in_which_they_began_and_leave_nothing_behind() {
        struct Recorder(Arc<Mutex<Vec<usize>>>, usize);
        impl Wake for Recorder {
            fn wake(self: Arc<Self>) {
                self.0.lock().push(self.1);
            }
        }
        let (signal, woken) = (Arc::new(Signal::default()), Arc::default());
        let poll = |waiting: &mut SignalRaised<_>, number| {
            let waker = Arc::new(Recorder(Arc::clone(&woken), number)).into();
            Pin::new(waiting).poll(&mut Context::from_waker(&waker))
        };
        let mut waiting = [(); 4].map(|()| signal.clone().wait_owned());
        for (number, waiting) in waiting.iter_mut().enumerate() {
            assert!(poll(waiting, number).is_pending());
        }
        let [mut first, second, third, fourth] = waiting;
        // Another waker does not move it to the end.
        assert!(poll(&mut first, 10).is_pending());
        drop(second);

        signal.raise();

        assert_eq!(*woken.lock(), [10, 2, 3]);
        drop((first, third, fourth));
        assert!(signal.waiters.lock().wakers.is_empty());
    }

    #[test]
    fn a_wait_that_is_dropped_is_forgotten() {
        let signal = Signal::default();
        let woken = Arc::new(WakeCounter::default());
        let mut waiting = Box::pin(signal.wait());
        poll(waiting.as_mut(), &woken);

        drop(waiting);

        assert!(signal.waiters.lock().wakers.is_empty());
        signal.raise();
        assert_eq!(woken.times(), 0);
    }

    #[test]
    fn a_wait_on_a_raised_signal_is_ready_immediately() {
        let signal = Signal::default();
        let woken = Arc::new(WakeCounter::default());
        let mut early = pin!(signal.wait());
        signal.raise();

        assert!(poll(early.as_mut(), &woken));
        assert!(poll(pin!(signal.wait()), &woken));
    }
}
