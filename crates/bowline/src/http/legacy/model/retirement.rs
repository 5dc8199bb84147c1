//! Random schedules of the table of sessions: what is freed comes back with its record, and what has ended does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::exchange::{ConnectionState, Principal};
use crate::http::legacy::event_store::MemoryEventStore;
use crate::http::legacy::session::Session;
use crate::http::legacy::session_record::{RecordChange, SessionRecord};
use crate::http::legacy::sessions::{RunningSession, Sessions};
use crate::http::legacy::streams::{SessionStreams, StreamLayout};
use crate::limits::{Account, Limits};

/// What is known of a session that was opened.
#[derive(Clone, Debug, Default)]
struct ExpectedSession {
    record: SessionRecord,
    has_values: bool,
}

struct Table {
    sessions: Arc<Sessions>,
    account: Arc<Account>,
    expected: BTreeMap<u64, ExpectedSession>,
}

impl Table {
    fn new() -> Self {
        let limits = Limits {
            sessions: 3,
            principal_sessions: 2,
            ..Limits::default()
        };
        Self {
            sessions: Arc::default(),
            account: Account::total(limits),
            expected: BTreeMap::new(),
        }
    }

    fn principal(number: u64) -> Principal {
        match number % 3 {
            0 => Principal::named("ada"),
            _ => Principal::anonymous(),
        }
    }

    fn running(&self, number: u64) -> (RunningSession, ConnectionState) {
        let principal = Self::principal(number);
        let account = self.account.principal(principal.name()).peer();
        let layout = StreamLayout::StreamableHttp;
        let store = MemoryEventStore::with_limits(account.limits(), account.counters().clone());
        let streams = SessionStreams::new(layout, Box::new(store), account.clone());
        let pool = self.sessions.pool();
        let session = Session::new(principal, layout, streams, account, pool, None);
        session.set_id(id(number));
        let (task, state) = (
            tokio::spawn(std::future::pending::<()>()),
            ConnectionState::default(),
        );
        let running = RunningSession::new(session, task.abort_handle(), state.clone());
        (running, state)
    }

    fn live(&self, number: u64) -> Option<Arc<Session>> {
        let found = self.sessions.find(&id(number), &Self::principal(number));
        found.ok()
    }

    fn open(&mut self, number: u64) -> ConnectionState {
        let (running, state) = self.running(number);
        assert!(self.sessions.publish(running).is_ok());
        self.expected.insert(number, ExpectedSession::default());
        state
    }

    /// Does what a message of the client does.
    fn find_or_revive(&mut self, number: u64) -> Option<Arc<Session>> {
        if let Some(session) = self.live(number) {
            return Some(session);
        }
        let (running, _) = self.running(number);
        self.sessions.publish_revived(running, None).ok()
    }
}

fn id(number: u64) -> Arc<str> {
    format!("{number:033} and the rest").into()
}

#[tokio::test]
async fn a_freed_session_comes_back_with_what_its_client_has_set_and_an_ended_one_does_not() {
    for seed in 0..200 {
        let mut rng = super::simulation::SeededRng(seed);
        let mut table = Table::new();
        for step in 0..120 {
            let number = rng.below(8);
            let Some(mut expected) = table.expected.get(&number).cloned() else {
                let state = table.open(number);
                if rng.one_in(6) {
                    state.insert(7_u8);
                    table.expected.entry(number).or_default().has_values = true;
                }
                continue;
            };
            if expected.has_values && table.live(number).is_none() {
                expected.record = SessionRecord::ended();
            }
            let found = table.find_or_revive(number);
            let context = || format!("seed {seed}, step {step}, session {number}");
            assert_eq!(found.is_none(), expected.record.is_ended, "{}", context());
            if let Some(session) = found {
                assert_eq!(session.record(), expected.record, "{}", context());
                let uri = format!("a:{}", rng.below(4));
                let change = match rng.one_in(3) {
                    true => RecordChange::Unsubscribe(uri),
                    false => RecordChange::Subscribe(uri),
                };
                session.change_record(change.clone());
                expected.record.apply(change);
                if rng.one_in(12) {
                    table.sessions.end(&id(number));
                    expected.record = SessionRecord::ended();
                }
            }
            table.expected.insert(number, expected);
            assert!(table.sessions.len() <= 3, "{}", context());
            assert_eq!(table.account.usage().sessions, table.sessions.len());
        }
    }
}
