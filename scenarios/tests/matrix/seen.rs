//! What can be seen of a server: the frames that passed it, and what became of its handlers.
//!
//! In a process of its own the server tells everything on its stderr, a line at a time, and whoever started
//! it listens there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// What was seen so far. Clones see the same.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Here(Arc<Sight>),
    /// In another process, which is told.
    Told,
}

#[derive(Debug, Default)]
pub(crate) struct Sight {
    frames: Mutex<Vec<String>>,
    tally: watch::Sender<Tally>,
    /// The process that tells, once it said which it is.
    process: watch::Sender<Option<i32>>,
    /// Where it serves, if that is an address.
    url: watch::Sender<Option<String>>,
}

/// What became of the handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) started: usize,
    pub(crate) dropped: usize,
    pub(crate) finished: usize,
}

/// What a handler did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Start,
    Drop,
    Finish,
}

impl Seen {
    pub(crate) fn here() -> Self {
        Self::Here(Arc::default())
    }

    /// Writes down a frame.
    pub(crate) fn frame(&self, line: String) {
        match self {
            Self::Here(sight) => lock(&sight.frames).push(line),
            Self::Told => eprintln!("{FRAME}{line}"),
        }
    }

    fn did(&self, did: Did) {
        match self {
            Self::Here(sight) => sight.tally.send_modify(|tally| tally.count(did)),
            Self::Told => eprintln!("{DID}{}", did.word()),
        }
    }

    /// Takes in a line that another process told.
    pub(crate) fn listen(&self, line: &str) {
        if let Some(frame) = line.strip_prefix(FRAME) {
            self.frame(frame.to_owned());
        } else if let Some(did) = line.strip_prefix(DID).and_then(Did::of) {
            self.did(did);
        } else if let Some(id) = line.strip_prefix(PROCESS) {
            self.sight().process.send_replace(id.parse().ok());
        } else if let Some(url) = line.strip_prefix(URL) {
            self.sight().url.send_replace(Some(url.to_owned()));
        } else {
            // A panic, most likely: whoever looks at the failure wants to see it.
            eprintln!("the server says: {line}");
        }
    }

    /// Tells which process this is.
    pub(crate) fn introduce(&self) {
        eprintln!("{PROCESS}{}", std::process::id());
    }

    /// Tells where this process serves.
    pub(crate) fn serves_at(&self, url: &str) {
        eprintln!("{URL}{url}");
    }

    /// Where the process that tells serves, as soon as it says so.
    pub(crate) async fn url(&self) -> String {
        let mut url = self.sight().url.subscribe();
        let waiting = tokio::time::timeout(PATIENCE, url.wait_for(Option::is_some));
        waiting.await.unwrap().unwrap().clone().unwrap()
    }

    /// The process that tells.
    pub(crate) fn process(&self) -> Option<i32> {
        *self.sight().process.borrow()
    }

    pub(crate) fn frames(&self) -> Vec<String> {
        lock(&self.sight().frames).clone()
    }

    /// Forgets the frames that passed and the handlers that came and went.
    pub(crate) fn forget(&self) {
        lock(&self.sight().frames).clear();
        self.sight().tally.send_replace(Tally::default());
    }

    pub(crate) fn tally(&self) -> Tally {
        *self.sight().tally.borrow()
    }

    pub(crate) async fn started(&self, count: usize) {
        self.until(|tally| tally.started >= count).await;
    }

    pub(crate) async fn dropped(&self, count: usize) {
        self.until(|tally| tally.dropped >= count).await;
    }

    async fn until(&self, reached: impl Fn(&Tally) -> bool) {
        let mut tally = self.sight().tally.subscribe();
        let waiting = tally.wait_for(|tally| reached(tally));
        let reached = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
        assert!(
            reached,
            "nothing moves any more: {:?} {:#?}",
            self.tally(),
            self.frames()
        );
    }

    fn sight(&self) -> &Sight {
        match self {
            Self::Here(sight) => sight,
            Self::Told => panic!("what was told elsewhere cannot be seen here"),
        }
    }
}

impl Tally {
    fn count(&mut self, did: Did) {
        match did {
            Did::Start => self.started += 1,
            Did::Drop => self.dropped += 1,
            Did::Finish => self.finished += 1,
        }
    }
}

impl Did {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Drop => "drop",
            Self::Finish => "finish",
        }
    }

    fn of(word: &str) -> Option<Self> {
        let all = [Self::Start, Self::Drop, Self::Finish];
        all.into_iter().find(|did| did.word() == word)
    }
}

/// A handler at work: counted when it starts, and when it finishes or is dropped.
#[derive(Debug)]
pub(crate) struct Working {
    seen: Seen,
    ends_by: Did,
}

impl Working {
    pub(crate) fn begin(seen: &Seen) -> Self {
        seen.did(Did::Start);
        let (seen, ends_by) = (seen.clone(), Did::Drop);
        Self { seen, ends_by }
    }

    pub(crate) fn finish(mut self) {
        self.ends_by = Did::Finish;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.seen.did(self.ends_by);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const FRAME: &str = "frame ";
const DID: &str = "handler ";
const PROCESS: &str = "process ";
const URL: &str = "url ";
/// Nothing that works takes as long as this, on however busy a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
