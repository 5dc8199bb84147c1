//! `Connections`, the connections of a bound server, and which one is closed to make room for another.
//!
//! ```text
//! accept ──▶ Head ──last byte of a head──▶ Busy ──responses were taken──▶ Idle
//!             ▲                             ▲                              │ first byte of the next head
//!             └─────────────────────────────┴──────────────────────────────┘
//! ```
//!
//! A new connection is always accepted, and replaces one that waits for its peer:
//!
//! - Beyond a quarter of [`Limits::connections`](crate::Limits::connections) with an open head, the oldest of these. A
//!   head is open from `accept` on, through the TLS handshake. An honest one is complete within a moment, so that only
//!   a peer that opens a quarter of all connections in that moment can replace it.
//! - Beyond `connections`, the one that has been idle, or has had an open head, for longest.
//!
//! When a response over HTTP/2 finds no memory, the connection is closed whose client has left responses unread for
//! longest.
//!
//! A connection is *admitted* by its first request. The last 64th of `connections` is never admitted: while the rest
//! is busy, a connection gets 503, or the answer to a probe, and is closed. So probes are answered however many
//! connections do something that does not end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::limits::{Account, Limit, LimitReached, UsageCounters};
use crate::sync::Mutex;

/// The connections of one bound server.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    counters: Arc<UsageCounters>,
    /// The number of connections in [`Stage::Head`].
    heads: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    open: BTreeMap<u64, Arc<Activity>>,
    /// The number of open connections that have been admitted.
    admitted: usize,
    heads: Candidates,
    idle: Candidates,
    unread: Candidates,
    /// When a connection was last closed for memory, which is free only when its task has ended.
    freed_at: Option<Instant>,
}

/// Which connections make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Those in [`Stage::Head`].
    Head,
    /// Those in [`Stage::Idle`].
    Idle,
    /// Those of HTTP/2 in [`Stage::Idle`] whose clients have left responses unread.
    Unread,
}

impl Waiting {
    /// Whether a connection that has waited since then may be closed. One that has just become idle may still have a part
    /// of its response in its buffers.
    fn may_end(self, since: Instant, now: Instant) -> bool {
        self != Self::Idle || now.saturating_duration_since(since) >= MIN_IDLE
    }
}

/// The connections that waited in one way when all were last looked at, the longest last. Those that are not among them
/// have waited for a shorter time, so all are looked at again only when none of these is left.
#[derive(Debug, Default)]
struct Candidates {
    found: Vec<(Instant, u64)>,
    /// Until when there is none, so that not every connection of a busy server looks at all others.
    none_until: Option<Instant>,
}

/// One connection of [`Connections`], which ends with the last clone.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    connections: Arc<Connections>,
    activity: Arc<Activity>,
}

#[derive(Debug)]
struct Activity {
    state: Mutex<State>,
    /// Ends the connection.
    task: OnceLock<AbortHandle>,
    /// What an HTTP/2 connection holds.
    account: OnceLock<Arc<Account>>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// When the stage began; of an idle connection, when it last took bytes.
    since: Instant,
    requests: usize,
    is_admitted: bool,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The rest of its first request, or over HTTP/1.1 of the next one.
    Head,
    /// The server, or the rest of a body.
    Busy,
    /// Its next request.
    Idle,
    /// Nothing: it was closed for another.
    Evicted,
}

/// Whether a request is served.
#[derive(Debug)]
pub(super) enum Admission {
    Admitted(RunningGuard),
    /// As many other connections as possible are busy.
    Full(LimitReached),
    /// The connection is being closed.
    Evicted,
}

/// Keeps a connection busy until it is dropped.
#[derive(Debug)]
pub(super) struct RunningGuard(Arc<Activity>);

impl Connections {
    pub(super) fn new(max: usize, counters: &Arc<UsageCounters>) -> Arc<Self> {
        Arc::new(Self {
            max,
            counters: counters.clone(),
            heads: AtomicUsize::new(0),
            table: Mutex::default(),
        })
    }

    /// Returns the number of open connections.
    pub(super) fn len(&self) -> usize {
        self.table.lock().open.len()
    }

    /// Adds a connection, and closes others as far as the limits require.
    pub(super) fn open(self: &Arc<Self>) -> Arc<Connection> {
        let now = Instant::now();
        let mut table = self.table.lock();
        while self.heads.load(Ordering::Relaxed) >= self.max_heads()
            && self.evict(&mut table, &[Waiting::Head], now, None)
        {}
        while table.open.len() >= self.max_open()
            && self.evict(&mut table, &[Waiting::Head, Waiting::Idle], now, None)
        {}
        let activity = Arc::new(Activity {
            state: Mutex::new(State {
                stage: Stage::Head,
                since: now,
                requests: 0,
                is_admitted: false,
            }),
            task: OnceLock::new(),
            account: OnceLock::new(),
        });
        self.heads.fetch_add(1, Ordering::Relaxed);
        table.heads.none_until = None;
        table.last_id += 1;
        let id = table.last_id;
        table.open.insert(id, activity.clone());
        Arc::new(Connection {
            id,
            connections: self.clone(),
            activity,
        })
    }

