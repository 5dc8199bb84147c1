//! [`Recorder`]: writes events on a thread of its own, so that a slow disk does not slow down the wire.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{Event, EventKind, Header, RecordingWriter, Redactor, Side};

/// Records events without blocking. Clones share the recording.
///
/// Events pass through a bounded queue to a thread that redacts and writes them. If the queue is full, or writing fails,
/// events are lost; an event of the kind [`Lost`](EventKind::Lost) then takes their place.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    queue: SyncSender<Queued>,
}

/// The thread that writes a recording. See [`Recorder::start`].
#[derive(Debug)]
#[must_use = "finish it, or the last events may not be written"]
pub struct RecorderThread {
    thread: JoinHandle<io::Result<()>>,
    finished: Receiver<()>,
    queue: SyncSender<Queued>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    bytes: AtomicUsize,
    lost: AtomicU64,
    has_failed: AtomicBool,
}

#[derive(Debug)]
enum Queued {
    Event(Box<Event>),
    Frame(Box<QueuedFrame>),
    Finish,
}

/// A frame that is decoded on the recorder's thread, not on that of the wire.
#[derive(Debug)]
struct QueuedFrame {
    at: Duration,
    connection: u64,
    exchange: Option<u64>,
    from: Side,
    frame: Bytes,
}

impl QueuedFrame {
    fn size(&self) -> usize {
        self.frame.len() + FRAME_SIZE
    }

    fn into_event(self) -> Option<Event> {
        let kind = EventKind::of_frame(self.from, &self.frame)?;
        let mut event = Event::new(self.at, self.connection, kind);
        event.exchange = self.exchange;
        Some(event)
    }
}

/// A function that sees every event before it is written.
type Observer = Box<dyn FnMut(&Event) + Send>;

/// The settings of a [`Recorder`].
#[must_use = "settings do nothing until a recorder is started with them"]
pub struct RecorderOptions {
    header: Header,
    redactor: Option<Redactor>,
    observer: Option<Observer>,
}

impl RecorderOptions {
    /// Redacts secrets.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            redactor: Some(Redactor::new()),
            observer: None,
        }
    }

    /// Continues the numbers of a redactor that was used before, such as for the target in the header.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Records secrets as they are.
    pub fn without_redaction(mut self) -> Self {
        self.redactor = None;
        self
    }

    /// Calls a function with every event, redacted, on the thread that writes.
    pub fn observer(mut self, observer: impl FnMut(&Event) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }
}

