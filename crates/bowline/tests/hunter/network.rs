//! In-memory pipes. The schedule decides when written bytes arrive, in which chunks and in which order.
//!
//! ```text
//! PipeEnd ──write──▶ in transit ──deliver──▶ arrived ──read──▶ PipeEnd
//! ```

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline::wire::Lines;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::scene::ScheduleConfig;
use crate::schedule_log::ScheduleLog;
use crate::seeded_random::SeededRandom;
use crate::traffic_monitor::{MessageScanner, TrafficMonitor, UpdateCounts};

/// All pipes of one schedule. Clones share them.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<NetworkState>>);

struct NetworkState {
    random: SeededRandom,
    log: ScheduleLog,
    monitor: TrafficMonitor,
    /// Both directions of each pipe, the one to the server first.
    halves: Vec<PipeHalf>,
    /// Connections that wait to be established.
    pending_connects: Vec<oneshot::Sender<()>>,
    /// Whether bytes arrive as soon as they are written.
    is_immediate: bool,
    config: ScheduleConfig,
}

/// One direction of a pipe.
struct PipeHalf {
    party: char,
    direction: FlowDirection,
    /// The chunks that were written and have not arrived.
    in_transit: VecDeque<Vec<u8>>,
    /// When the oldest chunk in transit was written.
    since: Instant,
    arrived: Vec<u8>,
    /// Whether the writer has closed its end.
    is_closed: bool,
    /// Whether the end of the stream has arrived.
    has_delivered_eof: bool,
    is_reader_gone: bool,
    is_cut: bool,
    /// Whether nothing arrives any more, without an error at either end.
    is_blackholed: bool,
    is_reader_paused: bool,
    was_read: bool,
    /// The number of bytes it buffers.
    capacity: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    written: MessageScanner,
    read: MessageScanner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowDirection {
    ToServer,
    ToClient,
}

impl Network {
    pub(crate) fn new(config: ScheduleConfig, random: &SeededRandom, log: &ScheduleLog) -> Self {
        Self(Arc::new(Mutex::new(NetworkState {
            random: random.clone(),
            log: log.clone(),
            monitor: TrafficMonitor::new(config, log),
            halves: Vec::new(),
            pending_connects: Vec::new(),
            is_immediate: true,
            config,
        })))
    }

    /// Creates a pipe between a client and the server, and returns the client's end first.
    pub(crate) fn pipe(&self, party: char) -> (PipeEnd, PipeEnd) {
        let mut state = self.lock();
        let up = state.halves.len();
        let config = state.config;
        let directions = [FlowDirection::ToServer, FlowDirection::ToClient];
        let halves = directions.map(|direction| PipeHalf::new(party, direction, config));
        state.halves.extend(halves);
        drop(state);
        let end = |incoming, outgoing| PipeEnd {
            network: self.clone(),
            incoming,
            outgoing,
        };
        (end(up + 1, up), end(up, up + 1))
    }

    /// Waits until the schedule lets a connection be established.
    pub(crate) async fn wait_to_connect(&self) {
        let opened = {
            let mut state = self.lock();
            if state.is_immediate {
                return;
            }
            let (open, opened) = oneshot::channel();
            state.pending_connects.push(open);
            opened
        };
        let _ = opened.await;
    }

    /// Holds written bytes back until [`Network::deliver`].
    pub(crate) fn hold(&self) {
        self.lock().is_immediate = false;
    }

    /// Delivers everything in transit, and from now on bytes as soon as they are written.
    pub(crate) fn deliver_immediately(&self) {
        let mut state = self.lock();
        state.is_immediate = true;
        let pending_connects = std::mem::take(&mut state.pending_connects);
        let halves = state.halves.iter_mut().filter(|half| half.can_deliver());
        let wakers: Vec<_> = halves.flat_map(PipeHalf::arrive_all).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        for connect in pending_connects {
            // The connecting future may have been dropped.
            let _ = connect.send(());
        }
    }