    /// Closes the connection that has waited in one of these ways for longest; `false` if there is none, or it is
    /// `except`.
    fn evict(
        &self,
        table: &mut Table,
        waiting: &[Waiting],
        now: Instant,
        except: Option<u64>,
    ) -> bool {
        loop {
            let oldest = waiting.iter().filter_map(|it| {
                table
                    .oldest(*it, now)
                    .filter(|(since, _)| it.may_end(*since, now))
            });
            let Some((since, id)) = oldest.min() else {
                return false;
            };
            if except == Some(id) {
                return false;
            }
            let Some(activity) = table.open.get(&id).cloned() else {
                return false;
            };
            let mut state = activity.state.lock();
            // It may have sent a request since.
            if state.since != since || !matches!(state.stage, Stage::Head | Stage::Idle) {
                continue;
            }
            let was = state.stage;
            self.change(&mut state, Stage::Evicted);
            if state.is_admitted {
                table.admitted -= 1;
            }
            drop(state);
            table.open.remove(&id);
            self.counters.refuse(Limit::Connections, self.max);
            let waited = now.saturating_duration_since(since);
            tracing::debug!(
                ?was,
                ?waited,
                "closing a connection to make room for another"
            );
            activity.task.get().iter().for_each(|task| task.abort());
            return true;
        }
    }

    /// Admits a connection with its first request.
    fn admit(&self, id: u64, now: Instant) -> Result<(), Admission> {
        let mut table = self.table.lock();
        let Some(activity) = table.open.get(&id).cloned() else {
            return Err(Admission::Evicted);
        };
        if table.admitted >= self.max_admitted()
            && !self.evict(&mut table, &[Waiting::Idle], now, None)
        {
            let reached = self.counters.refuse(Limit::Connections, self.max);
            return Err(Admission::Full(reached));
        }
        table.admitted += 1;
        activity.state.lock().is_admitted = true;
        Ok(())
    }

    /// Changes the stage of a connection.
    fn change(&self, state: &mut State, stage: Stage) {
        if state.stage == Stage::Head {
            self.heads.fetch_sub(1, Ordering::Relaxed);
        }
        if stage == Stage::Head {
            self.heads.fetch_add(1, Ordering::Relaxed);
        }
        state.stage = stage;
    }

    /// At least two, so that with the smallest limits a silent connection does not take the place of every other.
    fn max_heads(&self) -> usize {
        (self.max / 4).max(2)
    }

    fn max_admitted(&self) -> usize {
        let reserved = (self.max / RESERVED_SHARE).max((self.max / 16).min(MIN_RESERVED));
        self.max - reserved
    }

    /// At least one more than are admitted, for a refusal or a probe.
    fn max_open(&self) -> usize {
        self.max.max(self.max_admitted().saturating_add(1))
    }
}

impl Table {
    /// Returns the connection that has waited in this way for longest, and since when.
    fn oldest(&mut self, waiting: Waiting, now: Instant) -> Option<(Instant, u64)> {
        let open = &self.open;
        let candidates = match waiting {
            Waiting::Head => &mut self.heads,
            Waiting::Idle => &mut self.idle,
            Waiting::Unread => &mut self.unread,
        };
        loop {
            while let Some(&(since, id)) = candidates.found.last() {
                if open.get(&id).and_then(|it| it.since(waiting)) == Some(since) {
                    return Some((since, id));
                }
                candidates.found.pop();
            }
            if candidates.none_until.is_some_and(|until| now < until) {
                return None;
            }
            let in_stage = open.iter();
            let in_stage = in_stage.filter_map(|(id, it)| Some((it.since(waiting)?, *id)));
            candidates.found = in_stage.collect();
            candidates.found.sort_unstable_by(|a, b| b.cmp(a));
            if candidates.found.is_empty() {
                candidates.none_until = Some(now + LOOK_INTERVAL);
                return None;
            }
        }
    }
}