impl std::fmt::Debug for RecorderOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecorderOptions")
            .field("header", &self.header)
            .field("is_redacting", &self.redactor.is_some())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts the thread. Without a writer, only the observer sees the events.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started, or the header cannot be written.
    pub fn start(
        writer: Option<Box<dyn Write + Send>>,
        options: RecorderOptions,
    ) -> io::Result<(Self, RecorderThread)> {
        let writer = match writer {
            Some(writer) => Some(RecordingWriter::new(writer, &options.header)?),
            None => None,
        };
        let (queue, queued) = sync_channel(MAX_EVENTS);
        let (finish, finished) = sync_channel(1);
        let shared = Arc::new(Shared {
            started: Instant::now(),
            bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        });
        let mut worker = Worker {
            shared: shared.clone(),
            writer,
            redactor: options.redactor,
            observer: options.observer,
            error: None,
            connection: 0,
        };
        let thread = std::thread::Builder::new().name("bowline-recorder".into());
        let thread = thread.spawn(move || {
            worker.run(&queued);
            let _ = finish.try_send(());
            worker.error.map_or(Ok(()), Err)
        })?;
        let recorder = Self {
            shared,
            queue: queue.clone(),
        };
        let thread = RecorderThread {
            thread,
            finished,
            queue,
        };
        Ok((recorder, thread))
    }

    /// Returns the time since the start of the recording.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Returns whether writing has failed. Events are then lost.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed)
    }

    /// Records what was observed now, on a connection and in an HTTP exchange, if there is one.
    pub fn record(&self, connection: u64, exchange: Option<u64>, kind: EventKind) {
        let mut event = Event::new(self.now(), connection, kind);
        event.exchange = exchange;
        self.record_event(event);
    }

    /// Records a line, body or SSE event: as a message, or as malformed if it is none. A blank one is not recorded.
    ///
    /// It is decoded on the recorder's thread.
    pub fn record_frame(&self, connection: u64, exchange: Option<u64>, from: Side, frame: Bytes) {
        let frame = QueuedFrame {
            at: self.now(),
            connection,
            exchange,
            from,
            frame,
        };
        self.queue(frame.size(), || Queued::Frame(Box::new(frame)));
    }

    /// Records an event. Returns at once, even if the queue is full.
    pub fn record_event(&self, event: Event) {
        self.queue(event.size(), || Queued::Event(Box::new(event)));
    }

    fn queue(&self, size: usize, queued: impl FnOnce() -> Queued) {
        let before = self.shared.bytes.fetch_add(size, Ordering::Relaxed);
        // A single event may exceed the limit, or it could never be recorded.
        let is_full = before > 0 && before.saturating_add(size) > MAX_BYTES;
        if is_full || self.queue.try_send(queued()).is_err() {
            self.shared.bytes.fetch_sub(size, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RecorderThread {
    /// Waits until everything is written, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// If writing has failed or takes longer.
    pub fn finish(self, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        // A full queue means that the thread is busy; it looks for the end when it has emptied it.
        while self.queue.try_send(Queued::Finish).is_err() {
            if self.thread.is_finished() {
                break;
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(RETRY);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match self.finished.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => match self.thread.join() {
                Ok(written) => written,
                Err(_) => Err(io::Error::other("the recorder panicked")),
            },
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    writer: Option<RecordingWriter<Box<dyn Write + Send>>>,
    redactor: Option<Redactor>,
    observer: Option<Observer>,
    error: Option<io::Error>,
    /// The connection of the last event.
    connection: u64,
}

impl Worker {
    /// Writes events until [`Queued::Finish`], many at once if they come fast.
    fn run(&mut self, queued: &Receiver<Queued>) {
        let mut batch = Batch::default();
        while !batch.is_finished {
            match queued.recv() {
                Ok(item) => batch.add(item),
                Err(_) => batch.is_finished = true,
            }
            while batch.events.len() < MAX_AT_ONCE && batch.size < MAX_BYTES_AT_ONCE {
                match queued.try_recv() {
                    Ok(item) if !batch.is_finished => batch.add(item),
                    _ => break,
                }
            }
            self.write(&mut batch);
        }
    }

    fn write(&mut self, batch: &mut Batch) {
        let events = &mut batch.events;
        let last = events.last();
        self.connection = last.map_or(self.connection, |event| event.connection);
        let lost = self.shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let at = last.map_or_else(|| self.shared.started.elapsed(), |event| event.at);
            let why = "the recorder was slower than the wire".to_owned();
            let kind = EventKind::Lost { count: lost, why };
            events.push(Event::new(at, self.connection, kind));
        }
        if let Some(redactor) = &mut self.redactor {
            events.iter_mut().for_each(|event| redactor.event(event));
        }
        if let Some(observer) = &mut self.observer {
            events.iter().for_each(observer);
        }
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.write_all(events.iter())
        {
            // A line may be half written: no more lines can follow it.
            self.shared.has_failed.store(true, Ordering::Relaxed);
            self.writer = None;
            self.error = Some(error);
        }
        events.clear();
        let size = std::mem::take(&mut batch.size);
        self.shared.bytes.fetch_sub(size, Ordering::Relaxed);
    }
}

/// Events that are written at once.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    /// The size that they had in the queue.
    size: usize,
    is_finished: bool,
}

impl Batch {
    fn add(&mut self, queued: Queued) {
        match queued {
            Queued::Event(event) => {
                self.size += event.size();
                self.events.push(*event);
            }
            Queued::Frame(frame) => {
                self.size += frame.size();
                self.events.extend(frame.into_event());
            }
            Queued::Finish => self.is_finished = true,
        }
    }
}

/// The number of events in the queue.
const MAX_EVENTS: usize = 16 * 1024;

/// The bytes of the events in the queue.
const MAX_BYTES: usize = if cfg!(test) {
    1024 * 1024
} else {
    64 * 1024 * 1024
};

/// The number of events that are written at once.
const MAX_AT_ONCE: usize = 256;

/// The bytes of the events that are written at once.
const MAX_BYTES_AT_ONCE: usize = 1024 * 1024;

/// The size of a frame without its bytes.
const FRAME_SIZE: usize = 128;

/// How long to wait for space in a full queue.
const RETRY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Recording, Transport};

    /// A file in memory that can be made to block or fail.
    #[derive(Clone, Debug, Default)]
    struct SharedFile {
        bytes: Arc<Mutex<Vec<u8>>>,
        gate: Arc<Mutex<()>>,
        is_full: Arc<AtomicBool>,
    }

    impl Write for SharedFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _gate = self.gate.lock().unwrap();
            if self.is_full.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(file: &SharedFile) -> (Recorder, RecorderThread) {
        let options = RecorderOptions::new(Header::new(Transport::Stdio));
        Recorder::start(Some(Box::new(file.clone())), options).unwrap()
    }

    fn stderr(text: impl Into<String>) -> EventKind {
        EventKind::Stderr { text: text.into() }
    }

    #[test]
    fn everything_is_written_when_the_thread_is_finished() {
        let file = SharedFile::default();
        let (recorder, thread) = start(&file);
        for at in 0..1000 {
            recorder.record(1, None, stderr(at.to_string()));
        }

        thread.finish(Duration::from_secs(60)).unwrap();

        let recording = Recording::parse(&file.bytes.lock().unwrap()).unwrap();
        assert_eq!(recording.events.len(), 1000);
        assert_eq!(recording.events[999].kind, stderr("999"));
    }

    #[test]
    fn frames_are_messages_or_malformed() {
        let file = SharedFile::default();
        let (recorder, thread) = start(&file);
        for frame in [
            &br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#[..],
            b"oops \xff",
            b" \r",
        ] {
            recorder.record_frame(1, None, Side::Client, Bytes::from_static(frame));
        }

        thread.finish(Duration::from_secs(60)).unwrap();

        let recording = Recording::parse(&file.bytes.lock().unwrap()).unwrap();
        let [message, malformed] = &recording.events[..] else {
            panic!("{:?}", recording.events)
        };
        assert!(matches!(message.kind, EventKind::Message { .. }));
        assert!(
            matches!(&malformed.kind, EventKind::Malformed { text, .. } if text == "oops \u{FFFD}")
        );
    }

    #[test]
    fn what_does_not_fit_into_the_queue_is_counted_as_lost() {
        let file = SharedFile::default();
        let (recorder, thread) = start(&file);
        let gate = file.gate.lock().unwrap();
        let sent = MAX_EVENTS + MAX_AT_ONCE + 100;
        for _ in 0..sent {
            recorder.record(1, None, stderr("x"));
        }
        drop(gate);

        thread.finish(Duration::from_secs(60)).unwrap();

        let recording = Recording::parse(&file.bytes.lock().unwrap()).unwrap();
        let mut written = 0;
        let mut lost = 0;
        for event in &recording.events {
            match &event.kind {
                EventKind::Lost { count, .. } => lost += count,
                _ => written += 1,
            }
        }
        assert!(lost > 0);
        assert_eq!(written + lost, sent as u64);
    }

    #[test]
    fn a_single_large_event_is_recorded_and_the_queue_is_bounded_in_bytes() {
        let file = SharedFile::default();
        let (recorder, thread) = start(&file);
        recorder.record(1, None, stderr("x".repeat(MAX_BYTES + 1)));
        thread.finish(Duration::from_secs(60)).unwrap();
        assert!(file.bytes.lock().unwrap().len() > MAX_BYTES);

        let (recorder, thread) = start(&file);
        let gate = file.gate.lock().unwrap();
        recorder.record(1, None, stderr("x".repeat(MAX_BYTES)));
        recorder.record(1, None, stderr("x".repeat(MAX_BYTES)));
        assert_eq!(recorder.shared.lost.load(Ordering::Relaxed), 1);
        drop(gate);
        thread.finish(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end_and_blocks_nothing() {
        let file = SharedFile::default();
        let (recorder, thread) = start(&file);
        file.is_full.store(true, Ordering::Relaxed);
        recorder.record(1, None, stderr("x"));

        let error = thread.finish(Duration::from_secs(60)).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(recorder.has_failed());
        recorder.record(1, None, stderr("after the end"));
    }

    #[test]
    fn the_observer_sees_redacted_events_without_a_writer() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let options = RecorderOptions::new(Header::new(Transport::Stdio))
            .observer(move |event| sink.lock().unwrap().push(event.clone()));
        let (recorder, thread) = Recorder::start(None, options).unwrap();

        recorder.record(1, None, stderr("token=abc"));
        thread.finish(Duration::from_secs(60)).unwrap();

        assert_eq!(seen.lock().unwrap()[0].kind, stderr("token=redacted-1"));
    }
}