    /// Delivers some chunks of a random direction, or establishes a pending connection.
    pub(crate) fn deliver(&self) {
        let mut state = self.lock();
        let waiting: Vec<usize> = (0..state.halves.len())
            .filter(|at| state.halves[*at].has_deliverable())
            .collect();
        let choices = waiting.len() + usize::from(!state.pending_connects.is_empty());
        if choices == 0 {
            return;
        }
        let chosen = state.random.below(choices);
        let Some(at) = waiting.get(chosen).copied() else {
            let connect = state.pending_connects.remove(0);
            state.log.note("a connection is established");
            drop(state);
            let _ = connect.send(());
            return;
        };
        let chunks = state.halves[at].in_transit.len();
        let count = state.random.some_of(chunks.max(1));
        state.log.note(format_args!(
            "{count} of {chunks} chunks arrive on half {at}"
        ));
        let wakers = state.halves[at].arrive(count);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Delivers everything in transit to the server, on pipes where the oldest chunk has this age.
    pub(crate) fn deliver_older_than(&self, age: Duration) {
        let mut state = self.lock();
        let halves = state.halves.iter_mut();
        let old = halves.filter(|half| {
            half.direction == FlowDirection::ToServer
                && half.can_deliver()
                && half.since.elapsed() >= age
        });
        let wakers: Vec<_> = old.flat_map(PipeHalf::arrive_all).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Cuts a random pipe, or closes one direction of it.
    pub(crate) fn break_pipe(&self) {
        let mut state = self.lock();
        let Some(at) = state.pick_usable(|_| true) else {
            return;
        };
        let wakers: Vec<_> = if state.random.one_in(2) {
            state.log.note(format_args!("half {at} is closed"));
            state.halves[at].is_closed = true;
            state.halves[at].wakers().collect()
        } else {
            let pair = at & !1;
            state
                .log
                .note(format_args!("halves {pair} and {} are cut", pair + 1));
            let halves = state.halves[pair..=pair + 1].iter_mut();
            halves.flat_map(PipeHalf::cut).collect()
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn cut_all(&self) {
        self.cut(|_, _| true);
    }

    /// Stops delivery in one direction of a random pipe, without an error at either end.
    pub(crate) fn blackhole(&self) {
        let mut state = self.lock();
        if let Some(at) = state.pick_usable(|_| true) {
            let direction = state.halves[at].direction;
            state
                .log
                .note(format_args!("half {at} {direction:?} stops delivering"));
            state.halves[at].is_blackholed = true;
        }
    }

    pub(crate) fn blackholed_pipes(&self) -> usize {
        let state = self.lock();
        let pipes = state.halves.chunks(2);
        pipes
            .filter(|pipe| pipe.iter().any(|half| half.is_blackholed))
            .count()
    }

    /// Cuts the half-open pipes, as TCP does after its timeout.
    pub(crate) fn cut_blackholed(&self) {
        self.cut(|one, other| one.is_blackholed || other.is_blackholed);
    }

    /// Pauses a random reader, or a random client's, and may reduce the capacity of its direction.
    pub(crate) fn pause_reader(&self, is_client: bool) {
        let mut state = self.lock();
        let capacity = *state.random.pick(&[64, 2048, state.config.capacity]);
        let may_stop = |half: &PipeHalf| !is_client || half.direction == FlowDirection::ToClient;
        if let Some(at) = state.pick_usable(may_stop) {
            let PipeHalf {
                direction, party, ..
            } = state.halves[at];
            state.log.note(format_args!(
                "the reader of half {at} {direction:?} of {party} pauses, with a capacity of {capacity}"
            ));
            state.halves[at].is_reader_paused = true;
            state.halves[at].capacity = capacity;
        }
    }

    /// Resumes all paused readers of this direction.
    pub(crate) fn resume_readers(&self, direction: FlowDirection) {
        let mut state = self.lock();
        let capacity = state.config.capacity;
        let mut wakers = Vec::new();
        let is_immediate = state.is_immediate;
        let matches = |half: &&mut PipeHalf| half.is_reader_paused && half.direction == direction;
        for half in state.halves.iter_mut().filter(matches) {
            half.is_reader_paused = false;
            half.capacity = capacity;
            if is_immediate {
                wakers.extend(half.arrive_all());
            }
            wakers.extend(half.wakers());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether the server has read anything from this pipe.
    pub(crate) fn has_server_read(&self, pipe: PipeId) -> bool {
        self.lock().halves[pipe.0].was_read
    }

    /// See [`TrafficMonitor::has_arrived`].
    pub(crate) fn has_arrived(&self, party: char, id: &str) -> bool {
        self.lock().monitor.has_arrived(party, id)
    }

    /// See [`TrafficMonitor::updates`].
    pub(crate) fn updates(&self, party: char, key: &str) -> UpdateCounts {
        self.lock().monitor.updates(party, key)
    }

    fn cut(&self, is_cut: impl Fn(&PipeHalf, &PipeHalf) -> bool) {
        let mut state = self.lock();
        let mut wakers = Vec::new();
        for pipe in state.halves.chunks_mut(2) {
            if let [one, other] = pipe
                && is_cut(one, other)
            {
                wakers.extend(one.cut());
                wakers.extend(other.cut());
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkState {
    /// Picks one direction of a pipe that both ends still use.
    fn pick_usable(&self, matches: impl Fn(&PipeHalf) -> bool) -> Option<usize> {
        let is_usable = |at: &usize| {
            let half = &self.halves[*at];
            half.is_usable() && half.can_deliver() && matches(half)
        };
        let usable: Vec<usize> = (0..self.halves.len()).filter(is_usable).collect();
        (!usable.is_empty()).then(|| *self.random.pick(&usable))
    }

    /// Returns whether a write to this direction fails.
    fn is_broken(&self, at: usize) -> bool {
        let half = &self.halves[at];
        // As with TCP, the writer learns that the reader is gone after reading the last bytes of the other direction.
        let is_reset = half.is_reader_gone && self.halves[at ^ 1].has_delivered_eof;
        half.is_closed || half.is_cut || is_reset
    }
}

impl PipeHalf {
    fn new(party: char, direction: FlowDirection, config: ScheduleConfig) -> Self {
        Self {
            party,
            direction,
            in_transit: VecDeque::new(),
            since: Instant::now(),
            arrived: Vec::new(),
            is_closed: false,
            has_delivered_eof: false,
            is_reader_gone: false,
            is_cut: false,
            is_blackholed: false,
            is_reader_paused: false,
            was_read: false,
            capacity: config.capacity,
            reader: None,
            writer: None,
            written: MessageScanner::new(config),
            read: MessageScanner::new(config),
        }
    }

    fn is_usable(&self) -> bool {
        !self.is_closed && !self.is_reader_gone && !self.is_cut
    }

    fn can_deliver(&self) -> bool {
        !self.is_blackholed && !self.is_reader_paused
    }

    fn has_deliverable(&self) -> bool {
        !self.is_cut
            && !self.is_reader_gone
            && self.can_deliver()
            && (!self.in_transit.is_empty() || (self.is_closed && !self.has_delivered_eof))
    }

    /// Delivers the next chunks, or the end of the stream.
    fn arrive(&mut self, count: usize) -> Vec<Waker> {
        let count = count.min(self.in_transit.len());
        for chunk in self.in_transit.drain(..count) {
            self.arrived.extend_from_slice(&chunk);
        }
        self.has_delivered_eof = count == 0 && self.is_closed;
        self.wakers().collect()
    }

    fn arrive_all(&mut self) -> Vec<Waker> {
        let wakers = self.arrive(self.in_transit.len());
        self.has_delivered_eof = self.is_closed;
        wakers
    }

    fn cut(&mut self) -> Vec<Waker> {
        self.is_cut = true;
        self.wakers().collect()
    }

    fn wakers(&mut self) -> impl Iterator<Item = Waker> + use<> {
        [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
    }
}

/// One end of a pipe. Dropping it closes both directions.
pub(crate) struct PipeEnd {
    network: Network,
    incoming: usize,
    outgoing: usize,
}

/// The index of a pipe's direction to the server.
#[derive(Clone, Copy)]
pub(crate) struct PipeId(usize);

impl AsyncRead for PipeEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut guard = self.network.lock();
        let state = &mut *guard;
        let half = &mut state.halves[self.incoming];
        if half.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let max = match half.is_reader_paused {
            true => 0,
            false => half.arrived.len().min(buffer.remaining()),
        };
        if max == 0 {
            if half.has_delivered_eof && half.arrived.is_empty() {
                return Poll::Ready(Ok(()));
            }
            half.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.config.chunk_size(max, &state.random);
        half.was_read = true;
        let rest = half.arrived.split_off(count);
        let bytes = std::mem::replace(&mut half.arrived, rest);
        buffer.put_slice(&bytes);
        if half.direction == FlowDirection::ToServer {
            for message in half.read.scan(&bytes) {
                state.monitor.message_read_by_server(half.party, &message);
            }
        }
        let writer = half.writer.take();
        drop(guard);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut guard = self.network.lock();
        let state = &mut *guard;
        if state.is_broken(self.outgoing) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let half = &mut state.halves[self.outgoing];
        if half.is_reader_gone {
            return Poll::Ready(Ok(bytes.len())); // discarded
        }
        let held = half.in_transit.iter().map(Vec::len).sum::<usize>() + half.arrived.len();
        let max = bytes.len().min(half.capacity.saturating_sub(held));
        if max == 0 && !bytes.is_empty() {
            half.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.config.chunk_size(max, &state.random);
        if half.in_transit.is_empty() {
            half.since = Instant::now();
        }
        half.in_transit.push_back(bytes[..count].to_vec());
        for message in half.written.scan(&bytes[..count]) {
            state
                .monitor
                .message_written(half.party, half.direction, &message);
        }
        let wakers = if state.is_immediate && half.can_deliver() {
            half.arrive_all()
        } else {
            Vec::new()
        };
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl PipeEnd {
    /// Returns a wire with one message on each line.
    pub(crate) fn into_lines(self) -> Lines {
        let (read, write) = tokio::io::split(self);
        Lines::new(read, write)
    }

    pub(crate) fn pipe(&self) -> PipeId {
        PipeId(self.incoming & !1)
    }

    /// Closes the outgoing direction.
    fn close(&self) {
        let mut state = self.network.lock();
        let is_immediate = state.is_immediate;
        let half = &mut state.halves[self.outgoing];
        half.is_closed = true;
        let wakers = if is_immediate && half.can_deliver() {
            half.arrive_all()
        } else {
            Vec::new()
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.close();
        let mut state = self.network.lock();
        let half = &mut state.halves[self.incoming];
        half.is_reader_gone = true;
        let writer = half.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}