impl Connection {
    /// Sets the task that serves the connection, and is aborted to close it.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let _ = self.activity.task.set(task);
        // It may have been evicted since it was spawned, without a task to abort.
        if self.activity.state.lock().stage == Stage::Evicted {
            self.activity
                .task
                .get()
                .iter()
                .for_each(|task| task.abort());
        }
    }

    /// Sets the account of an HTTP/2 connection.
    pub(super) fn set_account(&self, account: &Arc<Account>) {
        let _ = self.activity.account.set(account.clone());
    }

    /// Closes another connection, the one whose client has left responses over HTTP/2 unread for longest.
    pub(super) fn free_memory(&self) {
        let now = Instant::now();
        let mut table = self.connections.table.lock();
        let may_free = table
            .freed_at
            .is_none_or(|freed| now >= freed + FREE_INTERVAL);
        if may_free
            && self
                .connections
                .evict(&mut table, &[Waiting::Unread], now, Some(self.id))
        {
            table.freed_at = Some(now);
        }
    }

    /// Begins a request, whose head is complete.
    pub(super) fn begin_request(&self) -> Admission {
        let mut state = self.activity.state.lock();
        if !state.is_admitted {
            drop(state);
            if let Err(refused) = self.connections.admit(self.id, Instant::now()) {
                return refused;
            }
            state = self.activity.state.lock();
        }
        if state.stage == Stage::Evicted {
            return Admission::Evicted;
        }
        state.requests += 1;
        self.connections.change(&mut state, Stage::Busy);
        Admission::Admitted(RunningGuard(self.activity.clone()))
    }

    /// Records that the peer sent bytes over HTTP/1.1: the head of the next request, if the connection was idle.
    pub(super) fn record_read(&self) {
        let mut state = self.activity.state.lock();
        if state.stage == Stage::Idle {
            state.since = Instant::now();
            self.connections.change(&mut state, Stage::Head);
        }
    }

    /// Records that the peer took bytes of a response.
    pub(super) fn record_written(&self) {
        let mut state = self.activity.state.lock();
        if state.stage == Stage::Idle {
            state.since = Instant::now();
        }
    }

    /// Returns since when the connection has had no request, and its peer has taken no bytes; `None` while it is busy.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.activity.state.lock();
        (state.stage != Stage::Busy).then_some(state.since)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        let mut state = self.activity.state.lock();
        if table.open.remove(&self.id).is_some() && state.is_admitted {
            table.admitted -= 1;
        }
        self.connections.change(&mut state, Stage::Evicted);
    }
}

impl Activity {
    /// Returns since when the connection has waited in this way.
    fn since(&self, waiting: Waiting) -> Option<Instant> {
        let state = self.state.lock();
        let waits = match waiting {
            Waiting::Head => state.stage == Stage::Head,
            Waiting::Idle => state.stage == Stage::Idle,
            Waiting::Unread => {
                let account = self.account.get();
                state.stage == Stage::Idle && account.is_some_and(|account| account.bytes() > 0)
            }
        };
        waits.then_some(state.since)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        if state.requests == 0 && state.stage == Stage::Busy {
            state.stage = Stage::Idle;
            state.since = Instant::now();
        }
    }
}

