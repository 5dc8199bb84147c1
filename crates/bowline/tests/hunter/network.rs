//! Pipes in memory whose bytes arrive when the schedule says so, in pieces and in an order that it chooses.
//!
//! ```text
//! End ──write──▶ in transit ──deliver──▶ arrived ──read──▶ End
//! ```

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::ledger::Ledger;
use crate::scene::Column;
use crate::tap::{Notices, Scanner, Tap};

/// Every pipe of one schedule. Clones are the same network.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

struct State {
    chance: Chance,
    ledger: Ledger,
    tap: Tap,
    lanes: Vec<Lane>,
    /// Connections that are being made.
    knocks: Vec<oneshot::Sender<()>>,
    /// Whether everything arrives at once.
    flows: bool,
    column: Column,
}

/// One direction of a pipe.
struct Lane {
    party: char,
    way: Way,
    /// What was written, piece by piece.
    in_transit: VecDeque<Vec<u8>>,
    /// Since when something is in transit.
    since: Instant,
    arrived: Vec<u8>,
    /// The writer has said its last word.
    is_closed: bool,
    /// The reader has seen that.
    has_ended: bool,
    /// The reader is gone.
    is_deaf: bool,
    is_cut: bool,
    /// Nothing arrives any more, and neither end is told.
    is_dead: bool,
    /// The reader reads nothing until it is told to.
    is_unread: bool,
    was_read: bool,
    /// How many bytes it holds.
    room: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    written: Scanner,
    read: Scanner,
}

/// Where a lane leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

impl Network {
    pub(crate) fn new(column: Column, chance: &Chance, ledger: &Ledger) -> Self {
        Self(Arc::new(Mutex::new(State {
            chance: chance.clone(),
            ledger: ledger.clone(),
            tap: Tap::new(column, ledger),
            lanes: Vec::new(),
            knocks: Vec::new(),
            flows: true,
            column,
        })))
    }

    /// A pipe between a client and the server; the client's end comes first.
    pub(crate) fn pipe(&self, party: char) -> (End, End) {
        let mut state = self.lock();
        let up = state.lanes.len();
        let column = state.column;
        let lanes = [Way::ToServer, Way::ToClient].map(|way| Lane::new(party, way, column));
        state.lanes.extend(lanes);
        drop(state);
        let end = |incoming, outgoing| End {
            network: self.clone(),
            incoming,
            outgoing,
        };
        (end(up + 1, up), end(up, up + 1))
    }

    /// Waits until a connection may be made.
    pub(crate) async fn knock(&self) {
        let opened = {
            let mut state = self.lock();
            if state.flows {
                return;
            }
            let (open, opened) = oneshot::channel();
            state.knocks.push(open);
            opened
        };
        let _ = opened.await;
    }

    /// From now on nothing arrives before it is delivered.
    pub(crate) fn hold(&self) {
        self.lock().flows = false;
    }

    /// From now on everything arrives at once.
    pub(crate) fn flow(&self) {
        let mut state = self.lock();
        state.flows = true;
        let knocks = std::mem::take(&mut state.knocks);
        let lanes = state.lanes.iter_mut().filter(|lane| lane.is_passable());
        let wakers: Vec<_> = lanes.flat_map(Lane::arrive_all).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        for knock in knocks {
            // Whoever wanted to connect may have thought better of it.
            let _ = knock.send(());
        }
    }

