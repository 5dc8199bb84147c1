//! Something that happens once, and those who wait for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Something that happens once, and stays so.
///
/// Those who wait hear of it in the order in which they began to, so that what follows can be repeated; a
/// `watch` would wake them in any.
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

    /// Waits until it is raised.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        Waiting {
            signal: self,
            woken: None,
            place: None,
        }
    }
}

/// Waits until a [`Signal`] is raised.
///
/// Most who wait do so beside something that happens often, and are polled each time. They keep their place, which
/// is not looked at again: of thousands who wait, hardly any would find it in a cache.
#[must_use = "nobody waits until it is polled"]
pub(crate) struct Waiting<'a> {
    signal: &'a Signal,
    /// Who is woken in that place.
    woken: Option<Waker>,
    place: Option<Pin<Box<Notified<'a>>>>,
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            signal,
            woken,
            place,
        } = &mut *self;
        let is_woken = |woken: &Waker| woken.will_wake(cx.waker());
        if !signal.is_raised() && !woken.as_ref().is_some_and(is_woken) {
            let place = place.get_or_insert_with(|| Box::pin(signal.waiters.notified()));
            if place.as_mut().poll(cx).is_pending() {
                *woken = Some(cx.waker().clone());
            }
        }
        // Looked at once the place is taken, so that nothing is missed in between.
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
    struct Woken(AtomicUsize);

    impl Woken {
        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(waiting: Pin<&mut impl Future<Output = ()>>, waker: &Arc<Woken>) -> bool {
        let waker = waker.clone().into();
        waiting.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    #[test]
    fn whoever_has_polled_last_is_woken() {
        let signal = Signal::default();
        let [first, second] = [(); 2].map(|()| Arc::new(Woken::default()));
        let mut waiting = pin!(signal.wait());

        let before = [&first, &first, &second].map(|waker| poll(waiting.as_mut(), waker));
        signal.raise();

        assert_eq!(before, [false; 3]);
        assert_eq!((first.times(), second.times()), (0, 1));
        assert!(poll(waiting, &second));
    }

    #[test]
    fn whoever_begins_to_wait_when_it_is_raised_does_not_wait() {
        let signal = Signal::default();
        let woken = Arc::new(Woken::default());
        let mut early = pin!(signal.wait());
        signal.raise();

        assert!(poll(early.as_mut(), &woken));
        assert!(poll(pin!(signal.wait()), &woken));
    }
}