/// This share of the connections, as a divisor, is not admitted.
const RESERVED_SHARE: usize = 64;
/// At least so many are not admitted, as far as a sixteenth has them.
const MIN_RESERVED: usize = 2;
/// How long a connection has been idle, and its peer has taken no bytes, before it is closed for another.
const MIN_IDLE: Duration = Duration::from_secs(2);
/// How often all connections are looked at for an idle one while there is none.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often a connection is closed for memory.
const FREE_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(max: usize) -> Arc<Connections> {
        Connections::new(max, &Arc::default())
    }

    fn admitted(connection: &Connection) -> RunningGuard {
        match connection.begin_request() {
            Admission::Admitted(guard) => guard,
            refused => panic!("expected an admission, got {refused:?}"),
        }
    }

    fn is_open(connection: &Connection) -> bool {
        connection.activity.state.lock().stage != Stage::Evicted
    }

    fn count_open(connections: &[Arc<Connection>]) -> usize {
        connections.iter().filter(|it| is_open(it)).count()
    }

    async fn advance(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_open_head_is_closed_beyond_a_quarter() {
        let all = connections(64);
        let mut heads = Vec::new();
        for _ in 0..20 {
            heads.push(all.open());
            advance(1).await;
        }

        assert_eq!(count_open(&heads), 16);
        assert!(heads[4..].iter().all(|it| is_open(it)), "the latest stay");
        assert_eq!(all.len(), 16);
        assert_eq!(all.counters.refused(Limit::Connections), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_arrives_within_a_second_outlives_all_that_are_older_than_two() {
        let all = connections(64);
        // Reopened as soon as they are closed: 16 in three seconds, all of which stay open.
        let mut attackers: Vec<_> = (0..16).map(|_| all.open()).collect();
        advance(2_001).await;
        let honest = all.open();
        for _ in 0..15 {
            attackers.push(all.open());
            advance(60).await;
        }

        assert!(is_open(&honest));
        drop(admitted(&honest));
        assert!(attackers[..16].iter().all(|it| !is_open(it)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_head_makes_room_and_a_byte_of_the_next_one_takes_it() {
        let all = connections(64);
        let kept: Vec<_> = (0..16).map(|_| all.open()).collect();
        for connection in &kept {
            drop(admitted(connection));
        }
        let heads: Vec<_> = (0..16).map(|_| all.open()).collect();
        assert_eq!(
            count_open(&kept) + count_open(&heads),
            32,
            "idle ones are no heads"
        );

        advance(1).await;
        kept[0].record_read();
        let _new = all.open();

        assert!(is_open(&kept[0]), "its head began last");
        assert_eq!(count_open(&heads), 14);
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_has_waited_longest_is_closed_for_a_new_one() {
        let all = connections(16);
        let idle: Vec<_> = (0..15).map(|_| all.open()).collect();
        let mut guards = Vec::new();
        for connection in &idle {
            let Admission::Admitted(guard) = connection.begin_request() else {
                continue;
            };
            guards.push(guard);
        }
        // Heads are limited to four, so the others were closed as they opened.
        assert_eq!(guards.len(), 4);
        drop(guards);
        advance(1).await;
        let mut kept: Vec<_> = idle.into_iter().filter(|it| is_open(it)).collect();
        while kept.len() < 15 {
            let connection = all.open();
            drop(admitted(&connection));
            kept.push(connection);
            advance(1).await;
        }
        advance(2_000).await;
        kept[0].record_written();
        let _sixteenth = all.open();
        assert_eq!(count_open(&kept), 15);

        let _new = all.open();

        assert!(is_open(&kept[0]), "it took bytes a moment ago");
        assert_eq!(count_open(&kept), 14);
        assert!(!is_open(&kept[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_leave_the_reserve() {
        let all = connections(32);
        let mut busy = Vec::new();
        for _ in 0..30 {
            let connection = all.open();
            busy.push((admitted(&connection), connection));
        }

        for _ in 0..100 {
            let late = all.open();
            assert!(is_open(&late), "it is accepted");
            assert!(matches!(late.begin_request(), Admission::Full(_)));
        }
        assert_eq!(all.len(), 30);

        let (guard, idle) = busy.pop().unwrap();
        drop(guard);
        advance(20).await;
        let early = all.open();
        assert!(matches!(early.begin_request(), Admission::Full(_)));
        assert!(is_open(&idle), "its response may be on its way");
        drop(early);
        advance(2_000).await;
        let late = all.open();
        let _guard = admitted(&late);
        assert!(!is_open(&idle), "it was idle");
        assert!(matches!(idle.begin_request(), Admission::Evicted));
        assert!(busy.iter().all(|(_, connection)| is_open(connection)));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_freed_by_the_connection_that_has_left_responses_unread_for_longest() {
        use crate::limits::{ChargeKind, Limits};

        let all = connections(64);
        let total = Account::total(Limits::default());
        let open = |unread: usize| {
            let connection = all.open();
            let account = total.peer();
            connection.set_account(&account);
            drop(admitted(&connection));
            let charge = account.charge(ChargeKind::Unread, unread).unwrap();
            (connection, charge)
        };
        let reads_all = open(0);
        advance(1).await;
        let mut unread = Vec::new();
        for _ in 0..3 {
            unread.push(open(1000));
            advance(1).await;
        }
        let busy = (admitted(&unread[0].0), open(1000));

        busy.1.0.free_memory();
        busy.1.0.free_memory();
        assert!(!is_open(&unread[1].0), "the first is busy");
        assert!(is_open(&unread[2].0), "one at a time");

        advance(1).await;
        busy.1.0.free_memory();
        advance(1).await;
        busy.1.0.free_memory();

        assert!(!is_open(&unread[2].0));
        assert!(is_open(&unread[0].0) && is_open(&reads_all.0));
        assert!(is_open(&busy.1.0), "not for itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_requests_is_never_closed() {
        let all = connections(4);
        let connection = all.open();
        let first = admitted(&connection);
        let second = admitted(&connection);
        drop(first);

        let others: Vec<_> = (0..50).map(|_| all.open()).collect();

        assert!(is_open(&connection));
        assert_eq!(all.len(), 3);
        drop(second);
        drop(others);
        drop(connection);
        assert_eq!(all.len(), 0);
        assert_eq!(all.heads.load(Ordering::Relaxed), 0);
        assert_eq!(all.table.lock().admitted, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_limits_serve_one_connection() {
        for max in 1..4 {
            let all = connections(max);
            let silent = all.open();
            let connection = all.open();
            let _guard = admitted(&connection);

            assert!(is_open(&connection));
            assert!(is_open(&silent));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_evicted_connection_ends_its_task() {
        let all = connections(4);
        let serving = tokio::spawn(std::future::pending::<()>());
        let connection = all.open();
        connection.set_task(serving.abort_handle());
        advance(1).await;

        let _others = [all.open(), all.open()];

        assert!(serving.await.unwrap_err().is_cancelled());
    }
}