    /// Delivers a piece of what is in transit somewhere, if anything is.
    pub(crate) fn deliver(&self) {
        let mut state = self.lock();
        let waiting: Vec<usize> = (0..state.lanes.len())
            .filter(|at| state.lanes[*at].has_something())
            .collect();
        let choices = waiting.len() + usize::from(!state.knocks.is_empty());
        if choices == 0 {
            return;
        }
        let chosen = state.chance.below(choices);
        let Some(at) = waiting.get(chosen).copied() else {
            let knock = state.knocks.remove(0);
            state.ledger.note("a connection is made");
            drop(state);
            let _ = knock.send(());
            return;
        };
        let pieces = state.lanes[at].in_transit.len();
        let count = state.chance.some_of(pieces.max(1));
        state.ledger.note(format_args!(
            "{count} of {pieces} pieces arrive on lane {at}"
        ));
        let wakers = state.lanes[at].arrive(count);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Delivers everything to the server that has been in transit for this long.
    pub(crate) fn deliver_older_than(&self, age: Duration) {
        let mut state = self.lock();
        let lanes = state.lanes.iter_mut();
        let old = lanes.filter(|lane| {
            lane.way == Way::ToServer && lane.is_passable() && lane.since.elapsed() >= age
        });
        let wakers: Vec<_> = old.flat_map(Lane::arrive_all).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Cuts a pipe, or ends one direction of it.
    pub(crate) fn wreck(&self) {
        let mut state = self.lock();
        let Some(at) = state.pick_alive(|_| true) else {
            return;
        };
        let wakers: Vec<_> = if state.chance.one_in(2) {
            state.ledger.note(format_args!("lane {at} is closed"));
            state.lanes[at].is_closed = true;
            state.lanes[at].wakers().collect()
        } else {
            let pair = at & !1;
            state
                .ledger
                .note(format_args!("lanes {pair} and {} are cut", pair + 1));
            let lanes = state.lanes[pair..=pair + 1].iter_mut();
            lanes.flat_map(Lane::cut).collect()
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Cuts every pipe that there is.
    pub(crate) fn cut_all(&self) {
        self.cut(|_, _| true);
    }

    /// From now on nothing arrives in one direction of a pipe, and nothing breaks.
    pub(crate) fn kill(&self) {
        let mut state = self.lock();
        if let Some(at) = state.pick_alive(|_| true) {
            let way = state.lanes[at].way;
            state.ledger.note(format_args!("lane {at} {way:?} is dead"));
            state.lanes[at].is_dead = true;
        }
    }

    /// How many pipes have a direction in which nothing arrives.
    pub(crate) fn dead_pipes(&self) -> usize {
        let state = self.lock();
        let dead = state.lanes.chunks(2);
        dead.filter(|pipe| pipe.iter().any(|lane| lane.is_dead))
            .count()
    }

    /// Cuts the pipes that are half dead, as TCP does after a time.
    pub(crate) fn cut_dead(&self) {
        self.cut(|one, other| one.is_dead || other.is_dead);
    }

    /// Has the reader of one direction stop reading: any, or a client. It may have room for little.
    pub(crate) fn stop_reading(&self, is_client: bool) {
        let mut state = self.lock();
        let room = *state.chance.pick(&[64, 2048, state.column.room]);
        let may_stop = |lane: &Lane| !is_client || lane.way == Way::ToClient;
        if let Some(at) = state.pick_alive(may_stop) {
            let Lane { way, party, .. } = state.lanes[at];
            state.ledger.note(format_args!(
                "lane {at} {way:?} of {party} is not read any more, and has room for {room}"
            ));
            state.lanes[at].is_unread = true;
            state.lanes[at].room = room;
        }
    }

    /// Has everybody who reads in this direction read again.
    pub(crate) fn read_again(&self, way: Way) {
        let mut state = self.lock();
        let room = state.column.room;
        let mut wakers = Vec::new();
        let flows = state.flows;
        let is_meant = |lane: &&mut Lane| lane.is_unread && lane.way == way;
        for lane in state.lanes.iter_mut().filter(is_meant) {
            lane.is_unread = false;
            lane.room = room;
            if flows {
                wakers.extend(lane.arrive_all());
            }
            wakers.extend(lane.wakers());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the server has read anything from this pipe.
    pub(crate) fn has_begun(&self, pipe: Pipe) -> bool {
        self.lock().lanes[pipe.0].was_read
    }

    /// Whether the server has read a request of this party with this id.
    pub(crate) fn has_arrived(&self, party: char, id: &str) -> bool {
        self.lock().tap.has_arrived(party, id)
    }

    /// What the server has written about changes, by the party and by the subscription or what changed.
    pub(crate) fn notices(&self, party: char, key: &str) -> Notices {
        self.lock().tap.notices(party, key)
    }

    fn cut(&self, is_cut: impl Fn(&Lane, &Lane) -> bool) {
        let mut state = self.lock();
        let mut wakers = Vec::new();
        for pipe in state.lanes.chunks_mut(2) {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// One direction of a pipe that both ends still use.
    fn pick_alive(&self, is_meant: impl Fn(&Lane) -> bool) -> Option<usize> {
        let alive = |at: &usize| {
            let lane = &self.lanes[*at];
            lane.is_alive() && lane.is_passable() && is_meant(lane)
        };
        let alive: Vec<usize> = (0..self.lanes.len()).filter(alive).collect();
        (!alive.is_empty()).then(|| *self.chance.pick(&alive))
    }

    /// Whether whoever writes to this lane is told that nobody reads it.
    fn is_broken(&self, at: usize) -> bool {
        let lane = &self.lanes[at];
        // That the reader is gone is told over the other direction, behind the last that it said.
        let is_told = lane.is_deaf && self.lanes[at ^ 1].has_ended;
        lane.is_closed || lane.is_cut || is_told
    }
}

impl Lane {
    fn new(party: char, way: Way, column: Column) -> Self {
        Self {
            party,
            way,
            in_transit: VecDeque::new(),
            since: Instant::now(),
            arrived: Vec::new(),
            is_closed: false,
            has_ended: false,
            is_deaf: false,
            is_cut: false,
            is_dead: false,
            is_unread: false,
            was_read: false,
            room: column.room,
            reader: None,
            writer: None,
            written: Scanner::new(column),
            read: Scanner::new(column),
        }
    }

    fn is_alive(&self) -> bool {
        !self.is_closed && !self.is_deaf && !self.is_cut
    }

    /// Whether what is written arrives some time.
    fn is_passable(&self) -> bool {
        !self.is_dead && !self.is_unread
    }

    fn has_something(&self) -> bool {
        !self.is_cut
            && !self.is_deaf
            && self.is_passable()
            && (!self.in_transit.is_empty() || (self.is_closed && !self.has_ended))
    }

    /// The next pieces arrive, or the end.
    fn arrive(&mut self, count: usize) -> Vec<Waker> {
        let count = count.min(self.in_transit.len());
        for piece in self.in_transit.drain(..count) {
            self.arrived.extend_from_slice(&piece);
        }
        self.has_ended = count == 0 && self.is_closed;
        self.wakers().collect()
    }

    fn arrive_all(&mut self) -> Vec<Waker> {
        let wakers = self.arrive(self.in_transit.len());
        self.has_ended = self.is_closed;
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
pub(crate) struct End {
    network: Network,
    incoming: usize,
    outgoing: usize,
}

/// Names a pipe of the network: by its direction to the server.
#[derive(Clone, Copy)]
pub(crate) struct Pipe(usize);

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut guard = self.network.lock();
        let state = &mut *guard;
        let lane = &mut state.lanes[self.incoming];
        if lane.is_cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let most = match lane.is_unread {
            true => 0,
            false => lane.arrived.len().min(buffer.remaining()),
        };
        if most == 0 {
            if lane.has_ended && lane.arrived.is_empty() {
                return Poll::Ready(Ok(()));
            }
            lane.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.column.piece(most, &state.chance);
        lane.was_read = true;
        let rest = lane.arrived.split_off(count);
        let bytes = std::mem::replace(&mut lane.arrived, rest);
        buffer.put_slice(&bytes);
        if lane.way == Way::ToServer {
            for message in lane.read.scan(&bytes) {
                state.tap.read_by_server(lane.party, &message);
            }
        }
        let writer = lane.writer.take();
        drop(guard);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
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
        let lane = &mut state.lanes[self.outgoing];
        if lane.is_deaf {
            return Poll::Ready(Ok(bytes.len())); // on its way to nobody
        }
        let held = lane.in_transit.iter().map(Vec::len).sum::<usize>() + lane.arrived.len();
        let most = bytes.len().min(lane.room.saturating_sub(held));
        if most == 0 && !bytes.is_empty() {
            lane.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.column.piece(most, &state.chance);
        if lane.in_transit.is_empty() {
            lane.since = Instant::now();
        }
        lane.in_transit.push_back(bytes[..count].to_vec());
        for message in lane.written.scan(&bytes[..count]) {
            state.tap.written(lane.party, lane.way, &message);
        }
        let wakers = if state.flows && lane.is_passable() {
            lane.arrive_all()
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

impl End {
    pub(crate) fn pipe(&self) -> Pipe {
        Pipe(self.incoming & !1)
    }

    /// Says the last word.
    fn close(&self) {
        let mut state = self.network.lock();
        let flows = state.flows;
        let lane = &mut state.lanes[self.outgoing];
        lane.is_closed = true;
        let wakers = if flows && lane.is_passable() {
            lane.arrive_all()
        } else {
            Vec::new()
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
        let mut state = self.network.lock();
        let lane = &mut state.lanes[self.incoming];
        lane.is_deaf = true;
        let writer = lane.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}
