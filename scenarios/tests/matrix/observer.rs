//! Records the frames of a server, and the start and end of its handlers.
//!
//! A server in a child process reports them on its stderr, one line each; the parent process reads them from there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Records frames and handler events. Clones share their records.
#[derive(Clone, Debug)]
pub(crate) enum Observer {
    /// Stores them in this process.
    Local(Arc<Observations>),
    /// Reports them to the parent process on stderr.
    Stderr,
}

#[derive(Debug, Default)]
pub(crate) struct Observations {
    frames: Mutex<Vec<String>>,
    counts: watch::Sender<HandlerCounts>,
    /// The id of the reporting process, once it was reported.
    process: watch::Sender<Option<i32>>,
    /// The URL of the reporting process, if it serves HTTP.
    url: watch::Sender<Option<String>>,
}

/// How many handlers started, were dropped, and finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandlerCounts {
    pub(crate) started: usize,
    pub(crate) dropped: usize,
    pub(crate) finished: usize,
}

/// A step in the life of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerEvent {
    Start,
    Drop,
    Finish,
}

impl Observer {
    pub(crate) fn local() -> Self {
        Self::Local(Arc::default())
    }

    /// Records a frame.
    pub(crate) fn frame(&self, line: String) {
        match self {
            Self::Local(observations) => lock(&observations.frames).push(line),
            Self::Stderr => eprintln!("{FRAME}{line}"),
        }
    }

    fn record(&self, event: HandlerEvent) {
        match self {
            Self::Local(observations) => observations
                .counts
                .send_modify(|counts| counts.count(event)),
            Self::Stderr => eprintln!("{HANDLER}{}", event.word()),
        }
    }

    /// Records a line that a child process reported.
    pub(crate) fn read_report(&self, line: &str) {
        if let Some(frame) = line.strip_prefix(FRAME) {
            self.frame(frame.to_owned());
        } else if let Some(event) = line.strip_prefix(HANDLER).and_then(HandlerEvent::of) {
            self.record(event);
        } else if let Some(id) = line.strip_prefix(PROCESS) {
            self.observations().process.send_replace(id.parse().ok());
        } else if let Some(url) = line.strip_prefix(URL) {
            self.observations().url.send_replace(Some(url.to_owned()));
        } else {
            // Most likely a panic, which belongs to the output of the failed test.
            eprintln!("stderr of the server: {line}");
        }
    }

    /// Reports the id of this process.
    pub(crate) fn report_process_id(&self) {
        eprintln!("{PROCESS}{}", std::process::id());
    }

    /// Reports the URL at which this process serves.
    pub(crate) fn report_url(&self, url: &str) {
        eprintln!("{URL}{url}");
    }

    /// Waits for the URL of the reporting process.
    pub(crate) async fn url(&self) -> String {
        let mut url = self.observations().url.subscribe();
        let waiting = tokio::time::timeout(WAIT_LIMIT, url.wait_for(Option::is_some));
        waiting.await.unwrap().unwrap().clone().unwrap()
    }

    /// The id of the reporting process.
    pub(crate) fn process(&self) -> Option<i32> {
        *self.observations().process.borrow()
    }

    pub(crate) fn frames(&self) -> Vec<String> {
        lock(&self.observations().frames).clone()
    }

    /// Clears the recorded frames and handler counts.
    pub(crate) fn clear(&self) {
        lock(&self.observations().frames).clear();
        self.observations()
            .counts
            .send_replace(HandlerCounts::default());
    }

    pub(crate) fn counts(&self) -> HandlerCounts {
        *self.observations().counts.borrow()
    }

    /// Waits until this many handlers have started.
    pub(crate) async fn wait_for_starts(&self, count: usize) {
        self.wait_until(|counts| counts.started >= count).await;
    }

    /// Waits until this many handlers were dropped.
    pub(crate) async fn wait_for_drops(&self, count: usize) {
        self.wait_until(|counts| counts.dropped >= count).await;
    }

    async fn wait_until(&self, reached: impl Fn(&HandlerCounts) -> bool) {
        let mut counts = self.observations().counts.subscribe();
        let waiting = counts.wait_for(|counts| reached(counts));
        let reached = tokio::time::timeout(WAIT_LIMIT, waiting).await.is_ok();
        assert!(
            reached,
            "timed out: {:?} {:#?}",
            self.counts(),
            self.frames()
        );
    }

    fn observations(&self) -> &Observations {
        match self {
            Self::Local(observations) => observations,
            Self::Stderr => panic!("the parent process holds the observations"),
        }
    }
}

impl HandlerCounts {
    fn count(&mut self, event: HandlerEvent) {
        match event {
            HandlerEvent::Start => self.started += 1,
            HandlerEvent::Drop => self.dropped += 1,
            HandlerEvent::Finish => self.finished += 1,
        }
    }
}

impl HandlerEvent {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Drop => "drop",
            Self::Finish => "finish",
        }
    }

    fn of(word: &str) -> Option<Self> {
        let all = [Self::Start, Self::Drop, Self::Finish];
        all.into_iter().find(|event| event.word() == word)
    }
}

/// Counts a handler when it starts, and when it finishes or is dropped.
#[derive(Debug)]
pub(crate) struct CountedHandler {
    observer: Observer,
    ends_by: HandlerEvent,
}

impl CountedHandler {
    pub(crate) fn begin(observer: &Observer) -> Self {
        observer.record(HandlerEvent::Start);
        let (observer, ends_by) = (observer.clone(), HandlerEvent::Drop);
        Self { observer, ends_by }
    }

    pub(crate) fn finish(mut self) {
        self.ends_by = HandlerEvent::Finish;
    }
}

impl Drop for CountedHandler {
    fn drop(&mut self) {
        self.observer.record(self.ends_by);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const FRAME: &str = "frame ";
const HANDLER: &str = "handler ";
const PROCESS: &str = "process ";
const URL: &str = "url ";
/// The time after which a test counts as hung, even on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(30);
