//! [`Signal`], a flag that is raised once and awaited by many tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A flag that is raised once and stays raised.
///
/// Wakes its waiters in the order in which they began to wait, so that a seeded schedule is reproducible; a
/// `tokio::sync::watch` wakes in no defined order.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    is_raised: AtomicBool,
    waiters: Notify,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.waiters.notify_waiters();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Waits until the flag is raised.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping it has no effect on the flag.
    pub(crate) fn wait(&self) -> SignalRaised<'_> {
        SignalRaised {
            signal: self,
            waker: None,
            notified: None,
        }
    }
}

/// The future that [`Signal::wait`] returns.
///
/// It is usually polled in a `select!` whose other branch is woken often. So the `Notified` is not polled again while
/// the waker is the same: with thousands of waiters its list node would be a cache miss each time.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct SignalRaised<'a> {
    signal: &'a Signal,
    /// The waker that `notified` was last polled with.
    waker: Option<Waker>,
    notified: Option<Pin<Box<Notified<'a>>>>,
}

impl Future for SignalRaised<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            signal,
            waker,
            notified,
        } = &mut *self;
        let is_current = |waker: &Waker| waker.will_wake(cx.waker());
        if !signal.is_raised() && !waker.as_ref().is_some_and(is_current) {
            let notified = notified.get_or_insert_with(|| Box::pin(signal.waiters.notified()));
            if notified.as_mut().poll(cx).is_pending() {
                *waker = Some(cx.waker().clone());
            }
        }
        // Checked after registering: a `raise` between the check above and the registration wakes no waiter.
        if signal.is_raised() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
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
    fn a_wait_on_a_raised_signal_is_ready_immediately() {
        let signal = Signal::default();
        let woken = Arc::new(WakeCounter::default());
        let mut early = pin!(signal.wait());
        signal.raise();

        assert!(poll(early.as_mut(), &woken));
        assert!(poll(pin!(signal.wait()), &woken));
    }
}
